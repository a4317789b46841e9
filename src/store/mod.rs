//! The store seam: one conditional write and one read. Back-ends hold no transitions and no policy; they compare, stamp and write.
//!
//! Invariant: every write is atomic over one key and happens only over the revision that its writer saw.

mod clock;
mod codec;
mod layered;
mod measured;
mod memory;
mod open;
mod postgres;
mod redis;
mod seal;
mod sealed;
mod sql;
mod sqlite;

pub use layered::Layered;
pub use memory::Memory;
pub use open::{Backend, OpenError, Stores};
pub use postgres::Postgres;
pub use redis::Redis;
pub use seal::SealingKeys;
pub use sealed::SealedStores;
pub use sqlite::Sqlite;

use async_trait::async_trait;

use crate::event::{ScopeKey, Timestamp};
use crate::idempotency::record::Status;
use crate::idempotency::{Draft, Expect, Record};

/// Where records live. Shared by every gateway that fronts the same tenants.
///
/// What an implementation may get wrong, and what it costs: a write that was acknowledged and is then lost (a failover) costs a
/// second forward with a higher fence, which the caller counts. A write that happens though it was refused, or happens half,
/// costs an event or a double payment: never allowed. A write whose reply is lost is allowed; the owner token finds it.
///
/// A record at or past its `expires_at` is absent, for reads and for writes alike.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes `draft` iff the key is at `expect`; otherwise says what is there. One round trip. The store's clock stamps fence,
    /// times, lease end and expiry, as [`Draft::stamp`] does.
    ///
    /// # Errors
    /// When the store did not answer, or refused to: whether the write happened is then unknown unless
    /// [`StoreError::may_be_applied`] says it was not.
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError>;

    /// What is there, and the store's time.
    ///
    /// # Errors
    /// When the store did not answer, or holds what cannot be read as a record.
    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError>;

    /// Whether the store answers and can be written to.
    ///
    /// # Errors
    /// When it does not, or cannot.
    async fn ping(&self) -> Result<(), StoreError>;

    /// The store's own record: made once by whoever comes first, without an expiry, the same for all who ask.
    ///
    /// # Errors
    /// When the store did not answer.
    async fn meta(&self, offer: Meta) -> Result<Found, StoreError>;

    /// A tenant's records, newest start first. For people: it may take longer than a call of the data path.
    ///
    /// # Errors
    /// When the store did not answer. A record that cannot be read is left out, and the log says so.
    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError>;

    /// The records of a scope whose key reads like this (see [`ScopeKey::readable_key`]), in every key namespace; events only,
    /// neither aliases nor quarantines. For people, like [`Store::list`].
    ///
    /// # Errors
    /// When the store did not answer, or holds what cannot be read as a record.
    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError>;

    /// What the store says of itself.
    ///
    /// # Errors
    /// When the store did not answer.
    async fn facts(&self) -> Result<Facts, StoreError>;
}

/// Which records a listing is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// In one of these states; [`Status::Alias`] is never listed.
    pub statuses: Vec<Status>,
    /// Of this route only.
    pub route: Option<String>,
    /// Started (for a quarantine: last added to) at this time or later.
    pub since: Option<Timestamp>,
    /// At most so many.
    pub limit: usize,
}

impl Filter {
    /// Whether a record is what is asked for.
    pub fn holds(&self, record: &Record) -> bool {
        self.statuses.contains(&record.state.status())
            && self.route.as_ref().is_none_or(|route| *route == record.route)
            && self.since.is_none_or(|since| record.started_at >= since)
    }
}

/// A record with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub key: ScopeKey,
    /// What stands there.
    pub record: Record,
}

/// The answer to a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Newest start first.
    pub entries: Vec<Entry>,
    /// There are, or may be, more than these.
    pub more: bool,
    /// The store's time.
    pub now: Timestamp,
}

/// What a store says of itself. Whether that will do is not for the store to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `memory`, `sqlite`, `redis` or `postgresql`.
    pub software: &'static str,
    /// As the software numbers itself; empty when it does not say.
    pub version: String,
    /// Names the running instance: another one after a restart or a failover. Empty when the software has no such name.
    pub instance: String,
    /// Whether it takes writes, or follows another one that does.
    pub role: Role,
    /// What it drops when memory runs out (Redis: `maxmemory-policy`); none: nothing ever.
    pub eviction: Option<String>,
}

/// What a server is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows one that does.
    Replica,
}

/// The store's own record as it was found.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    /// What stands now.
    pub meta: Meta,
    /// It was not there, and is what was offered.
    pub made: bool,
}

/// What a key holds at a moment of the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The record, if there is one that has not expired.
    pub current: Option<Record>,
    /// The store's time.
    pub now: Timestamp,
}

/// What became of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Written; the record as it stands now.
    Done(Box<Record>),
    /// Not written, since this is there.
    Refused(Box<Seen>),
}

/// What a store knows of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Meta {
    /// Made when the store was first used; another one means that everything was forgotten.
    pub epoch: String,
    /// The key of the fingerprints where the config names none: 32 bytes.
    pub digest_key: [u8; 32],
}

/// A store that did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("the store {kind}: {detail}")]
pub struct StoreError {
    /// What kind of fault.
    pub kind: StoreFault,
    /// For the log.
    pub detail: String,
    in_doubt: bool,
}

/// Kinds of store faults, as the metrics label them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// No connection.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The store answered that it cannot write: full, read-only, no replicas.
    Refused,
    /// What it holds, or what it answered, cannot be read.
    Corrupt,
}

impl StoreFault {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Corrupt => "corrupt",
        }
    }
}

impl std::fmt::Display for StoreFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "cannot be reached",
            Self::Timeout => "did not answer in time",
            Self::Refused => "refused the write",
            Self::Corrupt => "gave what cannot be read",
        })
    }
}

impl StoreError {
    /// A fault with its detail. Without an answer, a write is in doubt; with one, it did not happen.
    pub fn new(kind: StoreFault, detail: impl std::fmt::Display) -> Self {
        let in_doubt = matches!(kind, StoreFault::Timeout | StoreFault::Unreachable);
        Self { kind, detail: detail.to_string(), in_doubt }
    }

    /// This fault, when it is certain that nothing was written: the call never left.
    #[must_use]
    pub fn not_applied(self) -> Self {
        Self { in_doubt: false, ..self }
    }

    /// This fault, when the write may stand all the same: it was on its way to the disk.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        Self { in_doubt: true, ..self }
    }

    /// Whether the write may have been applied although no answer came.
    pub const fn may_be_applied(&self) -> bool {
        self.in_doubt
    }
}
