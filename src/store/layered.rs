//! A Redis in front of a SQL store: it answers what it knows to be final, the SQL store decides everything else.
//!
//! Invariant: nothing is ever claimed or written by the front alone, so the loss of all that it holds costs speed only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::event::ScopeKey;
use crate::idempotency::record::Status;
use crate::idempotency::{Draft, Expect, Record, State};

use super::{Entry, Facts, Filter, Found, Listed, Meta, Redis, Seen, Store, StoreError, StoreFault, Swap};

/// The longest that a call waits for the front. One such wait closes the front until it answers again.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long what runs beside the calls may take: connecting, and putting copies. So long a call waits too when the SQL store has
/// failed it: a slow answer from the front is then better than none.
const BESIDE: Duration = Duration::from_secs(1);

/// Between two looks at a front that did not answer.
const PAUSE: Duration = Duration::from_millis(250);

/// A SQL store with a front. One a core: the front's connection lives where it is used.
pub struct Layered {
    sql: Arc<dyn Store>,
    front: Arc<Front>,
    epoch: Epoch,
}

/// The SQL store's epoch, once it is known. It is part of every copy's name: a store that was made anew meets no copy of the old.
type Epoch = Arc<Mutex<Option<Arc<str>>>>;

struct Front {
    redis: Redis,
    /// It answered the last time.
    open: AtomicBool,
    /// A task looks whether it answers again.
    watched: AtomicBool,
}

impl Layered {
    /// A store with a front at a Redis address. Connects when first used; a front that is down is no fault.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn new(sql: Arc<dyn Store>, front: &str) -> Result<Self, redis::RedisError> {
        Ok(Self::over(sql, Redis::new(front, BESIDE)?, Epoch::default()))
    }

    /// A further handle, with a connection of its own to the front.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::over(self.sql.clone(), self.front.redis.another(), self.epoch.clone())
    }

    fn over(sql: Arc<dyn Store>, redis: Redis, epoch: Epoch) -> Self {
        let front = Front { redis, open: AtomicBool::new(false), watched: AtomicBool::new(false) };
        Self { sql, front: Arc::new(front), epoch }
    }

    /// A copy's name; none until the store's epoch is known.
    fn name(&self, key: &ScopeKey) -> Option<String> {
        let epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(format!("onceward:front:{epoch}:{}", hex::encode(key.digest())))
    }

    /// What the front knows to be final, asked once more after the SQL store has failed.
    async fn known_after_all(&self, key: &ScopeKey, error: StoreError) -> Result<Seen, StoreError> {
        if !matches!(error.kind, StoreFault::Unreachable | StoreFault::Timeout) {
            return Err(error);
        }
        // Whether it was closed does not count: that may have been one slow answer a moment ago.
        let Some(name) = self.name(key) else { return Err(error) };
        match tokio::time::timeout(BESIDE, self.front.redis.copy(&name)).await {
            Ok(Ok(seen)) if seen.current.as_ref().is_some_and(is_final) => Ok(seen),
            _ => Err(error),
        }
    }

    /// What the front knows to be final, if it says so at once.
    async fn known(&self, key: &ScopeKey) -> Option<Seen> {
        let name = self.name(key)?;
        if !self.front.open.load(Ordering::Relaxed) {
            self.front.watch();
            return None;
        }
        match tokio::time::timeout(PATIENCE, self.front.redis.copy(&name)).await {
            Ok(Ok(seen)) => seen.current.as_ref().is_some_and(is_final).then_some(seen),
            Ok(Err(error)) if error.kind == StoreFault::Corrupt => {
                tracing::warn!(%error, "a copy in the front is ignored and taken away");
                let front = self.front.clone();
                tokio::spawn(async move { front.redis.drop_copy(&name).await });
                None
            }
            Ok(Err(_)) | Err(_) => {
                self.front.close();
                None
            }
        }
    }

    /// Copies what the SQL store said, beside the call.
    fn copy(&self, key: &ScopeKey, record: &Record) {
        if !is_final(record) || !self.front.open.load(Ordering::Relaxed) {
            return;
        }
        if let Some(name) = self.name(key) {
            let (front, record) = (self.front.clone(), record.clone());
            tokio::spawn(async move {
                if front.redis.put_copy(&name, &record, true).await.is_err() {
                    front.close();
                }
            });
        }
    }

    /// A write over a success, which a person takes back. The front is told first: were it out of reach, it would go on to answer
    /// with the old success until its window ends, so then nothing is written.
    async fn take_back(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let seen = self.sql.peek(key).await?;
        let standing = match &seen.current {
            Some(record) if expect.holds(Some(record), seen.now) => record,
            _ => return Ok(Swap::Refused(Box::new(seen))),
        };
        // Nobody takes this for final; nor does a late copy of the success replace it.
        let marker = Record { released: true, ..standing.clone() };
        let untold = |why: &dyn std::fmt::Display| {
            StoreError::new(StoreFault::Refused, format_args!("the front cannot be told, try again: {why}"))
        };
        let name = self.name(key).ok_or_else(|| untold(&"the store's epoch is not known yet"))?;
        if let Err(error) = self.front.redis.put_copy(&name, &marker, false).await {
            self.front.close();
            return Err(untold(&error));
        }
        self.sql.swap(key, expect, draft).await
    }
}

impl Front {
    /// Leaves the front out until it answers again.
    fn close(self: &Arc<Self>) {
        self.open.store(false, Ordering::Relaxed);
        self.watch();
    }

    /// Looks, beside the calls, until the front answers. Connecting takes longer than a call may wait.
    fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let front = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(front) = front.upgrade() {
                if front.redis.copy("onceward:front").await.is_ok() {
                    front.open.store(true, Ordering::Relaxed);
                    front.watched.store(false, Ordering::Relaxed);
                    return;
                }
                drop(front);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// Whether a record stays as it is until its window ends.
fn is_final(record: &Record) -> bool {
    matches!(record.state, State::Succeeded { .. }) && !record.released
}

#[async_trait]
impl Store for Layered {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        if expect == Expect::Absent
            && let Some(seen) = self.known(key).await
        {
            return Ok(Swap::Refused(Box::new(seen)));
        }
        if matches!(expect, Expect::At { revision, .. } if revision.status == Status::Succeeded) {
            return self.take_back(key, expect, draft).await;
        }
        let swap = match self.sql.swap(key, expect, draft).await {
            // Whether the write was applied or not, it was not applied over a final record.
            Err(error) if expect == Expect::Absent => {
                return self.known_after_all(key, error).await.map(|seen| Swap::Refused(Box::new(seen)));
            }
            swapped => swapped?,
        };
        match &swap {
            Swap::Done(record) => self.copy(key, record),
            Swap::Refused(seen) => seen.current.iter().for_each(|record| self.copy(key, record)),
        }
        Ok(swap)
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        if let Some(seen) = self.known(key).await {
            return Ok(seen);
        }
        let seen = match self.sql.peek(key).await {
            Ok(seen) => seen,
            Err(error) => return self.known_after_all(key, error).await,
        };
        seen.current.iter().for_each(|record| self.copy(key, record));
        Ok(seen)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.sql.ping().await
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        let found = self.sql.meta(offer).await?;
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.meta.epoch.as_str().into());
        Ok(found)
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        self.sql.list(tenant, filter).await
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        self.sql.find(tenant, scope, readable_key).await
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        self.sql.facts().await
    }
}
