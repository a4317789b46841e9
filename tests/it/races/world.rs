//! A store whose calls take their time, and a log of all forwards: what a schedule of deliveries is judged by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use onceward::event::{KeyKind, ScopeKey};
use onceward::idempotency::{Draft, Expect, State};
use onceward::store::{Entry, Facts, Filter, Found, Listed, Memory, Meta, Seen, Store, StoreError, StoreFault, Swap};
use tokio::sync::Notify;

/// Numbers that follow from a seed.
pub struct Dice(Mutex<u64>);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    /// Below `sides`.
    pub fn roll(&self, sides: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % sides
    }

    pub async fn pause(&self, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.roll(most_ms + 1))).await;
    }
}

/// Memory whose calls wait before and after they happen, so that those of several deliveries meet in any order; and which sometimes
/// fails, before or after.
pub struct Slow {
    inner: Memory,
    pub dice: Arc<Dice>,
    /// One call in so many fails; 0: none.
    pub faults: Mutex<u64>,
    /// When the lease of a claim ends, by its fence: not later than the store thinks.
    leases: Mutex<HashMap<(ScopeKey, u64), Instant>>,
    /// Where the next write over a standing name waits.
    gate: Mutex<Option<Arc<Gate>>>,
}

/// A place where one call waits until it is let go.
#[derive(Default)]
pub struct Gate {
    /// Told when the call is there.
    pub reached: Notify,
    /// Tells it to go on.
    pub open: Notify,
}

impl Slow {
    pub fn new(dice: Arc<Dice>, faults: u64) -> Self {
        Self {
            inner: Memory::new(),
            dice,
            faults: Mutex::new(faults),
            leases: Mutex::default(),
            gate: Mutex::default(),
        }
    }

    /// Holds the next write over a name that stands.
    pub fn hold_takeover(&self) -> Arc<Gate> {
        let gate = Arc::<Gate>::default();
        *self.gate.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }

    pub fn lease_end(&self, key: &ScopeKey, fence: u64) -> Instant {
        self.leases.lock().unwrap()[&(key.clone(), fence)]
    }

    async fn fault(&self) -> Result<(), StoreError> {
        // At once or after a while, so that one delivery may make several calls between two of another.
        let most = if self.dice.roll(2) == 0 { 0 } else { 12 };
        self.dice.pause(most).await;
        let faults = *self.faults.lock().unwrap();
        if faults > 0 && self.dice.roll(faults) == 0 {
            let kind = if self.dice.roll(2) == 0 { StoreFault::Timeout } else { StoreFault::Unreachable };
            return Err(StoreError::new(kind, "by lot"));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Slow {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        self.fault().await?;
        let takeover = key.kind == KeyKind::Alias && expect != Expect::Absent;
        let gate = if takeover { self.gate.lock().unwrap().take() } else { None };
        if let Some(gate) = gate {
            gate.reached.notify_one();
            gate.open.notified().await;
        }
        let before = Instant::now();
        let swap = self.inner.swap(key, expect, draft).await?;
        if let (Swap::Done(record), State::Processing, Some(lease)) = (&swap, &draft.state, draft.lease) {
            self.leases.lock().unwrap().insert((key.clone(), record.fence), before + lease);
        }
        self.fault().await?;
        Ok(swap)
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        self.fault().await?;
        let seen = self.inner.peek(key).await?;
        self.fault().await?;
        Ok(seen)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        self.inner.meta(offer).await
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        self.inner.list(tenant, filter).await
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        self.inner.find(tenant, scope, readable_key).await
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        self.inner.facts().await
    }
}

/// How a forward ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its outcome binds nobody: nothing was sent, or it failed for certain.
    Free,
    /// It succeeded, and the store has it.
    Kept,
    /// Nobody may forward before its lease is over: it vanished, or nobody knows, or the store does not.
    Unsure,
}

/// One forward.
#[derive(Clone, Debug)]
pub struct Forward {
    /// All names of the events that it was for.
    pub names: Vec<ScopeKey>,
    pub began: Instant,
    pub lease_end: Instant,
    pub end: End,
    /// When its outcome's write began.
    pub ended: Option<Instant>,
}

/// Two forwards of one event that may not both have been.
pub fn crime(forwards: &[Forward]) -> Option<(Forward, Forward)> {
    let mut order = forwards.to_vec();
    order.sort_by_key(|forward| forward.began);
    for (at, first) in order.iter().enumerate() {
        for second in &order[at + 1..] {
            if !first.names.iter().any(|name| second.names.contains(name)) {
                continue;
            }
            let allowed = match first.end {
                End::Free => first.ended.is_some_and(|ended| second.began >= ended),
                End::Unsure => second.began >= first.lease_end,
                End::Kept => false,
            };
            if !allowed {
                return Some((first.clone(), second.clone()));
            }
        }
    }
    None
}
