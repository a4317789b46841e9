//! Scenarios 13, 15 and 26: a store that is down, that has forgotten, or that would forget.

use std::time::Duration;

use serde_json::Value;

use super::rig::{audit, config, metrics};
use crate::journey::rig::{event, pay};
use crate::support::client::get;
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

async fn readyz(gateway: &Gateway) -> (u16, Value) {
    let answer = get(gateway.admin, "/readyz").await;
    (answer.status, answer.json())
}

async fn resets(gateway: &Gateway) -> f64 {
    metrics(gateway).await.get("onceward_window_resets_total").copied().unwrap_or_default()
}

/// All gateways of a store that is emptied see it, each counts it once, and serves on as degraded.
#[tokio::test]
async fn s15_a_flushed_store_is_noticed_by_every_gateway() {
    let redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let text = config(&redis.url(), upstream.address, "");
    let (one, two) = (Gateway::start(&text), Gateway::start(&text));
    assert_eq!(pay(&one, &event("a", 1)).await.idempotency(), "first");
    assert_eq!(pay(&two, &event("a", 1)).await.idempotency(), "replay");
    assert_eq!((readyz(&one).await, resets(&one).await), ((200, serde_json::json!({ "status": "ready" })), 0.0));
    redis.cli(&["FLUSHALL"]);
    for gateway in [&one, &two] {
        eventually("the reset is counted", || async { resets(gateway).await >= 1.0 }).await;
        let (status, body) = readyz(gateway).await;
        assert_eq!((status, body["status"].as_str()), (200, Some("degraded")), "{body}");
        assert!(body["reasons"][0].as_str().unwrap().contains("emptied"), "{body}");
    }
    // First-seen again by all, and the same event again to both: the digest key is the same.
    assert_eq!(pay(&one, &event("a", 1)).await.idempotency(), "first");
    assert_eq!(pay(&two, &event("a", 1)).await.idempotency(), "replay");
    assert_eq!(pay(&two, &event("a", 2)).await.idempotency(), "mismatch");
    // One more look by both: nothing is counted twice.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!((resets(&one).await, resets(&two).await), (1.0, 1.0));
    assert_eq!((audit(&one, "window_reset").len(), audit(&two, "window_reset").len()), (1, 1));
}

/// A store that was emptied while no gateway ran: the state directory knows. The next start does not.
#[tokio::test]
async fn s15_a_store_emptied_between_two_runs_is_noticed_once() {
    let mut redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let home = Home::new(&config(&redis.url(), upstream.address, ""));
    let first = home.start();
    assert_eq!(resets(&first).await, 0.0, "a new store is no reset");
    first.stop();
    let again = home.start();
    assert_eq!(resets(&again).await, 0.0, "the same store is no reset");
    again.kill();
    redis.restart();
    let after = home.start();
    assert_eq!(resets(&after).await, 1.0);
    assert_eq!(readyz(&after).await.1["status"], "degraded");
    after.stop();
    let later = home.start();
    assert_eq!((resets(&later).await, readyz(&later).await.1["status"].as_str()), (0.0, Some("ready")));
}

/// Down at the start: alive, not ready; connects later without a restart.
#[tokio::test]
async fn s13_a_store_that_comes_later() {
    let mut redis = RedisServer::stopped();
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&config(&redis.url(), upstream.address, ""));
    assert_eq!(get(gateway.admin, "/healthz").await.status, 200);
    let (status, body) = readyz(&gateway).await;
    assert_eq!((status, body["status"].as_str()), (503, Some("not-ready")), "{body}");
    redis.restart();
    eventually("it gets ready", || async { readyz(&gateway).await.0 == 200 }).await;
    assert_eq!(pay(&gateway, &event("a", 1)).await.idempotency(), "first");
    assert_eq!(resets(&gateway).await, 0.0);
}

/// An evicting store is refused at the start, with the setting's name.
#[tokio::test]
async fn s26_an_evicting_store_is_refused_at_the_start() {
    let redis = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let upstream = Upstream::counting().await;
    let said = Home::new(&config(&redis.url(), upstream.address, "")).refuses();
    assert!(said.contains("maxmemory-policy is allkeys-lru") && said.contains("noeviction"), "{said}");
}

/// One that is set so while it serves is seen, and so is its end.
#[tokio::test]
async fn s26_a_store_that_starts_to_evict_is_seen_within_a_minute() {
    let redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&config(&redis.url(), upstream.address, ""));
    assert_eq!(readyz(&gateway).await.1["status"], "ready");
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let end = std::time::Instant::now() + Duration::from_secs(75);
    while readyz(&gateway).await.1["status"] != "degraded" {
        assert!(std::time::Instant::now() < end, "never seen");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(readyz(&gateway).await.0, 200);
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    eventually("its end is seen", || async { readyz(&gateway).await.1["status"] == "ready" }).await;
}

/// A dead gateway's claim is found in the store, by whoever looks.
#[tokio::test]
async fn orphans_of_a_dead_gateway_are_shown() {
    let redis = RedisServer::start();
    let silent = Upstream::start(|_, _| crate::support::upstream::Act::Silence).await;
    let text = config(&redis.url(), silent.address, "lease = \"300ms\"");
    let dying = Gateway::start(&text);
    let _delivery = crate::journey::rig::deliver(&dying, &event("a", 1));
    silent.arrived(1).await;
    dying.kill();
    let looking = Gateway::start(&text);
    eventually("the orphan is shown", || async {
        metrics(&looking).await.get("onceward_processing{tenant=\"t\",route=\"pay\"}") == Some(&1.0)
    })
    .await;
    assert!(metrics(&looking).await["onceward_processing_oldest_seconds{tenant=\"t\",route=\"pay\"}"] > 0.0);
}
