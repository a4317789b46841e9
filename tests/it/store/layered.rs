//! A front over a SQL store: it makes replays cheaper, and its loss, its delay and its lies change no answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::idempotency::record::Status;
use onceward::idempotency::{Draft, Expect, Lease, Ttl};
use onceward::store::{Backend, Meta, Store, StoreError, StoreFault, Stores, Swap};
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

    /// What a person does who takes a success back.
    async fn take_back(&self, name: &str) -> Result<Swap, StoreError> {
        let stands = self.store.peek(&key(name)).await?.current.expect("a record");
        let again = at_fence(stands.fence, Status::Succeeded, Lease::Any);
        self.store.swap(&key(name), again, &heartbeat("operator", HOUR)).await
    }

    /// A new success over what was taken back, under the same fence.
    async fn succeed_again(&self, name: &str) -> Swap {
        let stands = self.store.peek(&key(name)).await.expect("an answer").current.expect("a record");
        self.store.swap(&key(name), at(&stands, Lease::Any), &success("operator", b"new")).await.expect("an answer")
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
    // On a busy machine a call may find the front slow and ask behind it.
    eventually("the front answers", async || {
        let swap = layers.store.swap(&key("k"), Expect::Absent, &claim("x", HOUR)).await.expect("an answer");
        (refused(swap) != kept).then_some(())
    })
    .await;
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

/// A success that a person takes back is not answered from the front any more, nor is a copy of it that comes late taken.
#[tokio::test]
async fn a_success_that_is_taken_back_is_not_replayed() {
    let layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    layers.copied("k").await;
    done(layers.take_back("k").await.expect("an answer"));
    assert_eq!(layers.status("k").await, Some(Status::Processing));
    let last = done(layers.succeed_again("k").await);
    assert_eq!(layers.status("k").await, Some(Status::Succeeded));
    assert_eq!(last.owner.0, "operator");
    assert_eq!(layers.redis.cli(&["HMGET", &copy("k"), "final", "owner"]), "0\nk", "the marker stands until its end");
}

/// While the front cannot be told, a success cannot be taken back: it would go on to be answered. Afterwards it can.
#[tokio::test]
async fn a_front_that_cannot_be_told_keeps_a_success() {
    let layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    layers.copied("k").await;
    layers.redis.pause();
    let error = layers.take_back("k").await.expect_err("the front cannot be told");
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Refused, false), "{error}");
    assert!(error.detail.contains("the front cannot be told"), "{error}");
    assert_eq!(layers.status("k").await, Some(Status::Succeeded), "nothing was written");
    layers.redis.resume();
    eventually("the front is told", async || layers.take_back("k").await.ok()).await;
    assert_eq!(layers.status("k").await, Some(Status::Processing));
}

/// A write over a success that is not there tells what is, and leaves the front alone.
#[tokio::test]
async fn a_success_that_is_not_there_is_not_taken_back() {
    let layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    layers.copied("k").await;
    let stands = layers.store.peek(&key("k")).await.expect("an answer").current;
    let older = at_fence(1, Status::Succeeded, Lease::Any);
    assert_eq!(refused(layers.store.swap(&key("k"), older, &claim("x", HOUR)).await.expect("an answer")), stands);
    assert_eq!(layers.redis.cli(&["HGET", &copy("k"), "final"]), "1");
}

/// A store that was made anew meets no copy of the old one.
#[tokio::test]
async fn copies_of_another_epoch_are_not_met() {
    let layers = layers().await;
    layers.succeeded("k", Ttl::Exactly(HOUR)).await;
    layers.copied("k").await;
    let directory = TempDir::new().expect("a directory");
    let backend = Backend::Sqlite(directory.path().join("records.db"));
    let stores = Stores::open(backend, TIMEOUT).await.expect("the file opens");
    let anew = stores.behind(&layers.redis.url()).expect("the address is good").handle();
    anew.meta(Meta { epoch: "next".into(), digest_key: [1; 32] }).await.expect("an answer");
    let other = key("other");
    done(anew.swap(&other, Expect::Absent, &success("a", b"")).await.expect("an answer"));
    eventually("the front is in use", async || {
        anew.peek(&other).await.expect("an answer");
        (!layers.redis.cli(&["--scan", "--pattern", "onceward:front:next:*"]).is_empty()).then_some(())
    })
    .await;
    assert_eq!(anew.peek(&key("k")).await.expect("an answer").current, None);
    done(anew.swap(&key("k"), Expect::Absent, &claim("b", HOUR)).await.expect("an answer"));
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
