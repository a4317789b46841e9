//! How a claim is won. Drives the machine over the store: asks, writes what it decides, and decides again over what a refused
//! write met; goes on with the event that another of its names leads to.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use crate::event::{Fingerprint, KeyKind, ScopeKey, Timestamp};
use crate::idempotency::alias::{Standing, claim_over, on_pointer};
use crate::idempotency::machine::Me;
use crate::idempotency::record::{State, Status, UnknownReason};
use crate::idempotency::{Claim, Decision, Draft, Expect, Owner, Plan, Record, on_request};
use crate::store::{Seen, StoreError, StoreFault, Swap};

use super::dedupe::{Begin, Dedupe, Held, Item, Kept, Terms};
use super::identity::{DigestKeys, Identity};
use super::naming::Named;
use super::trail::Trail;

/// How many store calls of one delivery are under way at once.
const PIPELINED: usize = 64;

/// How often one delivery goes on to another event that one of its names leads to. Each time but the first, an event whose outcome
/// was unknown is left as one that failed, so that it is not gone on to again; more than this many in a row are a storm.
const HOPS_MAX: usize = 8;

/// After which pauses a claim's write is tried again on a connection that broke: at once, then so that a driver's own pause before
/// it connects again is over.
const AGAIN_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(30), Duration::from_millis(90)];

/// Store calls of one delivery, begun in order, with their results in order.
pub(super) async fn pipelined<T>(calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(calls).buffered(PIPELINED).collect().await
}

/// One delivery's question to the store.
pub(super) struct Asking<'a> {
    pub(super) dedupe: &'a Dedupe,
    pub(super) keys: &'a DigestKeys,
    pub(super) owner: &'a Owner,
    pub(super) terms: Terms<'a>,
}

impl Asking<'_> {
    /// Claims what is new; waits for one event that runs elsewhere.
    pub(super) async fn begin(&self, ids: &[Identity], trail: &mut Trail) -> Result<Begin, StoreError> {
        let newest = self.keys.newest();
        let named: Vec<Named<'_>> = ids.iter().map(|id| Named::new(id, id.fingerprint(newest))).collect();
        if let Some(first) = named.first() {
            trail.fingerprint(&first.fingerprint.digest);
        }
        let [one] = named.as_slice() else {
            return self.claim_all(&named).await;
        };
        let found = self.claim(one).await?;
        if found.at.key != one.id.key {
            trail.known_as(found.at.key.readable());
        }
        match found.one {
            One::Claimed(held) => Ok(Begin::Fresh(vec![Item::First(held)])),
            One::Known(kept) => Ok(Begin::Replay(kept)),
            One::Mismatch(fields) => Ok(self.refuse(vec![one.stranger(found.at.key, fields)], true).await),
            One::Waits(reason) => Ok(Begin::Held { reason }),
            One::Busy(after, status) => self.wait(one, &found.at, after, status).await,
        }
    }

    /// One event: its claim with all its names, or what it gets instead. An event without other names costs one round trip, and so
    /// does a duplicate by its key; each new name is written in a second one.
    pub(super) async fn claim(&self, named: &Named<'_>) -> Result<Found, StoreError> {
        let started = Instant::now();
        let mut at = Place { key: named.id.key.clone(), by_body: false };
        let mut seen = Seen { current: None, now: Timestamp::default() };
        for hop in 0..HOPS_MAX {
            let held = match self.claim_at(&at, seen, named).await? {
                Step::Here(One::Claimed(held)) => held,
                Step::Here(one) => return Ok(Found { at, one }),
                Step::Follow(there) => {
                    (at, seen) = *there;
                    continue;
                }
            };
            match self.write_names(&held, named, started, hop > 0).await? {
                None => return Ok(Found { at, one: One::Claimed(held) }),
                Some(Step::Here(one)) => return Ok(Found { at, one }),
                Some(Step::Follow(there)) => (at, seen) = *there,
            }
        }
        Ok(Found { at, one: One::Busy(Duration::ZERO, Status::Processing) })
    }

    /// Decides at one key, from what was seen there, and claims it if that is what the machine says.
    async fn claim_at(&self, at: &Place, mut seen: Seen, named: &Named<'_>) -> Result<Step, StoreError> {
        // Each turn loses to another writer of this very key; a few in a row mean a storm, and the sender comes again.
        for _ in 0..8 {
            let plan = match &seen.current {
                Some(Record { state: State::Alias { of }, .. }) => {
                    match self.follow(&at.key, &seen, of, named).await? {
                        Ok(plan) => plan,
                        Err(step) => return Ok(step),
                    }
                }
                _ => match self.decide(&seen, named, at.by_body) {
                    Decision::Claim(plan) => plan,
                    decision => return Ok(Step::Here(self.settle(decision, &at.key, seen))),
                },
            };
            let fingerprint = adopted(&seen, named, at.by_body).unwrap_or(&named.fingerprint);
            let me = self.me(named, fingerprint);
            let draft = plan.draft(&me, self.dedupe.shared.floor.load(Ordering::Relaxed), self.terms.policy);
            let draft = Draft { request: self.terms.with_claim.clone(), ..draft };
            let since = Instant::now();
            match self.write_claim(&at.key, plan.expect, &draft).await? {
                Swap::Done(record) => {
                    self.dedupe.raise_floor(record.fence);
                    let before = seen.current.map(|record| record.state.status());
                    let before = before.filter(|status| *status != Status::Alias);
                    let held = Held { key: at.key.clone(), claim: Claim::of(&record), before, since };
                    return Ok(Step::Here(One::Claimed(Box::new(held))));
                }
                Swap::Refused(met) => seen = *met,
            }
        }
        Err(StoreError::new(StoreFault::Timeout, "the key changed under every write"))
    }

    /// A key that is itself another event's name (only a body can be both): the claim over it if it is free, else where it leads.
    async fn follow(
        &self,
        key: &ScopeKey,
        seen: &Seen,
        of: &ScopeKey,
        named: &Named<'_>,
    ) -> Result<Result<Plan, Step>, StoreError> {
        let at = self.dedupe.store.peek(of).await?;
        Ok(match seen.current.as_ref().map(|pointer| (pointer, on_pointer(pointer, at.current.as_ref(), at.now))) {
            Some((pointer, Standing::Free)) => Ok(claim_over(pointer)),
            Some((_, Standing::Until(end))) => Err(Step::Here(One::Busy(end.since(at.now), Status::Processing))),
            Some((_, Standing::Taken)) | None => Err(Step::Follow(Box::new((Place::by(key, of, named), at)))),
        })
    }

    pub(super) fn decide(&self, seen: &Seen, named: &Named<'_>, by_body: bool) -> Decision {
        let fingerprint = match adopted(seen, named, by_body) {
            Some(theirs) => Cow::Borrowed(theirs),
            None => self.fingerprint_for(seen, named),
        };
        on_request(seen.current.as_ref(), &self.me(named, &fingerprint), seen.now, self.terms.policy)
    }

    fn me<'a>(&'a self, named: &'a Named<'_>, fingerprint: &'a Fingerprint) -> Me<'a> {
        Me { owner: self.owner, fingerprint, plugin: &named.id.plugin, route: self.terms.route }
    }

    /// The claim's write. A connection that broke is tried again with the same owner: if an earlier write was applied, the next
    /// meets its own claim. When the outcome of one stays unknown, a task looks for the claim and gives it back.
    async fn write_claim(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let store = &self.dedupe.store;
        let mut result = store.swap(key, expect, draft).await;
        let mut in_doubt = result.as_ref().is_err_and(StoreError::may_be_applied);
        for pause in AGAIN_AFTER {
            // Only a claim that may stand is worth the wait for another connection.
            let again = pause.is_zero() || in_doubt;
            if !again || !result.as_ref().is_err_and(|error| error.kind == StoreFault::Unreachable) {
                break;
            }
            sleep(pause).await;
            result = store.swap(key, expect, draft).await;
            in_doubt |= result.as_ref().is_err_and(StoreError::may_be_applied);
        }
        if result.is_err() && in_doubt {
            self.dedupe.give_back_if_found(draft.owner.clone(), key.clone(), self.terms.policy.clone());
        }
        result
    }

    fn settle(&self, decision: Decision, key: &ScopeKey, seen: Seen) -> One {
        match decision {
            Decision::Replay { response, expires_at, compared } => One::Known(Kept { response, expires_at, compared }),
            Decision::Busy { until } => One::Busy(until.since(seen.now), status_of(&seen)),
            Decision::Mismatch { fields } => One::Mismatch(fields),
            Decision::Held { reason } => One::Waits(reason),
            Decision::Own | Decision::Claim(_) => match seen.current {
                Some(record) => {
                    self.dedupe.raise_floor(record.fence);
                    // When its write was asked for is not known here; that it holds is, as of now.
                    let (claim, since) = (Claim::of(&record), Instant::now());
                    One::Claimed(Box::new(Held { key: key.clone(), claim, before: None, since }))
                }
                None => One::Busy(Duration::ZERO, Status::Processing),
            },
        }
    }

    /// Waits for a running event's answer. A waiter only replays: if the event ends without an answer to replay, or does not
    /// end in time, the sender comes again.
    async fn wait(
        &self,
        named: &Named<'_>,
        at: &Place,
        mut after: Duration,
        mut status: Status,
    ) -> Result<Begin, StoreError> {
        let deadline = Instant::now() + self.terms.policy.in_flight.wait;
        let Some(waiter) = self.dedupe.shared.waiters.enter(&at.key.tenant, at.key.digest()) else {
            return Ok(Begin::Busy { after, status });
        };
        if let Some(place) = self.terms.place {
            place.give_up();
        }
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
            let Ok(seen) = self.dedupe.store.peek(&at.key).await else { continue };
            if matches!(&seen.current, Some(Record { state: State::Alias { .. }, .. })) {
                return Ok(Begin::Busy { after: Duration::ZERO, status: Status::Processing });
            }
            match self.decide(&seen, named, at.by_body) {
                Decision::Busy { until } => (after, status) = (until.since(seen.now), status_of(&seen)),
                Decision::Replay { response, expires_at, compared } => {
                    return Ok(Begin::Replay(Kept { response, expires_at, compared }));
                }
                Decision::Mismatch { fields } => {
                    return Ok(self.refuse(vec![named.stranger(at.key.clone(), fields)], true).await);
                }
                Decision::Held { reason } => return Ok(Begin::Held { reason }),
                Decision::Own | Decision::Claim(_) => {
                    return Ok(Begin::Busy { after: Duration::ZERO, status: status_of(&seen) });
                }
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
}

/// The record's own fingerprint, when its event was found by an equal raw body and one of the two is compared by fields, the other,
/// which came without a key, whole. All that both name must be equal still.
fn adopted<'s>(seen: &'s Seen, named: &Named<'_>, by_body: bool) -> Option<&'s Fingerprint> {
    let (theirs, ours) = (&seen.current.as_ref().filter(|_| by_body)?.fingerprint, &named.fingerprint);
    let is_whole = |fingerprint: &Fingerprint| fingerprint.field("$body").is_some();
    let agree = || theirs.fields.iter().all(|(name, digest)| ours.field(name).is_none_or(|other| other == digest));
    (theirs.key_id == ours.key_id && is_whole(theirs) != is_whole(ours) && agree()).then_some(theirs)
}

fn status_of(seen: &Seen) -> Status {
    seen.current.as_ref().map_or(Status::Processing, |record| record.state.status())
}

/// What one event gets, and under which key: its own, or the one that another of its names led to.
pub(super) struct Found {
    pub(super) at: Place,
    pub(super) one: One,
}

/// What one event gets.
pub(super) enum One {
    Claimed(Box<Held>),
    Known(Kept),
    Busy(Duration, Status),
    Mismatch(Vec<String>),
    Waits(UnknownReason),
}

/// Where a key or a name led.
pub(super) enum Step {
    /// This is what the event gets.
    Here(One),
    /// It is the event under this key, which held this a moment ago.
    Follow(Box<(Place, Seen)>),
}

/// An event's key, and how a delivery came to it.
pub(super) struct Place {
    pub(super) key: ScopeKey,
    /// By its raw body: what differs then is only how the two are written down.
    pub(super) by_body: bool,
}

impl Place {
    /// The event that one of its names leads to.
    pub(super) fn by(name: &ScopeKey, key: &ScopeKey, named: &Named<'_>) -> Self {
        let is_its_body = key.kind == KeyKind::Body && named.id.aliases.contains(key);
        Self { key: key.clone(), by_body: name.kind == KeyKind::Body || is_its_body }
    }
}
