//! Several events of one delivery: all go on together, or none does.

use std::collections::HashMap;

use futures::FutureExt;
use tokio::time::Instant;

use crate::event::ScopeKey;
use crate::store::{StoreError, StoreFault};

use super::claiming::{Asking, Found, One, pipelined};
use super::dedupe::{Begin, Item};
use super::naming::Named;
use super::quarantine::Stranger;

impl Asking<'_> {
    /// Claims in key-hash order, pipelined, so that two deliveries of the same events cannot each hold half for long; undoes its
    /// claims when any event cannot go on, or when claiming took so long that the first leases are half over.
    pub(super) async fn claim_all(&self, named: &[Named<'_>]) -> Result<Begin, StoreError> {
        let started = Instant::now();
        let twins = Twins::of(named);
        if !twins.strangers.is_empty() {
            let strangers = twins.strangers.into_iter();
            let strangers = strangers.map(|(named, fields)| named.stranger(named.id.key.clone(), fields)).collect();
            return Ok(self.refuse(strangers, false).await);
        }
        let mut claiming = Vec::with_capacity(twins.leaders.len());
        for (_, one) in &twins.leaders {
            claiming.push(self.claim(one).boxed());
        }
        let mut claimed: Vec<Claimed<'_>> = Vec::with_capacity(named.len());
        let mut fault = None;
        for ((at, named), found) in twins.leaders.iter().zip(pipelined(claiming).await) {
            match found {
                Ok(Found { at: place, one }) => {
                    claimed.push(Claimed { at: *at, named, key: place.key, got: Got::One(one) });
                }
                Err(error) => fault = Some(error),
            }
        }
        if fault.is_none() && started.elapsed() > self.terms.policy.lease / 2 {
            fault = Some(StoreError::new(StoreFault::Timeout, "claiming took half of the lease"));
        }
        claimed.sort_by_key(|claimed| claimed.at);
        collapse(&mut claimed);
        let stop = self.worst(&claimed);
        if fault.is_some() || stop.is_some() {
            self.undo(&claimed).await;
        }
        match (stop, fault) {
            (Some(Stop::Mismatch(strangers)), _) => return Ok(self.refuse(strangers, false).await),
            (Some(Stop::Begin(begin)), _) => return Ok(begin),
            (None, Some(error)) => return Err(error),
            (None, None) => {}
        }
        let mut items: Vec<(usize, Item)> = claimed.into_iter().filter_map(Claimed::into_item).collect();
        items.extend(twins.repeats.into_iter().map(|at| (at, Item::Repeat)));
        items.sort_by_key(|(at, _)| *at);
        let items: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
        match items.first() {
            Some(Item::Known(kept)) if !items.iter().any(|item| matches!(item, Item::First(_))) => {
                Ok(Begin::Replay(kept.clone()))
            }
            _ => Ok(Begin::Fresh(items)),
        }
    }

    /// What decides a request that cannot go on: a mismatch before a held event before a busy one.
    fn worst(&self, claimed: &[Claimed<'_>]) -> Option<Stop> {
        let strangers: Vec<_> = claimed.iter().filter_map(Claimed::stranger).collect();
        if !strangers.is_empty() {
            return Some(Stop::Mismatch(strangers));
        }
        let ones =
            || claimed.iter().filter_map(|claimed| if let Got::One(one) = &claimed.got { Some(one) } else { None });
        let held = ones().find_map(|one| match one {
            One::Waits(reason) => Some(Begin::Held { reason: *reason }),
            _ => None,
        });
        let busy = ones().find_map(|one| match one {
            One::Busy(after, status) => Some(Begin::Busy { after: *after, status: *status }),
            _ => None,
        });
        held.or(busy).map(Stop::Begin)
    }

    async fn undo(&self, claimed: &[Claimed<'_>]) {
        let mut undoing = Vec::new();
        for claimed in claimed {
            if let Got::One(One::Claimed(held)) = &claimed.got {
                let why = "another event of the same request could not be claimed";
                undoing.push(self.dedupe.give_back(held, why, self.terms.policy).boxed());
            }
        }
        pipelined(undoing).await;
    }
}

/// Two events of a delivery that turned out to be one, by a name that only the store knows to be the other's: the claim is the
/// first one's. If they are not the same event after all, the second is a stranger.
fn collapse(claimed: &mut [Claimed<'_>]) {
    let mut claims: HashMap<ScopeKey, &Named<'_>> = HashMap::new();
    for claimed in claimed {
        if !matches!(claimed.got, Got::One(One::Claimed(_))) {
            continue;
        }
        match claims.get(&claimed.key) {
            None => {
                claims.insert(claimed.key.clone(), claimed.named);
            }
            Some(first) if first.fingerprint.digest == claimed.named.fingerprint.digest => claimed.got = Got::Repeat,
            Some(first) => {
                let fields = claimed.named.fingerprint.differing(&first.fingerprint);
                claimed.got = Got::One(One::Mismatch(fields));
            }
        }
    }
}

/// Why nothing of a request goes on.
enum Stop {
    Mismatch(Vec<Stranger>),
    Begin(Begin),
}

/// One event of a delivery after it was asked for.
struct Claimed<'a> {
    /// Its place in the delivery.
    at: usize,
    named: &'a Named<'a>,
    key: ScopeKey,
    got: Got,
}

/// What it got.
enum Got {
    One(One),
    Repeat,
}

impl Claimed<'_> {
    fn stranger(&self) -> Option<Stranger> {
        match &self.got {
            Got::One(One::Mismatch(fields)) => Some(self.named.stranger(self.key.clone(), fields.clone())),
            _ => None,
        }
    }

    fn into_item(self) -> Option<(usize, Item)> {
        let item = match self.got {
            Got::One(One::Claimed(held)) => Item::First(held),
            Got::One(One::Known(kept)) => Item::Known(kept),
            Got::Repeat => Item::Repeat,
            Got::One(One::Busy(..) | One::Mismatch(_) | One::Waits(_)) => return None,
        };
        Some((self.at, item))
    }
}

/// A delivery's events by key: the first of each key in key-hash order, the repeats, and who is another event under a key.
struct Twins<'a> {
    leaders: Vec<(usize, &'a Named<'a>)>,
    repeats: Vec<usize>,
    strangers: Vec<(&'a Named<'a>, Vec<String>)>,
}

impl<'a> Twins<'a> {
    fn of(named: &'a [Named<'a>]) -> Self {
        let mut order: Vec<(usize, &Named<'_>)> = named.iter().enumerate().collect();
        order.sort_by_cached_key(|(at, named)| (named.id.key.digest(), *at));
        let mut twins = Self { leaders: Vec::new(), repeats: Vec::new(), strangers: Vec::new() };
        for (at, named) in order {
            match twins.leaders.last() {
                Some((_, first)) if first.id.key == named.id.key => {
                    if first.fingerprint.digest == named.fingerprint.digest {
                        twins.repeats.push(at);
                    } else {
                        twins.strangers.push((named, named.fingerprint.differing(&first.fingerprint)));
                    }
                }
                _ => twins.leaders.push((at, named)),
            }
        }
        twins
    }
}
