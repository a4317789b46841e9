//! A front over a SQL store: it makes replays cheaper, and its loss, its delay and its lies change no answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::idempotency::record::Status;
use onceward::idempotency::{Draft, Expect, Lease, Ttl};
use onceward::store::{Backend, Meta, Store, Stores};
use tempfile::TempDir;

use super::{HOUR, TIMEOUT, at, at_fence, claim, done, eventually, heartbeat, key, refused, success};
use crate::support::redis::RedisServer;

struct Layers {
    redis: RedisServer,
    directory: TempDir,
    store: Arc<dyn Store>,
}

async fn layers() -> Layers {
    let (redis, directory) = (RedisServer::start(), TempDir::new().expect("a directory"));
    let backend = Backend::Sqlite(directory.path().join("records.db"));
    let stores = Stores::open(backend, TIMEOUT).await.expect("the file opens");
    let stores = stores.behind(&redis.url()).expect("the address is good");
    let store = stores.handle();
    store.meta(Meta { epoch: "epoch".into(), digest_key: [1; 32] }).await.expect("an answer");
    Layers { redis, directory, store }
}

impl Layers {
    async fn succeeded(&self, name: &str, ttl: Ttl) {
        let first = done(self.store.swap(&key(name), Expect::Absent, &claim(name, HOUR)).await.expect("an answer"));
        let end = Draft { ttl, ..success(name, b"kept") };
        done(self.store.swap(&key(name), at(&first, Lease::Any), &end).await.expect("an answer"));
    }

    /// Asks until the front has a copy of the success.
    async fn copied(&self, name: &str) {
        eventually("a copy", async || {
            self.status(name).await;
            (self.redis.cli(&["EXISTS", &copy(name)]) == "1").then_some(())
        })
        .await;
    }

    async fn status(&self, name: &str) -> Option<Status> {
        self.store.peek(&key(name)).await.expect("an answer").current.map(|record| record.state.status())
    }
}

fn copy(name: &str) -> String {
    format!("onceward:front:epoch:{}", hex::encode(key(name).digest()))
}

/// What is final is answered by the front, whole; what is not never comes there.
#[tokio::test]
async fn the_front_answers_what_is_final() {
    let layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    let kept = layers.store.peek(&key("k")).await.expect("an answer").current;
    layers.copied("k").await;
    // The front alone knows this body now.
    assert_eq!(layers.redis.cli(&["HSET", &copy("k"), "body", "from the front"]), "0");
    let met = refused(layers.store.swap(&key("k"), Expect::Absent, &claim("x", HOUR)).await.expect("an answer"));
    assert_ne!(met, kept, "the front was not asked");
    assert_eq!(layers.redis.cli(&["HSET", &copy("k"), "body", "kept"]), "0");
    let met = refused(layers.store.swap(&key("k"), Expect::Absent, &claim("x", HOUR)).await.expect("an answer"));
    assert_eq!(met, kept);
    done(layers.store.swap(&key("open"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    assert_eq!(layers.status("open").await, Some(Status::Processing));
    assert_eq!(layers.redis.cli(&["EXISTS", &copy("open")]), "0");
}

/// A copy ends with its window, and one that cannot be read is ignored and taken away.
#[tokio::test]
async fn a_copy_neither_outlives_its_window_nor_lies() {
    let layers = layers().await;
    layers.succeeded("warm", Ttl::Exactly(HOUR)).await;
    layers.copied("warm").await;
    layers.succeeded("short", Ttl::Exactly(Duration::from_millis(300))).await;
    eventually("the window's end", async || layers.status("short").await.is_none().then_some(())).await;
    done(layers.store.swap(&key("short"), Expect::Absent, &claim("next", HOUR)).await.expect("an answer"));
    assert_eq!(layers.redis.cli(&["HSET", &copy("warm"), "status_code", "nonsense"]), "0");
    assert_eq!(layers.status("warm").await, Some(Status::Succeeded));
    eventually("another copy", async || {
        layers.status("warm").await;
        (layers.redis.cli(&["HGET", &copy("warm"), "status_code"]) == "201").then_some(())
    })
    .await;
}

/// A success that a person takes back is not answered from the front any more.
#[tokio::test]
async fn a_success_that_is_taken_back_is_not_replayed() {
    let layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    layers.copied("k").await;
    let stands = layers.store.peek(&key("k")).await.expect("an answer").current.expect("a record");
    let again = at_fence(stands.fence, Status::Succeeded, Lease::Any);
    done(layers.store.swap(&key("k"), again, &heartbeat("operator", HOUR)).await.expect("an answer"));
    assert_eq!(layers.status("k").await, Some(Status::Processing));
}

/// A front that is killed, emptied or frozen costs neither an answer nor, for more than one call, time.
#[tokio::test]
async fn the_loss_of_the_front_costs_speed_only() {
    let mut layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    layers.copied("k").await;
    assert_eq!(layers.redis.cli(&["FLUSHALL"]), "OK");
    assert_eq!(layers.status("k").await, Some(Status::Succeeded));
    layers.copied("k").await;
    layers.redis.pause();
    let started = Instant::now();
    for _ in 0..200 {
        assert_eq!(layers.status("k").await, Some(Status::Succeeded));
    }
    // Waiting for the front each time would take two seconds of the front's share alone.
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    layers.redis.resume();
    layers.redis.kill();
    layers.succeeded("other", Ttl::Exactly(HOUR)).await;
    assert_eq!(layers.status("k").await, Some(Status::Succeeded));
    layers.redis.restart();
    layers.copied("k").await;
    assert!(layers.directory.path().exists());
}
