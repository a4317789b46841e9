//! How much of an answer is kept, and for how long.

use std::time::{Duration, Instant};

use super::rig::{Rig, deliver, event, is_first, is_replay};
use crate::support::client::Answer;
use crate::support::config::SQLITE;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer};

const CHARGE: &[u8] = br#"{"id":"ch_1","card":"4242"}"#;

async fn charging(body: &'static [u8]) -> Upstream {
    Upstream::start(move |_, _| answer(201, &[("content-type", "application/json"), ("x-keep", "1")], body)).await
}

/// The first answer is whole; the second one's body is `expect`, and both stay so.
async fn without_its_body(upstream: Upstream, policy: &str, expect: &[u8]) -> Answer {
    let whole = upstream.address;
    let rig = Rig::with(upstream, policy);
    let first = rig.pay(&event("evt_1", 1)).await;
    assert_eq!((first.status, first.idempotency()), (201, "first"), "{whole} {first:?}");
    assert!(first.body.len() > expect.len(), "the first answer is whole: {first:?}");
    assert_eq!(first.header("idempotency-replay-body"), None, "{first:?}");
    let replay = rig.pay(&event("evt_1", 1)).await;
    assert_eq!((replay.status, replay.idempotency()), (201, "replay"), "{replay:?}");
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    assert_eq!(String::from_utf8_lossy(&replay.body), String::from_utf8_lossy(expect));
    assert_eq!(replay.header("x-keep"), Some("1"));
    assert_eq!(replay.header("idempotency-replay-body"), Some("omitted"), "{replay:?}");
    assert_eq!(rig.upstream.count(), 1, "never called again for the sake of a body");
    replay
}

/// `replay.body = "none"`: the status without the body, and said so.
#[tokio::test]
async fn body_none() {
    without_its_body(charging(CHARGE).await, r#"replay = { body = "none" }"#, b"").await;
}

/// `replay.body = "reference"`: the id of what was made.
#[tokio::test]
async fn body_reference() {
    let policy = r#"replay = { body = "reference", resource_id = "/id" }"#;
    without_its_body(charging(CHARGE).await, policy, br#"{"resource_id":"ch_1"}"#).await;
}

/// `replay.max_body`, scenario 45: a longer body passes through and is replayed as a marked, empty one, never cut short.
#[tokio::test]
async fn s45_a_body_too_large_to_keep() {
    let body: &'static [u8] = vec![b'x'; 65].leak();
    without_its_body(charging(body).await, "replay = { max_body = 64 }", b"").await;
}

/// `replay.max_body` is inclusive, and its default holds 256 KiB.
#[tokio::test]
async fn s45_the_largest_body_that_is_kept() {
    let body: &'static [u8] = vec![b'x'; 256 << 10].leak();
    let rig = Rig::with(charging(body).await, "");
    let first = rig.pay(&event("evt_1", 1)).await;
    assert_eq!(first.body.len(), body.len());
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    let more: &'static [u8] = vec![b'x'; (256 << 10) + 1].leak();
    without_its_body(charging(more).await, "", b"").await;
}

/// Scenario 45: an answer of many megabytes passes through whole and costs no second call.
#[tokio::test]
async fn s45_a_giant_answer() {
    let body: &'static [u8] = vec![b'x'; 20 << 20].leak();
    without_its_body(charging(body).await, "", b"").await;
}

/// Scenario 40 on the embedded store.
#[tokio::test]
async fn s40_the_windows_end_on_sqlite() {
    the_windows_end(SQLITE).await;
}

/// Scenario 40 on Redis.
#[tokio::test]
async fn s40_the_windows_end_on_redis() {
    let redis = RedisServer::start();
    the_windows_end(&redis.url()).await;
}

/// Scenario 40: at the window's end exactly one of {replay, first-seen}; never an error, never two owners.
async fn the_windows_end(store: &str) {
    let rig = Rig::over(store, Upstream::counting().await, "window = \"1s\"\nin_flight = { wait = \"10s\" }");
    let (began, lasts) = (Instant::now(), Duration::from_millis(3500));
    let mut firsts = 0;
    while began.elapsed() < lasts {
        let burst: Vec<_> = (0..8).map(|_| deliver(&rig.gateway, &event("evt_1", 1))).collect();
        for delivery in burst {
            let answer = delivery.await.unwrap().unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(["first", "replay"].contains(&answer.idempotency()), "{answer:?}");
            firsts += usize::from(answer.idempotency() == "first");
        }
        // Below the default rate of a tenant.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let windows = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let hits = rig.upstream.hits();
    assert_eq!(hits.len(), firsts, "each forward answered one delivery");
    assert!((2..=windows).contains(&firsts), "{firsts} forwards in {windows} windows");
    let fences: Vec<u64> = hits.iter().map(|hit| hit.header("onceward-fence").unwrap().parse().unwrap()).collect();
    assert!(fences.windows(2).all(|two| two[0] < two[1]), "fences grow, also over a window's end: {fences:?}");
    assert!(hits.iter().all(|hit| hit.header("onceward-attempt") == Some("1")), "each is a new event: {hits:?}");
}

/// A window is fixed at the finish: replays do not move it.
#[tokio::test]
async fn a_replay_does_not_move_the_window() {
    let rig = Rig::start(r#"window = "2s""#).await;
    let began = Instant::now();
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    while rig.pay(&event("evt_1", 1)).await.idempotency() == "replay" {
        assert!(began.elapsed() < Duration::from_secs(6), "replays keep the event alive");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(2), "forgotten too early: {:?}", began.elapsed());
    assert_eq!(rig.upstream.count(), 2);
}
