//! Any store, with its calls measured.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use metrics::{Histogram, counter, histogram};

use crate::event::ScopeKey;
use crate::idempotency::{Draft, Expect};

use super::{Entry, Facts, Filter, Found, Listed, Meta, Seen, Store, StoreError, StoreFault, Swap};

/// A handle of a store that measures each call and counts each fault.
pub(super) struct Measured {
    store: Arc<dyn Store>,
    swap: Histogram,
    peek: Histogram,
    ping: Histogram,
    meta: Histogram,
    list: Histogram,
    find: Histogram,
    facts: Histogram,
}

impl Measured {
    /// Around a handle.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        for fault in [StoreFault::Unreachable, StoreFault::Timeout, StoreFault::Refused, StoreFault::Corrupt] {
            counter!("onceward_store_errors_total", "kind" => fault.as_str()).increment(0);
        }
        let seconds = |op: &'static str| histogram!("onceward_store_seconds", "op" => op);
        Self {
            store,
            swap: seconds("swap"),
            peek: seconds("peek"),
            ping: seconds("ping"),
            meta: seconds("meta"),
            list: seconds("list"),
            find: seconds("find"),
            facts: seconds("facts"),
        }
    }
}

async fn measured<T>(seconds: &Histogram, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let started = Instant::now();
    let result = call.await;
    seconds.record(started.elapsed());
    if let Err(error) = &result {
        counter!("onceward_store_errors_total", "kind" => error.kind.as_str()).increment(1);
    }
    result
}

#[async_trait]
impl Store for Measured {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        measured(&self.swap, self.store.swap(key, expect, draft)).await
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        measured(&self.peek, self.store.peek(key)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        measured(&self.ping, self.store.ping()).await
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        measured(&self.meta, self.store.meta(offer)).await
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        measured(&self.list, self.store.list(tenant, filter)).await
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        measured(&self.find, self.store.find(tenant, scope, readable_key)).await
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        measured(&self.facts, self.store.facts()).await
    }
}
