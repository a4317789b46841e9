//! Drives the machine over the store: asks, writes what it decides, and decides again over what a refused write met.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use crate::event::{Fingerprint, ScopeKey, StoredResponse, Timestamp};
use crate::idempotency::machine::Me;
use crate::idempotency::record::{Status, UnknownReason};
use crate::idempotency::{Claim, Decision, Owner, Plan, Policy, on_request};
use crate::store::{Seen, Store, StoreError, StoreFault, Swap};

use super::identity::{DigestKeys, Identity};
use super::keyring::Keyring;
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
    keyring: Keyring,
    pub(super) waiters: Waiters,
    /// One above the highest fence seen: a store whose clock steps back may not give a lower one.
    floor: Arc<AtomicU64>,
}

impl Shared {
    /// For one process over one store.
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring, waiters: Waiters::default(), floor: Arc::default() }
    }
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
    },
    /// An event's key stands for another event.
    Mismatch {
        /// The names of the fields that differ.
        fields: Vec<String>,
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
    First(Held),
    /// Finished before.
    Known(Kept),
    /// The same event stands earlier in this delivery.
    Repeat,
}

impl Item {
    /// The claim, if it is this delivery's.
    pub fn into_held(self) -> Option<Held> {
        match self {
            Self::First(held) => Some(held),
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

/// What one event gets.
enum One {
    Claimed(Held),
    Known(Kept),
    Busy(Timestamp, Timestamp),
    Mismatch(Vec<String>),
    Waits(UnknownReason),
    Repeat,
}

impl One {
    fn into_item(self) -> Option<Item> {
        match self {
            Self::Claimed(held) => Some(Item::First(held)),
            Self::Known(kept) => Some(Item::Known(kept)),
            Self::Repeat => Some(Item::Repeat),
            Self::Busy(..) | Self::Mismatch(_) | Self::Waits(_) => None,
        }
    }
}

/// An event's identity with what the store is asked by, computed once.
struct Named<'a> {
    id: &'a Identity,
    /// The digest of its key.
    name: [u8; 32],
    /// Under the newest of the digest keys.
    fingerprint: Fingerprint,
}

/// A delivery's events by key: the first of each key in key-hash order, and the repeats.
struct Twins {
    leaders: Vec<usize>,
    repeats: Vec<usize>,
}

impl Twins {
    /// None when two events of the delivery share a key but are not the same event.
    fn of(named: &[Named<'_>]) -> Option<Self> {
        let mut order: Vec<(usize, &Named<'_>)> = named.iter().enumerate().collect();
        order.sort_by_key(|(_, named)| named.name);
        let mut twins = Self { leaders: Vec::new(), repeats: Vec::new() };
        let mut leader: Option<&Named<'_>> = None;
        for (at, named) in order {
            match leader {
                Some(first) if first.name == named.name => {
                    if first.fingerprint.digest != named.fingerprint.digest {
                        return None;
                    }
                    twins.repeats.push(at);
                }
                _ => {
                    leader = Some(named);
                    twins.leaders.push(at);
                }
            }
        }
        Some(twins)
    }
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
        policy: &Policy,
        trail: &mut Trail,
    ) -> Result<Begin, StoreError> {
        let keys = self.shared.keyring.get(&*self.store).await?;
        let name = |id| Named { id, name: id.key.digest(), fingerprint: id.fingerprint(keys.newest()) };
        let named: Vec<Named<'_>> = ids.iter().map(name).collect();
        if let Some(first) = named.first() {
            trail.fingerprint(&first.fingerprint.digest);
        }
        let asking = Asking { dedupe: self, keys: &keys, owner, policy };
        match named.as_slice() {
            [one] => match asking.claim(one).await? {
                One::Busy(until, now) => asking.wait(one, until.since(now)).await,
                one => Ok(single(one)),
            },
            several => match Twins::of(several) {
                Some(twins) => asking.claim_all(several, twins).await,
                None => Ok(Begin::Mismatch { fields: Vec::new() }),
            },
        }
    }

    fn raise_floor(&self, fence: u64) {
        self.shared.floor.fetch_max(fence.saturating_add(1), Ordering::Relaxed);
    }
}

/// One delivery's question to the store.
struct Asking<'a> {
    dedupe: &'a Dedupe,
    keys: &'a DigestKeys,
    owner: &'a Owner,
    policy: &'a Policy,
}

impl Asking<'_> {
    /// Several events: claims in key-hash order, so that two deliveries of the same events cannot each hold half; undoes its
    /// claims when any event cannot go on.
    async fn claim_all(&self, named: &[Named<'_>], twins: Twins) -> Result<Begin, StoreError> {
        let mut ones: Vec<(usize, One)> = Vec::with_capacity(twins.leaders.len());
        for at in &twins.leaders {
            let Some(one) = named.get(*at) else { continue };
            match self.claim(one).await {
                Ok(one) => ones.push((*at, one)),
                Err(error) => {
                    self.undo(&ones).await;
                    return Err(error);
                }
            }
        }
        if let Some(stop) = worst(&ones) {
            self.undo(&ones).await;
            return Ok(stop);
        }
        ones.extend(twins.repeats.into_iter().map(|at| (at, One::Repeat)));
        ones.sort_by_key(|(at, _)| *at);
        let items: Vec<Item> = ones.into_iter().filter_map(|(_, one)| one.into_item()).collect();
        match items.first() {
            Some(Item::Known(kept)) if !items.iter().any(|item| matches!(item, Item::First(_))) => {
                Ok(Begin::Replay(kept.clone()))
            }
            _ => Ok(Begin::Fresh(items)),
        }
    }

    /// One event: decide, write, and on a refused write decide again over what it met. An event that is new costs one round
    /// trip, and so does a duplicate: the first decision is made before anything is known.
    async fn claim(&self, named: &Named<'_>) -> Result<One, StoreError> {
        let id = named.id;
        let mut seen = Seen { current: None, now: Timestamp::default() };
        // Each turn loses to another writer of this very key; a few in a row mean a storm, and the sender comes again.
        for _ in 0..8 {
            let fingerprint = self.fingerprint_for(&seen, named);
            let me = Me { owner: self.owner, fingerprint: &fingerprint, plugin: &id.plugin };
            let decision = on_request(seen.current.as_ref(), &me, seen.now, self.policy);
            let Decision::Claim(plan) = decision else {
                return Ok(self.settle(decision, id, seen));
            };
            let me = Me { owner: self.owner, fingerprint: &named.fingerprint, plugin: &id.plugin };
            match self.write_claim(&plan, &me, id).await? {
                Swap::Done(record) => {
                    self.dedupe.raise_floor(record.fence);
                    return Ok(One::Claimed(Held {
                        key: id.key.clone(),
                        claim: Claim::of(&record),
                        before: seen.current.map(|record| record.state.status()),
                    }));
                }
                Swap::Refused(met) => seen = *met,
            }
        }
        Err(StoreError::new(StoreFault::Timeout, "the key changed under every write"))
    }

    /// The claim's write. A connection that broke is tried once more with the same owner: if the first write was applied, the
    /// second meets its own claim. When the outcome of either stays unknown, a task looks for the claim and gives it back.
    async fn write_claim(&self, plan: &Plan, me: &Me<'_>, id: &Identity) -> Result<Swap, StoreError> {
        let store = &self.dedupe.store;
        let draft = plan.draft(me, self.dedupe.shared.floor.load(Ordering::Relaxed), self.policy);
        let mut result = store.swap(&id.key, plan.expect, &draft).await;
        let mut in_doubt = result.as_ref().is_err_and(StoreError::may_be_applied);
        if result.as_ref().is_err_and(|error| error.kind == StoreFault::Unreachable) {
            result = store.swap(&id.key, plan.expect, &draft).await;
            in_doubt |= result.as_ref().is_err_and(StoreError::may_be_applied);
        }
        if result.is_err() && in_doubt {
            self.dedupe.give_back_if_found(me.owner.clone(), id.key.clone(), self.policy.clone());
        }
        result
    }

    fn settle(&self, decision: Decision, id: &Identity, seen: Seen) -> One {
        match decision {
            Decision::Replay { response, expires_at, compared } => One::Known(Kept { response, expires_at, compared }),
            Decision::Busy { until } => One::Busy(until, seen.now),
            Decision::Mismatch { fields } => One::Mismatch(fields),
            Decision::Held { reason } => One::Waits(reason),
            Decision::Own | Decision::Claim(_) => match seen.current {
                Some(record) => {
                    self.dedupe.raise_floor(record.fence);
                    One::Claimed(Held { key: id.key.clone(), claim: Claim::of(&record), before: None })
                }
                None => One::Busy(seen.now, seen.now),
            },
        }
    }

    /// Waits for a running event's answer. A waiter only replays: if the event ends without an answer to replay, or does not
    /// end in time, the sender comes again.
    async fn wait(&self, named: &Named<'_>, remaining: Duration) -> Result<Begin, StoreError> {
        let id = named.id;
        let deadline = Instant::now() + self.policy.in_flight.wait;
        let Some(waiter) = self.dedupe.shared.waiters.enter(&id.key.tenant, named.name) else {
            return Ok(Begin::Busy { after: remaining });
        };
        let mut after = remaining;
        let mut pause = Duration::from_millis(50);
        let mut woken = std::pin::pin!(waiter.done.notified());
        woken.as_mut().enable();
        while Instant::now() < deadline {
            let next = deadline.min(Instant::now() + pause);
            // Woken or not, the store is asked: only it knows. The next call is listened for before that, so that none is missed.
            let _ = timeout_at(next, woken.as_mut()).await;
            woken.set(waiter.done.notified());
            woken.as_mut().enable();
            pause = (pause * 2).min(Duration::from_millis(250));
            let seen = self.dedupe.store.peek(&id.key).await?;
            let fingerprint = self.fingerprint_for(&seen, named);
            let me = Me { owner: self.owner, fingerprint: &fingerprint, plugin: &id.plugin };
            match on_request(seen.current.as_ref(), &me, seen.now, self.policy) {
                Decision::Busy { until } => after = until.since(seen.now),
                Decision::Claim(_) => return Ok(Begin::Busy { after: Duration::ZERO }),
                decision => return Ok(single(self.settle(decision, id, seen))),
            }
        }
        Ok(Begin::Busy { after })
    }

    /// The fingerprint under the key that the seen record was made with, so that a new digest key makes no old record differ.
    fn fingerprint_for<'n>(&self, seen: &Seen, named: &'n Named<'_>) -> Cow<'n, Fingerprint> {
        let newest = &named.fingerprint;
        match &seen.current {
            Some(record) if record.fingerprint.key_id != newest.key_id => self
                .keys
                .find(&record.fingerprint.key_id)
                .map_or(Cow::Borrowed(newest), |key| Cow::Owned(named.id.fingerprint(key))),
            _ => Cow::Borrowed(newest),
        }
    }

    async fn undo(&self, ones: &[(usize, One)]) {
        for (_, one) in ones {
            if let One::Claimed(held) = one {
                self.dedupe
                    .give_back(held, "another event of the same request could not be claimed", self.policy)
                    .await;
            }
        }
    }
}

fn single(one: One) -> Begin {
    match one {
        One::Claimed(held) => Begin::Fresh(vec![Item::First(held)]),
        One::Known(kept) => Begin::Replay(kept),
        One::Busy(until, now) => Begin::Busy { after: until.since(now) },
        One::Mismatch(fields) => Begin::Mismatch { fields },
        One::Waits(reason) => Begin::Held { reason },
        One::Repeat => Begin::Fresh(vec![Item::Repeat]),
    }
}

/// What decides a request that cannot go on: a mismatch before a held event before a busy one.
fn worst(ones: &[(usize, One)]) -> Option<Begin> {
    let rank = |one: &One| match one {
        One::Mismatch(_) => 0,
        One::Waits(_) => 1,
        One::Busy(..) => 2,
        One::Claimed(_) | One::Known(_) | One::Repeat => 3,
    };
    let (_, one) = ones.iter().min_by_key(|(_, one)| rank(one))?;
    match one {
        One::Mismatch(fields) => Some(Begin::Mismatch { fields: fields.clone() }),
        One::Waits(reason) => Some(Begin::Held { reason: *reason }),
        One::Busy(until, now) => Some(Begin::Busy { after: until.since(*now) }),
        One::Claimed(_) | One::Known(_) | One::Repeat => None,
    }
}
