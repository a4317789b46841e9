//! The state machine: two total functions. [`on_request`] decides what a delivery gets, [`on_outcome`] what an attempt leaves.

use bytes::Bytes;

use crate::event::{Fingerprint, PluginVersion, StoredResponse, Timestamp};

use super::history::{self, Attempt, Step};
use super::policy::{OnFailed, OnUnknown, Policy};
use super::record::{
    Draft, Expect, FailureClass, Fence, Lease, Owner, Record, Revision, State, Status, Ttl, UnknownReason,
};

/// What a delivery says of itself: all that the machine compares.
#[derive(Clone, Debug)]
pub struct Me<'a> {
    /// This delivery's token.
    pub owner: &'a Owner,
    /// Its fingerprint, under the digest key that the seen record names where there is one.
    pub fingerprint: &'a Fingerprint,
    /// The plugin that read it.
    pub plugin: &'a PluginVersion,
    /// The route that it took.
    pub route: &'a str,
}

/// What a delivery gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Write this claim; if the write is refused, decide again over what it met.
    Claim(Plan),
    /// This delivery's own claim stands already: an earlier write of it was applied, and its reply lost.
    Own,
    /// The same event runs elsewhere, or waits for its lease to end.
    Busy {
        /// The end of the lease.
        until: Timestamp,
    },
    /// The same event is finished: this is its answer.
    Replay {
        /// The kept answer.
        response: StoredResponse,
        /// When the window ends.
        expires_at: Timestamp,
        /// False when the plugin's versions had no field in common to compare.
        compared: bool,
    },
    /// Another event under the same key.
    Mismatch {
        /// The names of the fields that differ.
        fields: Vec<String>,
    },
    /// It waits for an operator.
    Held {
        /// Why.
        reason: UnknownReason,
    },
}

/// A claim to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What must stand for it.
    pub expect: Expect,
    /// The number of the forward that follows.
    pub attempt: u32,
    /// An earlier attempt may have reached the upstream.
    pub ambiguous: bool,
    /// What happened before.
    pub history: Vec<Step>,
}

impl Plan {
    /// The claim of an event that is new.
    pub fn first() -> Self {
        Self { expect: Expect::Absent, attempt: 1, ambiguous: false, history: Vec::new() }
    }

    /// The claim as a draft.
    pub fn draft(&self, me: &Me<'_>, floor: u64, policy: &Policy) -> Draft {
        Draft {
            state: State::Processing,
            fingerprint: me.fingerprint.clone(),
            owner: me.owner.clone(),
            fence: Fence::Next { floor },
            attempt: self.attempt,
            lease: Some(policy.lease),
            ttl: Ttl::AtLeast(policy.open_ttl()),
            released: false,
            ambiguous: self.ambiguous,
            error: None,
            plugin: me.plugin.clone(),
            route: me.route.to_owned(),
            history: self.history.clone(),
            request: None,
        }
    }
}

/// A claim that stands: the right to forward once, under this fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who holds it.
    pub owner: Owner,
    /// Its fence.
    pub fence: u64,
    /// The number of the forward.
    pub attempt: u32,
    /// An earlier attempt may have reached the upstream.
    pub ambiguous: bool,
    /// What the delivery said it was.
    pub fingerprint: Fingerprint,
    /// The plugin that read it.
    pub plugin: PluginVersion,
    /// See [`Record::route`].
    pub route: String,
    /// See [`Record::history`].
    pub history: Vec<Step>,
    /// See [`Record::request`].
    pub request: Option<Bytes>,
}

impl Claim {
    /// The claim that a record of `processing` holds.
    pub fn of(record: &Record) -> Self {
        Self {
            owner: record.owner.clone(),
            fence: record.fence,
            attempt: record.attempt,
            ambiguous: record.ambiguous,
            fingerprint: record.fingerprint.clone(),
            plugin: record.plugin.clone(),
            route: record.route.clone(),
            history: record.history.clone(),
            request: record.request.clone(),
        }
    }

    /// What must stand for a write by this claim.
    pub fn expect(&self, status: Status, lease: Lease) -> Expect {
        Expect::At { revision: Revision { fence: self.fence, status }, lease }
    }

    /// The renewal of the lease.
    pub fn heartbeat(&self, policy: &Policy) -> Draft {
        Draft { lease: Some(policy.lease), ..self.draft(State::Processing, Ttl::AtLeast(policy.open_ttl())) }
    }

    fn draft(&self, state: State, ttl: Ttl) -> Draft {
        Draft {
            state,
            fingerprint: self.fingerprint.clone(),
            owner: self.owner.clone(),
            fence: Fence::Keep,
            attempt: self.attempt,
            lease: None,
            ttl,
            released: false,
            ambiguous: self.ambiguous,
            error: None,
            plugin: self.plugin.clone(),
            route: self.route.clone(),
            history: self.history.clone(),
            request: self.request.clone(),
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A complete answer came.
    Answered(StoredResponse),
    /// No byte was sent.
    Unsent {
        /// For people.
        error: String,
    },
    /// Bytes were sent and no complete answer came.
    Ambiguous {
        /// Why nobody knows.
        reason: UnknownReason,
        /// For people.
        error: String,
    },
}

impl Outcome {
    /// What went wrong, for people; empty for an answer.
    pub fn error(&self) -> &str {
        match self {
            Self::Answered(_) => "",
            Self::Unsent { error } | Self::Ambiguous { error, .. } => error,
        }
    }
}

/// Decides what a delivery gets, from what the store holds for its key (nothing, or a record that has not expired).
pub fn on_request(seen: Option<&Record>, me: &Me<'_>, now: Timestamp, policy: &Policy) -> Decision {
    let Some(record) = seen else {
        return Decision::Claim(Plan::first());
    };
    let lease_over = now >= record.lease_until;
    if record.state == State::Processing && record.owner == *me.owner && !lease_over {
        return Decision::Own;
    }
    if claimable_by_anyone(record) {
        return Decision::Claim(next_attempt(record));
    }
    let compared = match compare(record, me) {
        Comparison::Differs(fields) => return Decision::Mismatch { fields },
        Comparison::Same => true,
        Comparison::NothingInCommon => false,
    };
    match &record.state {
        State::Processing if !lease_over => Decision::Busy { until: record.lease_until },
        State::Processing => on_unknown(record, UnknownReason::LeaseOver, lease_over, policy),
        State::Unknown { reason } => on_unknown(record, *reason, lease_over, policy),
        State::Succeeded { response } => {
            Decision::Replay { response: response.clone(), expires_at: record.expires_at, compared }
        }
        State::Failed { response, .. } => match (policy.failed, response) {
            (OnFailed::Replay, Some(response)) => {
                Decision::Replay { response: response.clone(), expires_at: record.expires_at, compared }
            }
            (OnFailed::DeadLetter, _) if exhausted(record, policy) => {
                Decision::Held { reason: UnknownReason::Exhausted }
            }
            _ => Decision::Claim(next_attempt(record)),
        },
        // Whoever drives the machine follows an alias first, and no event's key holds a quarantine: nothing may be written over it.
        State::Alias { .. } | State::Mismatch { .. } => Decision::Held { reason: UnknownReason::Broken },
    }
}

/// What an attempt leaves in the store.
pub fn on_outcome(claim: &Claim, outcome: Outcome, policy: &Policy) -> Draft {
    match outcome {
        Outcome::Answered(response) if policy.final_statuses.contains(response.status) => {
            // Nobody has to look at it any more.
            Draft { request: None, ..claim.draft(State::Succeeded { response }, Ttl::Exactly(policy.window)) }
        }
        Outcome::Answered(response) => {
            let error = Some(format!("the upstream answered {}", response.status));
            if policy.failed == OnFailed::DeadLetter && claim.attempt >= policy.max_attempts {
                let state = State::Unknown { reason: UnknownReason::Exhausted };
                return Draft { error, ..claim.draft(state, Ttl::AtLeast(policy.open_ttl())) };
            }
            let state = State::Failed { class: class_of(response.status), response: Some(response) };
            Draft { error, ..claim.draft(state, failed_ttl(claim, policy)) }
        }
        Outcome::Unsent { error } => {
            let state = State::Failed { class: FailureClass::Unsent, response: None };
            Draft { error: Some(error), ..claim.draft(state, failed_ttl(claim, policy)) }
        }
        Outcome::Ambiguous { reason, error } => Draft {
            ambiguous: true,
            error: Some(error),
            ..claim.draft(State::Unknown { reason }, Ttl::AtLeast(policy.open_ttl()))
        },
    }
}

/// A failure is remembered for its own window; one that an operator may want to see, for as long as an open event.
fn failed_ttl(claim: &Claim, policy: &Policy) -> Ttl {
    if claim.ambiguous || policy.failed == OnFailed::DeadLetter {
        Ttl::AtLeast(policy.open_ttl())
    } else {
        Ttl::Exactly(policy.failed_window)
    }
}

/// Nothing of the event ever reached the upstream, in no attempt, or an operator gave the key free: what it was does not bind what
/// comes. An attempt that was not sent keeps its number, so the first one's says that none was sent before.
fn claimable_by_anyone(record: &Record) -> bool {
    match record.state {
        State::Failed { class: FailureClass::Unsent, .. } => {
            record.released || (record.attempt == 1 && !record.ambiguous)
        }
        State::Failed { .. } => record.released,
        _ => false,
    }
}

fn on_unknown(record: &Record, reason: UnknownReason, lease_over: bool, policy: &Policy) -> Decision {
    if reason == UnknownReason::Exhausted || policy.unknown == OnUnknown::Hold {
        return Decision::Held { reason };
    }
    if !lease_over {
        return Decision::Busy { until: record.lease_until };
    }
    Decision::Claim(Plan { ambiguous: true, ..next_attempt(record) })
}

/// The claim that follows a record. What was never sent does not count as an attempt.
fn next_attempt(record: &Record) -> Plan {
    let unsent = matches!(record.state, State::Failed { class: FailureClass::Unsent, .. });
    let lease = if matches!(record.state, State::Failed { .. }) { Lease::Any } else { Lease::Over };
    Plan {
        expect: Expect::At { revision: record.revision(), lease },
        attempt: if unsent { record.attempt } else { record.attempt.saturating_add(1) },
        ambiguous: record.ambiguous,
        // A released record's own attempt was written down when it was released.
        history: match record.released {
            true => record.history.clone(),
            false => history::with(&record.history, Step::Attempt(Attempt::of(record))),
        },
    }
}

fn exhausted(record: &Record, policy: &Policy) -> bool {
    !matches!(record.state, State::Failed { class: FailureClass::Unsent, .. }) && record.attempt >= policy.max_attempts
}

fn class_of(status: u16) -> FailureClass {
    match status {
        408 | 425 | 429 | 500..=599 => FailureClass::Transient,
        _ => FailureClass::Terminal,
    }
}

enum Comparison {
    Same,
    Differs(Vec<String>),
    NothingInCommon,
}

/// Whether a record and a delivery are the same event. When another version of the plugin made the record, only the fields
/// that both versions name can tell; likewise when the key of the record's digests is gone.
fn compare(record: &Record, me: &Me<'_>) -> Comparison {
    let (kept, new) = (&record.fingerprint, me.fingerprint);
    if kept.key_id != new.key_id {
        return Comparison::NothingInCommon;
    }
    if kept.digest == new.digest {
        return Comparison::Same;
    }
    if record.plugin == *me.plugin {
        return Comparison::Differs(new.differing(kept));
    }
    let mut differing = Vec::new();
    let mut common = 0;
    for (name, digest) in &new.fields {
        if let Some(other) = kept.field(name) {
            common += usize::from(is_plugins(name));
            if other != digest {
                differing.push(name.clone());
            }
        }
    }
    match (differing.is_empty(), common) {
        (false, _) => Comparison::Differs(differing),
        (true, 0) => Comparison::NothingInCommon,
        (true, _) => Comparison::Same,
    }
}

/// Whether a compared field is the plugin's own choice, the whole body that stands in for it included, and not the route's.
fn is_plugins(name: &str) -> bool {
    name != "$method" && !name.starts_with("$path/")
}
