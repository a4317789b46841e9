//! The stores: one contract for all of them, and what each must survive on its own.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

/// Makes a test of each promise for each store.
macro_rules! promises {
    ($($name:ident),+ $(,)?) => {
        promises!(@store memory $($name)+);
        promises!(@store sqlite $($name)+);
        promises!(@store redis $($name)+);
        promises!(@store cluster $($name)+);
        promises!(@store sentinel $($name)+);
        promises!(@store fronted $($name)+);
        promises!(@store postgres $($name)+);
    };
    (@store $store:ident $($name:ident)+) => {
        mod $store {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Bench::$store().await).await;
            })+
        }
    };
}

mod contract;
mod layered;
mod model;
mod people;
mod postgres;
mod postgres_faults;
mod redis;
mod redis_groups;
mod sqlite;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::event::{Fingerprint, KeyKind, PluginVersion, ScopeKey, StoredBody, StoredResponse};
use onceward::idempotency::record::Status;
use onceward::idempotency::{Draft, Expect, Fence, Lease, Owner, Record, Revision, State, Ttl};
use onceward::store::{Backend, Store, Stores, Swap};
use tempfile::TempDir;

use crate::support::postgres::Database;
use crate::support::redis::RedisServer;
use crate::support::redis_groups::{Cluster, Watched};

/// Longer than any call here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// A store under test, and what it stands on.
struct Bench {
    stores: Stores,
    _ground: Box<dyn std::any::Any + Send + Sync>,
}

impl Bench {
    async fn memory() -> Self {
        let stores = Stores::open(Backend::Memory, TIMEOUT).await.expect("memory opens");
        Self { stores, _ground: Box::new(()) }
    }

    async fn sqlite() -> Self {
        let directory = TempDir::new().expect("a directory");
        let backend = Backend::Sqlite(directory.path().join("records.db"));
        let stores = Stores::open(backend, TIMEOUT).await.expect("the file opens");
        Self { stores, _ground: Box::new(directory) }
    }

    /// SQLite with a Redis in front. Only a test that asks for the meta brings the front into use; `layered` holds the others.
    async fn fronted() -> Self {
        let (server, directory) = (RedisServer::start(), TempDir::new().expect("a directory"));
        let backend = Backend::Sqlite(directory.path().join("records.db"));
        let stores = Stores::open(backend, TIMEOUT).await.expect("the file opens");
        let stores = stores.behind(&server.url()).expect("the address is good");
        Self { stores, _ground: Box::new((server, directory)) }
    }

    async fn redis() -> Self {
        let server = RedisServer::start();
        let stores = Stores::open(Backend::Redis(server.url()), TIMEOUT).await.expect("the address is good");
        Self { stores, _ground: Box::new(server) }
    }

    async fn cluster() -> Self {
        let cluster = Cluster::start(&[]);
        let stores = Stores::open(Backend::Redis(cluster.url()), TIMEOUT).await.expect("the address is good");
        Self { stores, _ground: Box::new(cluster) }
    }

    async fn sentinel() -> Self {
        let watched = Watched::start();
        let stores = Stores::open(Backend::Redis(watched.url()), TIMEOUT).await.expect("the address is good");
        Self { stores, _ground: Box::new(watched) }
    }

    async fn postgres() -> Self {
        let database = Database::new();
        let stores = Stores::open(Backend::Postgres(database.url()), TIMEOUT).await.expect("the address is good");
        Self { stores, _ground: Box::new(database) }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.stores.handle()
    }
}

fn key(part: &str) -> ScopeKey {
    let parts = vec![part.to_owned()];
    ScopeKey { tenant: "acme".into(), scope: "pay".into(), namespace: String::new(), kind: KeyKind::Key, parts }
}

fn fingerprint(seed: u8) -> Fingerprint {
    let fields = vec![("$method".to_owned(), [seed; 16]), ("/amount".to_owned(), [seed ^ 0xff; 16])];
    Fingerprint { key_id: "k1".into(), digest: [seed; 32], fields }
}

fn claim(owner: &str, lease: Duration) -> Draft {
    Draft {
        state: State::Processing,
        fingerprint: fingerprint(7),
        owner: Owner(owner.into()),
        fence: Fence::Next { floor: 0 },
        attempt: 1,
        lease: Some(lease),
        ttl: Ttl::AtLeast(HOUR),
        released: false,
        ambiguous: false,
        error: None,
        plugin: PluginVersion { name: "json".into(), version: "1.0.0".into() },
        route: "stripe".into(),
        history: Vec::new(),
        request: None,
    }
}

fn heartbeat(owner: &str, lease: Duration) -> Draft {
    Draft { fence: Fence::Keep, ..claim(owner, lease) }
}

fn success(owner: &str, body: &'static [u8]) -> Draft {
    let headers = vec![("content-type".to_owned(), Bytes::from_static(b"application/json"))];
    let response = StoredResponse { status: 201, headers, body: StoredBody::Full(Bytes::from_static(body)) };
    Draft { state: State::Succeeded { response }, lease: None, ttl: Ttl::Exactly(HOUR), ..heartbeat(owner, HOUR) }
}

fn at(record: &Record, lease: Lease) -> Expect {
    Expect::At { revision: record.revision(), lease }
}

fn at_fence(fence: u64, status: Status, lease: Lease) -> Expect {
    Expect::At { revision: Revision { fence, status }, lease }
}

/// The record of a write that must have happened.
fn done(swap: Swap) -> Record {
    match swap {
        Swap::Done(record) => *record,
        Swap::Refused(seen) => unreachable!("refused over {seen:?}"),
    }
}

/// What stood in the way of a write that must not have happened.
fn refused(swap: Swap) -> Option<Record> {
    match swap {
        Swap::Refused(seen) => seen.current,
        Swap::Done(record) => unreachable!("written: {record:?}"),
    }
}

/// Waits for what comes about by itself, to a deadline, asking again and again.
async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
