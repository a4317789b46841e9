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
        promises!(@store sealed $($name)+);
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
use onceward::event::{Fingerprint, KeyKind, PluginVersion, ScopeKey, Secret, StoredBody, StoredResponse};
use onceward::idempotency::record::Status;
use onceward::idempotency::{Draft, Expect, Fence, Lease, Owner, Record, Revision, State, Ttl};
use onceward::store::{Backend, Meta, SealedStores, SealingKeys, Store, Stores, Swap};
use tempfile::TempDir;

use crate::support::postgres::Database;
use crate::support::redis::RedisServer;
use crate::support::redis_groups::{Cluster, Watched};

/// Longer than any call here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// A store under test, and what it stands on.
struct Bench {
    handle: Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    /// Whether the store has its meta record already.
    has_meta: bool,
    _ground: Box<dyn std::any::Any + Send + Sync>,
}

impl Bench {
    async fn memory() -> Self {
        Self::over(Backend::Memory, ()).await
    }

    async fn sqlite() -> Self {
        let directory = TempDir::new().expect("a directory");
        Self::over(Backend::Sqlite(directory.path().join("records.db")), directory).await
    }

    /// SQLite with a Redis in front, which is in use.
    async fn fronted() -> Self {
        let (server, directory) = (RedisServer::start(), TempDir::new().expect("a directory"));
        let backend = Backend::Sqlite(directory.path().join("records.db"));
        let stores = Stores::open(backend, TIMEOUT).await.expect("the file opens");
        let stores = stores.behind(&server.url()).expect("the address is good");
        // The epoch makes the copies' names; a front is asked once it has answered beside a call.
        let warm = stores.handle();
        warm.meta(Meta { epoch: "epoch".into(), digest_key: [1; 32] }).await.expect("an answer");
        let other = ScopeKey { tenant: "warm".into(), ..key("k") };
        done(warm.swap(&other, Expect::Absent, &success("a", b"")).await.expect("an answer"));
        eventually("the front has a copy", async || {
            warm.peek(&other).await.expect("an answer");
            (!server.cli(&["--scan", "--pattern", "onceward:front:epoch:*"]).is_empty()).then_some(())
        })
        .await;
        // A handle belongs to one runtime: what runs on another one takes the front for slow, and goes on without it.
        Self { handle: Box::new(move || warm.clone()), has_meta: true, _ground: Box::new((server, directory)) }
    }

    /// SQLite below a seal.
    async fn sealed() -> Self {
        let directory = TempDir::new().expect("a directory");
        let backend = Backend::Sqlite(directory.path().join("records.db"));
        let stores = Stores::open(backend, TIMEOUT).await.expect("the file opens");
        let stores = SealedStores::new(stores, SealingKeys::new(&[Secret::new("a key of this test")]));
        Self { handle: Box::new(move || stores.handle()), has_meta: false, _ground: Box::new(directory) }
    }

    async fn redis() -> Self {
        let server = RedisServer::start();
        Self::over(Backend::Redis(server.url()), server).await
    }

    async fn cluster() -> Self {
        let cluster = Cluster::start(&[]);
        Self::over(Backend::Redis(cluster.url()), cluster).await
    }

    async fn sentinel() -> Self {
        let watched = Watched::start();
        Self::over(Backend::Redis(watched.url()), watched).await
    }

    async fn postgres() -> Self {
        let database = Database::new();
        Self::over(Backend::Postgres(database.url()), database).await
    }

    async fn over(backend: Backend, ground: impl std::any::Any + Send + Sync) -> Self {
        let stores = Stores::open(backend, TIMEOUT).await.expect("the store opens");
        Self { handle: Box::new(move || stores.handle()), has_meta: false, _ground: Box::new(ground) }
    }

    fn store(&self) -> Arc<dyn Store> {
        (self.handle)()
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
