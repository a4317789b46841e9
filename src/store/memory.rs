//! Records in this process alone, for development and tests: they end with it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::event::{KeyKind, ScopeKey, Timestamp};
use crate::idempotency::{Draft, Expect, Record};

use super::clock::WallClock;
use super::{Entry, Facts, Filter, Found, Listed, Meta, Role, Seen, Store, StoreError, Swap};

/// How many expired records a write takes along. Above one, so that sweeping outruns writing.
const SWEEP_PER_WRITE: usize = 2;

/// The reference back-end: a map and the machine's clock.
#[derive(Default)]
pub struct Memory {
    clock: WallClock,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    records: HashMap<Arc<ScopeKey>, Record>,
    /// Every record once, soonest end first, so that sweeping never walks the living.
    ends: BTreeSet<(Timestamp, Arc<ScopeKey>)>,
    meta: Option<Meta>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A std mutex: it is held for a map access and never across an await. A panic elsewhere cannot leave the shelf half-written,
    /// since nothing in here panics between its two indexes.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn standing(&self, key: &ScopeKey, now: Timestamp) -> Option<&Record> {
        self.records.get(key).filter(|record| record.expires_at > now)
    }

    fn put(&mut self, key: &ScopeKey, record: Record) {
        let key = self.records.get_key_value(key).map_or_else(|| Arc::new(key.clone()), |(key, _)| key.clone());
        if let Some(old) = self.records.get(&key) {
            self.ends.remove(&(old.expires_at, key.clone()));
        }
        self.ends.insert((record.expires_at, key.clone()));
        self.records.insert(key, record);
    }

    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEEP_PER_WRITE {
            match self.ends.pop_first() {
                Some((end, key)) if end <= now => {
                    self.records.remove(&key);
                }
                Some(living) => {
                    self.ends.insert(living);
                    return;
                }
                None => return,
            }
        }
    }
}

#[async_trait]
impl Store for Memory {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let mut shelf = self.shelf();
        // Read under the lock, so that the order of times is the order of writes.
        let now = self.clock.now();
        shelf.sweep(now);
        let standing = shelf.standing(key, now);
        if !expect.holds(standing, now) {
            return Ok(Swap::Refused(Box::new(Seen { current: standing.cloned(), now })));
        }
        let record = draft.stamp(now, standing);
        shelf.put(key, record.clone());
        Ok(Swap::Done(Box::new(record)))
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        let shelf = self.shelf();
        let now = self.clock.now();
        Ok(Seen { current: shelf.standing(key, now).cloned(), now })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        let mut shelf = self.shelf();
        let made = shelf.meta.is_none();
        Ok(Found { meta: shelf.meta.get_or_insert(offer).clone(), made })
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        let shelf = self.shelf();
        let now = self.clock.now();
        let living = shelf.records.iter().filter(|(key, record)| key.tenant == tenant && record.expires_at > now);
        let mut entries: Vec<Entry> = living
            .filter(|(_, record)| filter.holds(record))
            .map(|(key, record)| Entry { key: ScopeKey::clone(key), record: record.clone() })
            .collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.record.started_at));
        let more = entries.len() > filter.limit;
        entries.truncate(filter.limit);
        Ok(Listed { entries, more, now })
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        let shelf = self.shelf();
        let now = self.clock.now();
        let named = shelf.records.iter().filter(|(key, record)| {
            let event = matches!(key.kind, KeyKind::Key | KeyKind::Body);
            event
                && key.tenant == tenant
                && key.scope == scope
                && record.expires_at > now
                && key.readable_key() == readable_key
        });
        Ok(named.map(|(key, record)| Entry { key: ScopeKey::clone(key), record: record.clone() }).collect())
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        Ok(Facts {
            software: "memory",
            version: String::new(),
            instance: String::new(),
            role: Role::Primary,
            eviction: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{Fingerprint, PluginVersion};
    use crate::idempotency::{Fence, Owner, State, Ttl};

    fn key(part: usize) -> ScopeKey {
        let parts = vec![part.to_string()];
        ScopeKey { tenant: "t".into(), scope: "s".into(), namespace: String::new(), kind: KeyKind::Key, parts }
    }

    fn claim(ttl: Duration) -> Draft {
        Draft {
            state: State::Processing,
            fingerprint: Fingerprint { key_id: "k".into(), digest: [0; 32], fields: Vec::new() },
            owner: Owner("o".into()),
            fence: Fence::Next { floor: 0 },
            attempt: 1,
            lease: None,
            ttl: Ttl::Exactly(ttl),
            released: false,
            ambiguous: false,
            error: None,
            plugin: PluginVersion::default(),
            route: String::new(),
            history: Vec::new(),
            request: None,
        }
    }

    /// What has expired does not pile up, and what lives is never swept.
    #[tokio::test]
    async fn memory_is_bounded_by_what_lives() {
        let store = Memory::new();
        for part in 0..500 {
            store.swap(&key(part), Expect::Absent, &claim(Duration::ZERO)).await.expect("memory answers");
        }
        for part in 500..900 {
            store.swap(&key(part), Expect::Absent, &claim(Duration::from_hours(1))).await.expect("memory answers");
        }
        let shelf = store.shelf();
        assert_eq!((shelf.records.len(), shelf.ends.len()), (400, 400));
    }

    /// At the very microsecond of its end a record is gone.
    #[tokio::test]
    async fn the_end_itself_is_over() {
        let store = Memory::new();
        let claim = claim(Duration::from_hours(1));
        let Swap::Done(record) = store.swap(&key(1), Expect::Absent, &claim).await.expect("memory answers") else {
            unreachable!("nothing stood there");
        };
        let (end, shelf) = (record.expires_at, store.shelf());
        assert_eq!(shelf.standing(&key(1), end), None);
        assert_eq!(shelf.standing(&key(1), Timestamp::from_micros(end.as_micros() - 1)), Some(&*record));
    }
}
