//! The idempotency engine as the journey sees it: what it may answer, and what the cores of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::event::{ScopeKey, StoredResponse, Timestamp};
use crate::idempotency::record::{Status, UnknownReason};
use crate::idempotency::{Claim, Owner, Policy};
use crate::store::{Store, StoreError};

use super::claiming::Asking;
use super::identity::Identity;
use super::journal::Journal;
use super::keyring::Keyring;
use super::limits::Place;
use super::trail::Trail;
use super::waiters::Waiters;

/// The idempotency engine of one data-plane core: its own handle of the store, and what all cores share.
#[derive(Clone)]
pub struct Dedupe {
    pub(super) store: Arc<dyn Store>,
    pub(super) shared: Shared,
    /// Work of this core that outlives its request: it is waited for when the gateway stops.
    pub(super) tasks: TaskTracker,
}

/// What the cores of a process share.
#[derive(Clone)]
pub struct Shared {
    pub(super) keyring: Keyring,
    pub(super) journal: Journal,
    pub(super) waiters: Waiters,
    /// One above the highest fence seen: a store whose clock steps back may not give a lower one.
    pub(super) floor: Arc<AtomicU64>,
}

impl Shared {
    /// For one process over one store.
    pub fn new(keyring: Keyring, journal: Journal) -> Self {
        Self { keyring, journal, waiters: Waiters::default(), floor: Arc::default() }
    }
}

/// What a delivery's route wants, and what is kept of its request.
pub struct Terms<'a> {
    /// The route's name.
    pub route: &'a str,
    /// Its policy.
    pub policy: &'a Policy,
    /// Written with each claim, for an operator.
    pub with_claim: Option<Bytes>,
    /// Written to the quarantine of a mismatch.
    pub with_mismatch: Option<Bytes>,
    /// Given up while the delivery only waits for another one.
    pub place: Option<&'a Place>,
}

/// What a delivery gets.
#[derive(Debug)]
pub enum Begin {
    /// At least one event is new: forward once, then finish these claims.
    Fresh(Vec<Item>),
    /// All events are finished: the first one's answer.
    Replay(Kept),
    /// An event runs elsewhere.
    Busy {
        /// How long its lease still has.
        after: Duration,
        /// Running, or of an outcome that nobody knows yet.
        status: Status,
    },
    /// An event's key stands for another event.
    Mismatch {
        /// The names of the fields that differ.
        fields: Vec<String>,
        /// Its quarantine is written, and not only about to be.
        kept: bool,
    },
    /// An event waits for an operator.
    Held {
        /// Why.
        reason: UnknownReason,
    },
}

/// One event of a delivery that is forwarded, in the delivery's order.
#[derive(Debug)]
pub enum Item {
    /// Claimed by this delivery.
    First(Box<Held>),
    /// Finished before.
    Known(Kept),
    /// The same event stands earlier in this delivery.
    Repeat,
}

impl Item {
    /// The claim, if it is this delivery's.
    pub fn into_held(self) -> Option<Held> {
        match self {
            Self::First(held) => Some(*held),
            Self::Known(_) | Self::Repeat => None,
        }
    }
}

/// A claim with the key it stands at.
#[derive(Clone, Debug)]
pub struct Held {
    /// Where.
    pub key: ScopeKey,
    /// Under which fence.
    pub claim: Claim,
    /// What stood there before; none: the event is new.
    pub before: Option<Status>,
    /// By this process's steady clock, when the claim was asked for: its lease ends no sooner than one lease after that.
    pub since: Instant,
}

/// A kept answer.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The answer.
    pub response: StoredResponse,
    /// When its window ends.
    pub expires_at: Timestamp,
    /// False when two versions of the plugin had no field in common to compare.
    pub compared: bool,
}

impl Dedupe {
    /// For one core.
    pub fn new(store: Arc<dyn Store>, shared: Shared, tasks: TaskTracker) -> Self {
        Self { store, shared, tasks }
    }

    /// Claims the new events of a delivery; waits for one that runs elsewhere, within the route's patience.
    ///
    /// # Errors
    /// When the store cannot answer. Nothing is left claimed then: what may have been written is looked for and given back.
    pub async fn begin(
        &self,
        owner: &Owner,
        ids: &[Identity],
        terms: Terms<'_>,
        trail: &mut Trail,
    ) -> Result<Begin, StoreError> {
        let keys = self.shared.keyring.get(&*self.store).await?;
        self.shared.journal.settle_for(&*self.store, ids).await?;
        Asking { dedupe: self, keys: &keys, owner, terms }.begin(ids, trail).await
    }

    pub(super) fn raise_floor(&self, fence: u64) {
        self.shared.floor.fetch_max(fence.saturating_add(1), Ordering::Relaxed);
    }
}
