//! How claims are won. Drives the machine over the store: asks, writes what it decides, and decides again over what a refused
//! write met. One event at a time, or several of one delivery together.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tokio::time::{Instant, timeout_at};

use crate::event::{Fingerprint, Timestamp};
use crate::idempotency::machine::Me;
use crate::idempotency::record::{Status, UnknownReason};
use crate::idempotency::{Claim, Decision, Draft, Owner, Plan, Policy, on_request};
use crate::store::{Seen, StoreError, StoreFault, Swap};

use super::dedupe::{Begin, Dedupe, Held, Item, Kept};
use super::identity::{DigestKeys, Identity};
use super::trail::Trail;

/// How many store calls of one delivery are under way at once.
const PIPELINED: usize = 64;

/// Store calls of one delivery, begun in order, with their results in order.
pub(super) async fn pipelined<T>(calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(calls).buffered(PIPELINED).collect().await
}

/// One delivery's question to the store.
pub(super) struct Asking<'a> {
    pub(super) dedupe: &'a Dedupe,
    pub(super) keys: &'a DigestKeys,
    pub(super) owner: &'a Owner,
    pub(super) route: &'a str,
    /// Kept with the claims.
    pub(super) request: Option<Bytes>,
    pub(super) policy: &'a Policy,
}

impl Asking<'_> {
    /// Claims what is new; waits for one event that runs elsewhere.
    pub(super) async fn begin(&self, ids: &[Identity], trail: &mut Trail) -> Result<Begin, StoreError> {
        let newest = self.keys.newest();
        let named: Vec<Named<'_>> =
            ids.iter().map(|id| Named { id, name: id.key.digest(), fingerprint: id.fingerprint(newest) }).collect();
        if let Some(first) = named.first() {
            trail.fingerprint(&first.fingerprint.digest);
        }
        match named.as_slice() {
            [one] => match self.claim(one).await? {
                One::Busy(after, status) => self.wait(one, after, status).await,
                one => Ok(single(one)),
            },
            several => match Twins::of(several) {
                Some(twins) => self.claim_all(several, twins).await,
                None => Ok(Begin::Mismatch { fields: Vec::new() }),
            },
        }
    }

    /// Several events: claims in key-hash order, pipelined, so that two deliveries of the same events cannot each hold half for long;
    /// undoes its claims when any event cannot go on, or when claiming took so long that the first leases are half over.
    async fn claim_all(&self, named: &[Named<'_>], twins: Twins) -> Result<Begin, StoreError> {
        let started = Instant::now();
        let mut claiming = Vec::with_capacity(twins.leaders.len());
        for one in twins.leaders.iter().filter_map(|at| named.get(*at)) {
            claiming.push(self.claim(one).boxed());
        }
        let mut ones: Vec<(usize, One)> = Vec::with_capacity(claiming.len());
        let mut fault = None;
        for (at, one) in twins.leaders.into_iter().zip(pipelined(claiming).await) {
            match one {
                Ok(one) => ones.push((at, one)),
                Err(error) => fault = Some(error),
            }
        }
        if fault.is_none() && started.elapsed() > self.policy.lease / 2 {
            fault = Some(StoreError::new(StoreFault::Timeout, "claiming took half of the lease"));
        }
        if let Some(stop) = worst(&ones) {
            self.undo(&ones).await;
            return Ok(stop);
        }
        if let Some(error) = fault {
            self.undo(&ones).await;
            return Err(error);
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
            let me = Me { owner: self.owner, fingerprint: &fingerprint, plugin: &id.plugin, route: self.route };
            let decision = on_request(seen.current.as_ref(), &me, seen.now, self.policy);
            let Decision::Claim(plan) = decision else {
                return Ok(self.settle(decision, id, seen));
            };
            let me = Me { owner: self.owner, fingerprint: &named.fingerprint, plugin: &id.plugin, route: self.route };
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
        let draft = Draft { request: self.request.clone(), ..draft };
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
            Decision::Busy { until } => One::Busy(until.since(seen.now), status_of(&seen)),
            Decision::Mismatch { fields } => One::Mismatch(fields),
            Decision::Held { reason } => One::Waits(reason),
            Decision::Own | Decision::Claim(_) => match seen.current {
                Some(record) => {
                    self.dedupe.raise_floor(record.fence);
                    One::Claimed(Held { key: id.key.clone(), claim: Claim::of(&record), before: None })
                }
                None => One::Busy(Duration::ZERO, Status::Processing),
            },
        }
    }

    /// Waits for a running event's answer. A waiter only replays: if the event ends without an answer to replay, or does not
    /// end in time, the sender comes again.
    async fn wait(&self, named: &Named<'_>, mut after: Duration, mut status: Status) -> Result<Begin, StoreError> {
        let id = named.id;
        let deadline = Instant::now() + self.policy.in_flight.wait;
        let Some(waiter) = self.dedupe.shared.waiters.enter(&id.key.tenant, named.name) else {
            return Ok(Begin::Busy { after, status });
        };
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
            // A store that does not answer now may yet, and that the event runs elsewhere is known already.
            let Ok(seen) = self.dedupe.store.peek(&id.key).await else { continue };
            let fingerprint = self.fingerprint_for(&seen, named);
            let me = Me { owner: self.owner, fingerprint: &fingerprint, plugin: &id.plugin, route: self.route };
            match on_request(seen.current.as_ref(), &me, seen.now, self.policy) {
                Decision::Busy { until } => (after, status) = (until.since(seen.now), status_of(&seen)),
                Decision::Claim(_) => return Ok(Begin::Busy { after: Duration::ZERO, status: status_of(&seen) }),
                decision => return Ok(single(self.settle(decision, id, seen))),
            }
        }
        Ok(Begin::Busy { after, status })
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
        let mut undoing = Vec::new();
        for (_, one) in ones {
            if let One::Claimed(held) = one {
                let why = "another event of the same request could not be claimed";
                undoing.push(self.dedupe.give_back(held, why, self.policy).boxed());
            }
        }
        pipelined(undoing).await;
    }
}

fn status_of(seen: &Seen) -> Status {
    seen.current.as_ref().map_or(Status::Processing, |record| record.state.status())
}

fn single(one: One) -> Begin {
    match one {
        One::Claimed(held) => Begin::Fresh(vec![Item::First(held)]),
        One::Known(kept) => Begin::Replay(kept),
        One::Busy(after, status) => Begin::Busy { after, status },
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
        One::Busy(after, status) => Some(Begin::Busy { after: *after, status: *status }),
        One::Claimed(_) | One::Known(_) | One::Repeat => None,
    }
}

/// What one event gets.
enum One {
    Claimed(Held),
    Known(Kept),
    Busy(Duration, Status),
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
