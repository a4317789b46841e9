//! Leases and races: one forward at a time, whatever comes at once.

use std::time::{Duration, Instant};

use super::rig::{Delivery, Rig, deliver, event, is_first, is_problem, is_replay, pay};
use crate::support::client::Answer;
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer, later};

async fn slow(millis: u64) -> Upstream {
    Upstream::start(move |_, at| later(millis, answer(200, &[], format!("call {at}").as_bytes()))).await
}

/// Scenario 36 on the embedded store.
#[tokio::test]
async fn s36_slower_than_the_lease_on_sqlite() {
    slower_than_the_lease(SQLITE).await;
}

/// Scenario 36 on Redis.
#[tokio::test]
async fn s36_slower_than_the_lease_on_redis() {
    let redis = RedisServer::start();
    slower_than_the_lease(&redis.url()).await;
}

/// Scenario 36: the heartbeat extends the lease; five leases later the event is still one forward.
async fn slower_than_the_lease(store: &str) {
    let rig = Rig::over(store, slow(3000).await, "lease = \"600ms\"\nin_flight = { wait = \"0s\" }");
    let owner = rig.under_way(&event("evt_1", 1)).await;
    while !owner.is_finished() {
        let duplicate = pay(&rig.gateway, &event("evt_1", 1)).await;
        if duplicate.status != 200 {
            is_problem(&duplicate, 409, "in-flight");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let first = owner.await.unwrap().unwrap();
    is_first(&first, "call 0");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 37 on one gateway with the embedded store.
#[tokio::test]
async fn s37_fifty_at_once() {
    let rig = Rig::with(slow(300).await, "");
    let deliveries = (0..50).map(|_| deliver(&rig.gateway, &event("evt_1", 1))).collect();
    all_are_one(deliveries, &rig.upstream).await;
}

/// Scenario 37 over two gateways on one Redis.
#[tokio::test]
async fn s37_fifty_at_once_over_two_gateways() {
    let redis = RedisServer::start();
    let upstream = slow(300).await;
    let text = config(&redis.url(), upstream.address, "");
    let gateways = [Gateway::start(&text), Gateway::start(&text)];
    let deliveries = (0..50).map(|at| deliver(&gateways[at % 2], &event("evt_1", 1))).collect();
    let first = all_are_one(deliveries, &upstream).await;
    for gateway in &gateways {
        is_replay(&pay(gateway, &event("evt_1", 1)).await, &first);
        is_problem(&pay(gateway, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    }
}

/// One delivery is forwarded; all others repeat its answer or are told that it is in flight.
async fn all_are_one(deliveries: Vec<Delivery>, upstream: &Upstream) -> Answer {
    let mut answers = Vec::new();
    for delivery in deliveries {
        answers.push(delivery.await.unwrap().unwrap());
    }
    let firsts: Vec<_> = answers.iter().filter(|answer| answer.idempotency() == "first").collect();
    assert_eq!(firsts.len(), 1, "{firsts:?}");
    is_first(firsts[0], "call 0");
    for answer in answers.iter().filter(|answer| answer.idempotency() != "first") {
        match answer.status {
            200 => is_replay(answer, firsts[0]),
            _ => is_problem(answer, 409, "in-flight"),
        }
    }
    let replays = answers.iter().filter(|answer| answer.idempotency() == "replay").count();
    assert!(replays > 0, "some waited for the answer");
    assert_eq!(upstream.count(), 1);
    firsts[0].clone()
}

/// Scenario 37 with different events: none is held up, none is lost.
#[tokio::test]
async fn s37_fifty_different_at_once() {
    let rig = Rig::with(slow(300).await, "");
    let deliveries: Vec<_> = (0..50).map(|at| deliver(&rig.gateway, &event(&format!("evt_{at}"), 1))).collect();
    let began = Instant::now();
    for delivery in deliveries {
        let answer = delivery.await.unwrap().unwrap();
        assert_eq!((answer.status, answer.idempotency()), (200, "first"), "{answer:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "one after the other: {:?}", began.elapsed());
    assert_eq!(rig.upstream.count(), 50);
}

/// Scenario 38: other material while in flight is refused at once, without a wait, and does not touch the owner.
#[tokio::test]
async fn s38_other_material_in_flight() {
    let rig = Rig::with(slow(4000).await, r#"in_flight = { wait = "20s" }"#);
    let owner = rig.under_way(&event("evt_1", 1)).await;
    let asked = Instant::now();
    let conflict = rig.pay(&event("evt_1", 2)).await;
    is_problem(&conflict, 409, "fingerprint-mismatch");
    assert_eq!(conflict.json()["fields"], serde_json::json!(["/amount"]));
    assert!(asked.elapsed() < Duration::from_secs(2), "at once: {:?}", asked.elapsed());
    assert!(!owner.is_finished(), "refused while in flight");
    let first = owner.await.unwrap().unwrap();
    is_first(&first, "call 0");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 39, and §6: after a success other material changes neither the record nor its end; the record has a TTL and is readable.
#[tokio::test]
async fn s39_other_material_after_success() {
    let redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, r#"window = "1h""#);
    let first = rig.pay(&event("evt_1", 1)).await;
    is_first(&first, "call 0");
    let keys = redis.cli(&["--scan", "--pattern", "onceward:rec:*"]);
    assert!(!keys.is_empty() && !keys.contains('\n'), "one hash a key: {keys}");
    // Redis may list a hash in any order.
    let record = || {
        let listed = redis.cli(&["HGETALL", &keys]);
        let mut fields: Vec<_> = listed.lines().map(str::to_owned).collect();
        fields.sort();
        fields
    };
    let (before, end) = (record(), redis.cli(&["PEXPIRETIME", &keys]));
    let ttl: u64 = redis.cli(&["TTL", &keys]).parse().unwrap();
    assert!((3500..=3600).contains(&ttl), "the window, from its finish: {ttl}");
    for field in
        ["status", "fingerprint", "fence", "attempt", "started_at", "finished_at", "status_code", "headers", "body"]
    {
        assert!(before.iter().any(|line| line == field), "{field}: {before:?}");
    }
    for _ in 0..3 {
        is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
        is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    }
    assert_eq!(record(), before);
    assert_eq!(redis.cli(&["PEXPIRETIME", &keys]), end);
    assert_eq!(rig.upstream.count(), 1);
}

/// §6: every record has a TTL from its first write, and the lease is no TTL.
#[tokio::test]
async fn a_running_claim_outlives_its_lease() {
    let redis = RedisServer::start();
    let policy = "lease = \"1s\"\nwindow = \"1h\"";
    let rig = Rig::over(&redis.url(), slow(1500).await, policy);
    let owner = rig.under_way(&event("evt_1", 1)).await;
    let key = redis.cli(&["--scan", "--pattern", "onceward:rec:*"]);
    let ttl: u64 = redis.cli(&["TTL", &key]).parse().unwrap();
    assert!(ttl > 24 * 3600 - 60, "processing: max(window, 24 h): {ttl}");
    is_first(&owner.await.unwrap().unwrap(), "call 0");
    let ttl: u64 = redis.cli(&["TTL", &key]).parse().unwrap();
    assert!(ttl <= 3600, "a success is remembered for the window: {ttl}");
}
