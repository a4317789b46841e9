//! The other names of an event that is claimed. Nobody forwards unless his claim stands and every name points at it, written by this
//! very claim: so of two deliveries which share a name at most one does.
//!
//! Why that holds: a name is written after its event is claimed. A rival who reads the name, then finds the event free, and then
//! takes the name at the revision that he read, has either come before the claim (then the claimant meets the rival's name), or finds
//! the name changed, since a claimant rewrites even a name that points at him already.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep};

use crate::event::{Fingerprint, KeyKind, ScopeKey};
use crate::idempotency::alias::{Standing, on_pointer, over, pointer};
use crate::idempotency::record::Status;
use crate::idempotency::{Decision, Draft, Expect, Record, State};
use crate::store::{Seen, StoreError, StoreFault, Swap};

use super::claiming::{Asking, One, Place, Step, pipelined};
use super::dedupe::Held;
use super::identity::Identity;
use super::quarantine::Stranger;

/// How often a name is looked at before the sender is told to come again.
const LOOKS_MAX: usize = 32;

/// How long a claimant waits for a rival to yield whose claim crossed his.
const CROSSED_WAIT: Duration = Duration::from_millis(250);

/// How often he looks meanwhile.
const CROSSED_LOOK: Duration = Duration::from_millis(20);

/// An event's identity with what it is compared by, computed once.
pub(super) struct Named<'a> {
    pub(super) id: &'a Identity,
    /// Under the newest of the digest keys.
    pub(super) fingerprint: Fingerprint,
}

impl<'a> Named<'a> {
    pub(super) fn new(id: &'a Identity, fingerprint: Fingerprint) -> Self {
        Self { id, fingerprint }
    }

    /// This event as one that came under another one's key.
    pub(super) fn stranger(&self, key: ScopeKey, fields: Vec<String>) -> Stranger {
        Stranger { key, fields, fingerprint: self.fingerprint.clone(), plugin: self.id.plugin.clone() }
    }

    /// The names that must point at `primary`. A body that is an event's own key is a name too once the event is found elsewhere.
    fn names(&self, primary: &ScopeKey) -> impl Iterator<Item = &'a ScopeKey> {
        let own = Some(&self.id.key).filter(|key| key.kind == KeyKind::Body);
        own.into_iter().chain(&self.id.aliases).filter(move |name| *name != primary)
    }
}

/// A name's end.
enum Pointed {
    /// It points at the claim.
    Here,
    /// Its event is another one, which held this a moment ago.
    Elsewhere(Box<(Place, Seen)>),
    /// Nobody can say yet.
    Busy(Duration),
}

impl Asking<'_> {
    /// Makes all other names of a claimed event point at it. When one is another event's, the claim is given back and that event is
    /// what the delivery is about. Names that are written already may stay: what they point at is free.
    pub(super) async fn write_names(
        &self,
        held: &Held,
        named: &Named<'_>,
        started: Instant,
        moved: bool,
    ) -> Result<Option<Step>, StoreError> {
        let pointing: Vec<_> =
            named.names(&held.key).map(|name| self.point(name, held, named, moved).boxed()).collect();
        if pointing.is_empty() {
            return Ok(None);
        }
        let ends: Result<Vec<Pointed>, StoreError> = pipelined(pointing).await.into_iter().collect();
        // Of a lease that is half over too little is left to be sure of the forward's first renewal.
        let ends = ends.and_then(|ends| match started.elapsed() > self.terms.policy.lease / 2 {
            true => Err(StoreError::new(StoreFault::Timeout, "claiming took half of the lease")),
            false => Ok(ends),
        });
        let stop = match ends {
            Ok(ends) => ends.into_iter().find(|end| !matches!(end, Pointed::Here)),
            Err(error) => {
                self.dedupe.give_back(held, "a name of the event could not be claimed", self.terms.policy).await;
                return Err(error);
            }
        };
        let (why, step) = match stop {
            None | Some(Pointed::Here) => return Ok(None),
            Some(Pointed::Elsewhere(place)) => (format!("the same event as {}", place.0.key), Step::Follow(place)),
            Some(Pointed::Busy(after)) => {
                ("a name of the event is not free yet".to_owned(), Step::Here(One::Busy(after, Status::Processing)))
            }
        };
        self.dedupe.give_back(held, &why, self.terms.policy).await;
        Ok(Some(step))
    }

    /// Makes one name point at the claim, unless it is another event's.
    async fn point(&self, name: &ScopeKey, held: &Held, named: &Named<'_>, moved: bool) -> Result<Pointed, StoreError> {
        let draft =
            pointer(&held.claim, &held.key, self.dedupe.shared.floor.load(Ordering::Relaxed), self.terms.policy);
        let mut expect = Some(Expect::Absent);
        let patience = Instant::now() + CROSSED_WAIT.min(self.terms.policy.lease / 4);
        for _ in 0..LOOKS_MAX {
            let met = match expect {
                Some(expect) => match self.write_name(name, expect, &draft).await? {
                    Swap::Done(record) => {
                        self.dedupe.raise_floor(record.fence);
                        return Ok(Pointed::Here);
                    }
                    Swap::Refused(met) => *met,
                },
                None => self.dedupe.store.peek(name).await?,
            };
            let Some(found) = met.current.clone() else {
                expect = Some(Expect::Absent);
                continue;
            };
            let (at, seen) = match &found.state {
                // Rewritten, and not taken as it is: a rival may have read it while this event was free.
                State::Alias { of } if *of == held.key => {
                    expect = Some(over(&found));
                    continue;
                }
                State::Alias { of } => (Place::by(name, of, named), self.dedupe.store.peek(of).await?),
                // A body that is an event's own key.
                _ => (Place::by(name, name, named), met),
            };
            expect = match on_pointer(&found, seen.current.as_ref(), seen.now) {
                Standing::Free => Some(over(&found)),
                Standing::Until(end) => return Ok(Pointed::Busy(end.since(seen.now))),
                Standing::Taken => match self.rival(&at, &seen, held, named, moved) {
                    Rival::Yields if Instant::now() < patience => {
                        sleep(CROSSED_LOOK).await;
                        None
                    }
                    Rival::Beaten if at.key != *name => Some(over(&found)),
                    _ => return Ok(Pointed::Elsewhere(Box::new((at, seen)))),
                },
            };
        }
        Ok(Pointed::Busy(Duration::ZERO))
    }

    /// A name's write, tried once more over a connection that broke. One that is applied late does no harm: it points at a claim
    /// that was given back.
    async fn write_name(&self, name: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        match self.dedupe.store.swap(name, expect, draft).await {
            Err(error) if error.kind == StoreFault::Unreachable => self.dedupe.store.swap(name, expect, draft).await,
            result => result,
        }
    }

    /// What the other event does when both claims want a name.
    fn rival(&self, at: &Place, seen: &Seen, held: &Held, named: &Named<'_>, moved: bool) -> Rival {
        let state = seen.current.as_ref().map(|record: &Record| record.state.status());
        match (self.decide(seen, named, at.by_body), state) {
            // It meets this claim as this one meets it, and of two keys the larger yields. If it has met nothing, it stays.
            (Decision::Busy { .. } | Decision::Own, Some(Status::Processing))
                if at.key.digest() > held.key.digest() =>
            {
                Rival::Yields
            }
            // The delivery's names lead to two events, and it was at the other one before: that did not get through either.
            (Decision::Claim(_), Some(Status::Failed)) if moved => Rival::Beaten,
            _ => Rival::Stays,
        }
    }
}

/// See [`Asking::rival`].
enum Rival {
    Yields,
    Beaten,
    Stays,
}
