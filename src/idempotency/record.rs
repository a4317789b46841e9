//! A record, and the conditional write that changes it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::event::{Fingerprint, PluginVersion, ScopeKey, StoredResponse, Timestamp};

use super::history::Step;

/// Who wrote a record last: a random token, one a delivery. It answers "was my lost write applied?".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub String);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a store holds for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the event stands.
    pub state: State,
    /// What the delivery that claimed it said it was.
    pub fingerprint: Fingerprint,
    /// Who wrote last.
    pub owner: Owner,
    /// Strictly increasing per key, also over a lost record: seeded from the store's clock in microseconds.
    pub fence: u64,
    /// The number of the forward that was last begun, from 1.
    pub attempt: u32,
    /// When this attempt's claim was made.
    pub started_at: Timestamp,
    /// When the state became final, or unknown.
    pub finished_at: Option<Timestamp>,
    /// Until when the owner may work without renewal; for an unknown outcome, when it may be tried again.
    pub lease_until: Timestamp,
    /// When the store forgets the record; for a success, the end of its window.
    pub expires_at: Timestamp,
    /// An operator said that the next delivery may claim, whatever it holds.
    pub released: bool,
    /// An attempt before the last one may have reached the upstream.
    pub ambiguous: bool,
    /// For people: what went wrong.
    pub error: Option<String>,
    /// The plugin that named the key and the material.
    pub plugin: PluginVersion,
    /// The route that the delivery took.
    pub route: String,
    /// What happened before, oldest first: earlier attempts and what operators did.
    pub history: Vec<Step>,
    /// The request as the gateway wrote it down, when the route keeps those that wait for a person.
    pub request: Option<Bytes>,
}

impl Record {
    /// What a conditional write compares.
    pub fn revision(&self) -> Revision {
        Revision { fence: self.fence, status: self.state.status() }
    }
}

/// Where an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Claimed; a forward may be under way until the lease ends.
    Processing,
    /// Forwarded; the upstream's answer is final.
    Succeeded {
        /// What every redelivery gets.
        response: StoredResponse,
    },
    /// Certainly not accepted by the upstream.
    Failed {
        /// How it failed.
        class: FailureClass,
        /// The upstream's answer, when there was one.
        response: Option<StoredResponse>,
    },
    /// The upstream may or may not have acted. It may be tried again when the lease ends, if the route says so.
    Unknown {
        /// Why nobody knows.
        reason: UnknownReason,
    },
    /// Not an event but another name of one.
    Alias {
        /// The event's own key.
        of: ScopeKey,
    },
    /// Not an event but what came under an event's key and was another: quarantined, once a key.
    Mismatch {
        /// The names of the fields in which the last one differed.
        fields: Vec<String>,
        /// How many came.
        count: u64,
        /// When the first one came.
        first_at: Timestamp,
    },
}

impl State {
    /// The state's name without what it carries.
    pub const fn status(&self) -> Status {
        match self {
            Self::Processing => Status::Processing,
            Self::Succeeded { .. } => Status::Succeeded,
            Self::Failed { .. } => Status::Failed,
            Self::Unknown { .. } => Status::Unknown,
            Self::Alias { .. } => Status::Alias,
            Self::Mismatch { .. } => Status::Mismatch,
        }
    }
}

/// A state's name, as stores and logs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// See [`State::Processing`].
    Processing,
    /// See [`State::Succeeded`].
    Succeeded,
    /// See [`State::Failed`].
    Failed,
    /// See [`State::Unknown`].
    Unknown,
    /// See [`State::Alias`].
    Alias,
    /// See [`State::Mismatch`].
    Mismatch,
}

/// Gives an enum its stored words, both ways.
macro_rules! words {
    ($type:ty { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $type {
            /// The word that stores and logs use.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The variant of a stored word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

words!(Status {
    Processing = "processing",
    Succeeded = "succeeded",
    Failed = "failed",
    Unknown = "unknown",
    Alias = "alias",
    Mismatch = "mismatch",
});

/// How an attempt failed for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// No byte reached the upstream.
    Unsent,
    /// A complete answer that asks for another try (408, 425, 429, 5xx).
    Transient,
    /// A complete answer that another try will hardly change.
    Terminal,
}

words!(FailureClass { Unsent = "unsent", Transient = "transient", Terminal = "terminal" });

/// Why an outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnknownReason {
    /// The upstream did not answer in time.
    Timeout,
    /// The exchange broke after bytes were sent.
    Broken,
    /// The owner vanished: its lease ran out.
    LeaseOver,
    /// Every allowed attempt failed; the last outcome itself is known.
    Exhausted,
}

words!(UnknownReason { Timeout = "timeout", Broken = "broken", LeaseOver = "lease-over", Exhausted = "exhausted" });

/// What identifies a record's version for a conditional write. A heartbeat keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The claim's fence.
    pub fence: u64,
    /// The state's name.
    pub status: Status,
}

/// What a conditional write demands of the lease, on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Not over yet: a heartbeat.
    Live,
    /// Over: a takeover.
    Over,
    /// Either: a finalise by the own fence.
    Any,
}

/// What must stand in the store for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing, or only what has expired.
    Absent,
    /// Exactly this.
    At {
        /// Fence and state.
        revision: Revision,
        /// What the lease must be.
        lease: Lease,
    },
}

/// How a write numbers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// A new claim: `max(previous + 1, store time in µs, floor)`.
    Next {
        /// One above the highest fence that this gateway has seen, for stores whose clock steps back.
        floor: u64,
    },
    /// The fence that stands.
    Keep,
}

/// How long a record lives from this write on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// At least so long; a later end that stands is kept.
    AtLeast(Duration),
    /// Exactly so long.
    Exactly(Duration),
}

impl Ttl {
    /// When the record is to be forgotten.
    pub fn end(self, now: Timestamp, standing: Option<Timestamp>) -> Timestamp {
        match self {
            Self::AtLeast(ttl) => now.plus(ttl).max(standing.unwrap_or_default()),
            Self::Exactly(ttl) => now.plus(ttl),
        }
    }
}

/// A record to be. The store stamps fence, times, lease end and expiry; all else stands here.
///
/// A draft of `Processing` with [`Fence::Next`] starts an attempt (`started_at` is now); with [`Fence::Keep`] it is a heartbeat.
/// Any other state ends one (`finished_at` is now).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Where the event will stand.
    pub state: State,
    /// What the delivery said it was.
    pub fingerprint: Fingerprint,
    /// Who writes.
    pub owner: Owner,
    /// How the write is numbered.
    pub fence: Fence,
    /// The number of the forward.
    pub attempt: u32,
    /// The lease from now on; none leaves the end that stands.
    pub lease: Option<Duration>,
    /// How long the record lives.
    pub ttl: Ttl,
    /// See [`Record::released`].
    pub released: bool,
    /// See [`Record::ambiguous`].
    pub ambiguous: bool,
    /// See [`Record::error`].
    pub error: Option<String>,
    /// See [`Record::plugin`].
    pub plugin: PluginVersion,
    /// See [`Record::route`].
    pub route: String,
    /// See [`Record::history`].
    pub history: Vec<Step>,
    /// See [`Record::request`].
    pub request: Option<Bytes>,
}

impl Draft {
    /// The record this draft becomes at `now` on the store's clock, over what stands. The one place that stamps, so that
    /// stores which stamp in their own language can be held against it.
    pub fn stamp(&self, now: Timestamp, standing: Option<&Record>) -> Record {
        let starts = matches!(self.fence, Fence::Next { .. });
        Record {
            state: self.state.clone(),
            fingerprint: self.fingerprint.clone(),
            owner: self.owner.clone(),
            fence: match self.fence {
                Fence::Next { floor } => {
                    let next = standing.map_or(0, |record| record.fence.saturating_add(1));
                    next.max(now.as_micros()).max(floor)
                }
                Fence::Keep => standing.map_or(0, |record| record.fence),
            },
            attempt: self.attempt,
            started_at: standing.filter(|_| !starts).map_or(now, |record| record.started_at),
            finished_at: (self.state != State::Processing).then_some(now),
            lease_until: match self.lease {
                Some(lease) => now.plus(lease),
                None => standing.map_or(now, |record| record.lease_until),
            },
            expires_at: self.ttl.end(now, standing.map(|record| record.expires_at)),
            released: self.released,
            ambiguous: self.ambiguous,
            error: self.error.clone(),
            plugin: self.plugin.clone(),
            route: self.route.clone(),
            history: self.history.clone(),
            request: self.request.clone(),
        }
    }
}

impl Expect {
    /// Whether what stands (nothing, or a record that has not expired) is what the write demands.
    pub fn holds(&self, standing: Option<&Record>, now: Timestamp) -> bool {
        match (self, standing) {
            (Self::Absent, None) => true,
            (Self::At { revision, lease }, Some(record)) => {
                record.revision() == *revision
                    && match lease {
                        Lease::Live => now < record.lease_until,
                        Lease::Over => now >= record.lease_until,
                        Lease::Any => true,
                    }
            }
            _ => false,
        }
    }
}
