//! A Redis that is down, slow, restarted or emptied: fail closed, recover without help.

use std::time::{Duration, Instant};

use super::rig::{Rig, event, is_first, is_problem, is_replay, pay};
use crate::support::client::get;
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer, later};

async fn slow(millis: u64) -> Upstream {
    Upstream::start(move |_, at| later(millis, answer(200, &[], format!("call {at}").as_bytes()))).await
}

/// Scenario 13: down at the start: alive, not ready, nothing forwarded; connects later without a restart.
#[tokio::test]
async fn s13_down_at_the_start() {
    let mut redis = RedisServer::stopped();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, "");
    assert_eq!(get(rig.gateway.admin, "/healthz").await.status, 200);
    assert_eq!(get(rig.gateway.admin, "/readyz").await.status, 503);
    let refused = rig.pay(&event("evt_1", 1)).await;
    is_problem(&refused, 503, "store-unavailable");
    assert_eq!(refused.idempotency(), "rejected");
    assert_eq!(rig.upstream.count(), 0);
    redis.restart();
    eventually("ready", || async { get(rig.gateway.admin, "/readyz").await.status == 200 }).await;
    eventually("served", || async { rig.pay(&event("evt_1", 1)).await.status == 200 }).await;
    assert_eq!(rig.pay(&event("evt_1", 1)).await.idempotency(), "replay");
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 14: killed in the middle: what the upstream said still reaches its sender; new keys are refused.
#[tokio::test]
async fn s14_killed_mid_traffic() {
    let mut redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), slow(800).await, "");
    let delivery = rig.under_way(&event("evt_1", 1)).await;
    redis.kill();
    is_problem(&rig.pay(&event("evt_2", 1)).await, 503, "store-unavailable");
    let answer = delivery.await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"call 0"[..]), "{answer:?}");
    assert_eq!(answer.header("idempotency-expires"), None, "not kept: {answer:?}");
    eventually("not ready", || async { get(rig.gateway.admin, "/readyz").await.status == 503 }).await;
    assert_eq!(rig.upstream.count(), 1);
    redis.restart();
    eventually("served", || async { rig.pay(&event("evt_2", 1)).await.status == 200 }).await;
}

/// Scenario 14: a short outage: the finalise is tried again until the lease ends, so that the answer is kept after all.
#[tokio::test]
async fn s14_a_short_stall_loses_no_answer() {
    let redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), slow(600).await, "lease = \"20s\"\nin_flight = { wait = \"0s\" }");
    let delivery = rig.under_way(&event("evt_1", 1)).await;
    redis.pause();
    let answer = delivery.await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"call 0"[..]), "{answer:?}");
    redis.resume();
    eventually("kept", || async { rig.pay(&event("evt_1", 1)).await.idempotency() == "replay" }).await;
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 15: restarted empty: past keys are first-seen again, by old and new gateways alike, which agree about what is equal (I5).
#[tokio::test]
async fn s15_restarted_empty() {
    let mut redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let text = config(&redis.url(), upstream.address, "");
    let old = Gateway::start(&text);
    is_first(&pay(&old, &event("evt_1", 1)).await, "call 0");
    redis.restart();
    eventually("served", || async { pay(&old, &event("evt_0", 1)).await.status == 200 }).await;
    let again = pay(&old, &event("evt_1", 1)).await;
    assert_eq!((again.status, again.idempotency()), (200, "first"), "{again:?}");
    // A newcomer finds the key of the fingerprints once a running gateway has put it back.
    eventually("the meta record is back", || async { !redis.cli(&["HGETALL", "onceward:meta"]).is_empty() }).await;
    let new = Gateway::start(&text);
    is_replay(&pay(&new, &event("evt_1", 1)).await, &again);
    let fresh = pay(&new, &event("evt_2", 1)).await;
    assert_eq!(fresh.idempotency(), "first");
    is_replay(&pay(&old, &event("evt_2", 1)).await, &fresh);
    is_problem(&pay(&new, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
}

/// Scenarios 15 and 26: flushed by an operator while gateways run: old and new ones still agree about what is equal (I5).
#[tokio::test]
async fn s15_flushed() {
    let redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let text = config(&redis.url(), upstream.address, "");
    let old = Gateway::start(&text);
    is_first(&pay(&old, &event("evt_1", 1)).await, "call 0");
    redis.cli(&["FLUSHALL"]);
    let again = pay(&old, &event("evt_1", 1)).await;
    assert_eq!((again.status, again.idempotency()), (200, "first"), "{again:?}");
    // A newcomer finds the key of the fingerprints once a running gateway has put it back.
    eventually("the meta record is back", || async { !redis.cli(&["HGETALL", "onceward:meta"]).is_empty() }).await;
    let new = Gateway::start(&text);
    is_replay(&pay(&new, &event("evt_1", 1)).await, &again);
    is_problem(&pay(&new, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
}

/// Scenario 16: forgotten scripts are loaded again; nobody sees an error.
#[tokio::test]
async fn s16_forgotten_scripts() {
    let redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), slow(100).await, "");
    for at in 0..5 {
        redis.cli(&["SCRIPT", "FLUSH"]);
        let delivery = rig.under_way(&event(&format!("evt_{at}"), 1)).await;
        redis.cli(&["SCRIPT", "FLUSH"]);
        let first = delivery.await.unwrap().unwrap();
        is_first(&first, &format!("call {at}"));
        redis.cli(&["SCRIPT", "FLUSH"]);
        is_replay(&rig.pay(&event(&format!("evt_{at}"), 1)).await, &first);
    }
}

/// Scenario 19: a full Redis refuses claims; what is known is still replayed, what runs is still finished.
#[tokio::test]
async fn s19_full() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let rig = Rig::over(&redis.url(), slow(600).await, "");
    let first = rig.pay(&event("evt_1", 1)).await;
    is_first(&first, "call 0");
    let running = rig.under_way(&event("evt_2", 1)).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    is_problem(&rig.pay(&event("evt_3", 1)).await, 503, "store-unavailable");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    let second = running.await.unwrap().unwrap();
    is_first(&second, "call 1");
    is_replay(&rig.pay(&event("evt_2", 1)).await, &second);
    assert_eq!(rig.upstream.count(), 2);
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("served", || async { rig.pay(&event("evt_3", 1)).await.status == 200 }).await;
}

/// Scenarios 21 and 22: a stalled Redis is refused in time, and a claim whose reply was lost parks no event.
#[tokio::test]
async fn s21_stalled() {
    let redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, "lease = \"60s\"\nin_flight = { wait = \"0s\" }");
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    redis.pause();
    let asked = Instant::now();
    is_problem(&rig.pay(&event("evt_2", 1)).await, 503, "store-unavailable");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(rig.upstream.count(), 1);
    redis.resume();
    let resumed = Instant::now();
    eventually("the event is served", || async { rig.pay(&event("evt_2", 1)).await.status == 200 }).await;
    assert!(resumed.elapsed() < Duration::from_secs(15), "parked by a lost claim: {:?}", resumed.elapsed());
    assert_eq!(rig.upstream.count(), 2);
    assert_eq!(rig.pay(&event("evt_1", 1)).await.idempotency(), "replay");
}

/// `store_down = "reject"`, the default, D1: nothing is forwarded.
#[tokio::test]
async fn store_down_reject() {
    let mut redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, "");
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    redis.kill();
    for id in ["evt_1", "evt_2"] {
        is_problem(&rig.pay(&event(id, 1)).await, 503, "store-unavailable");
    }
    assert_eq!(rig.upstream.count(), 1);
}

/// `store_down = "forward"`: forwarded without deduplication, and said so.
#[tokio::test]
async fn store_down_forward() {
    let mut redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, r#"store_down = "forward""#);
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    redis.kill();
    for call in 1..3 {
        let answer = rig.pay(&event("evt_1", 1)).await;
        assert_eq!((answer.status, answer.idempotency()), (200, "bypassed"), "{answer:?}");
        assert_eq!(answer.body, format!("call {call}").into_bytes());
    }
}
