//! Events that come under several names: a duplicate by any of them is a duplicate, on every store and at once.

use std::time::Duration;

use serde_json::json;

use super::rig::{Delivery, Rig, deliver, is_first, is_problem, is_replay, pay, second_attempt};
use crate::support::client::{Answer, post};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream, answer, later};

/// `/pay` by `/id`, with the alias `/ref`.
fn aliased(store: &str, upstream: &Upstream, idempotency: &str) -> String {
    config(store, upstream.address, idempotency).replace("key = [\"/id\"],", "key = [\"/id\"], aliases = [[\"/ref\"]],")
}

fn event(id: &str, reference: &str, amount: u32) -> String {
    format!(r#"{{"id":"{id}","ref":"{reference}","amount":{amount}}}"#)
}

async fn rig(store: &str, upstream: Upstream, idempotency: &str) -> Rig {
    Rig { gateway: Gateway::start(&aliased(store, &upstream, idempotency)), upstream }
}

/// What is under way at once stays that long at the upstream.
async fn slow(millis: u64) -> Upstream {
    Upstream::start(move |_, at| later(millis, answer(200, &[], format!("call {at}").as_bytes()))).await
}

#[tokio::test]
async fn a_duplicate_by_another_name_on_memory() {
    duplicate_by_another_name("memory:").await;
}

#[tokio::test]
async fn a_duplicate_by_another_name_on_every_store() {
    for store in crate::faults::stores::all() {
        duplicate_by_another_name(&store.url).await;
    }
}

/// The same event under another key and a shared alias is replayed; with other material it is a conflict, which names the field; an
/// event with another alias is another event.
async fn duplicate_by_another_name(store: &str) {
    let rig = rig(store, Upstream::counting().await, "").await;
    let first = rig.pay(&event("k1", "a", 1)).await;
    is_first(&first, "call 0");
    for _ in 0..2 {
        is_replay(&rig.pay(&event("k2", "a", 1)).await, &first);
        is_replay(&rig.pay(&event("k1", "a", 1)).await, &first);
    }
    let conflict = rig.pay(&event("k3", "a", 2)).await;
    is_problem(&conflict, 409, "fingerprint-mismatch");
    assert_eq!(conflict.json()["fields"], json!(["/amount"]));
    is_first(&rig.pay(&event("k4", "b", 2)).await, "call 1");
    let key = rig.upstream.hits()[0].header("idempotency-key").map(str::to_owned);
    assert_eq!((key.as_deref(), rig.upstream.count()), (Some("t:pay:k1"), 2));
    let log = rig.gateway.log();
    assert!(log.contains("known_as") && log.contains("t:pay:k1"), "which event it was is said: {log}");
}

/// What was tried under one name is tried again under that, whichever name the redelivery came by: the same `Idempotency-Key`, the
/// next attempt, a higher fence.
#[tokio::test]
async fn a_retry_by_another_name_is_the_same_event() {
    let upstream = Upstream::start(|_, at| answer(if at == 0 { 500 } else { 200 }, &[], b"done")).await;
    let rig = rig(SQLITE, upstream, "").await;
    assert_eq!(rig.pay(&event("k1", "a", 1)).await.status, 500);
    let first = rig.pay(&event("k2", "a", 1)).await;
    is_first(&first, "done");
    second_attempt(&rig.upstream.hits());
    is_replay(&rig.pay(&event("k1", "a", 1)).await, &first);
    is_replay(&rig.pay(&event("k2", "a", 1)).await, &first);
}

/// Of an event that never reached the upstream no name binds: it is forwarded under the name it comes by then.
#[tokio::test]
async fn names_of_what_was_not_sent_are_free() {
    let upstream = Upstream::counting().await;
    let address = upstream.address;
    drop(upstream);
    let gateway = Gateway::start(
        &config(SQLITE, address, "").replace("key = [\"/id\"],", "key = [\"/id\"], aliases = [[\"/ref\"]],"),
    );
    is_problem(&pay(&gateway, &event("k1", "a", 1)).await, 502, "upstream-unreachable");
    is_problem(&pay(&gateway, &event("k2", "a", 1)).await, 502, "upstream-unreachable");
    let upstream = Upstream::start_at(address, |_, at| answer(200, &[], format!("call {at}").as_bytes())).await;
    let first = pay(&gateway, &event("k2", "a", 1)).await;
    is_first(&first, "call 0");
    is_replay(&pay(&gateway, &event("k1", "a", 1)).await, &first);
    assert_eq!(upstream.hits()[0].header("idempotency-key"), Some("t:pay:k2"));
}

/// An event that runs under one name is in flight under the other, gets the answer when it comes, and is a conflict at once with
/// other material.
#[tokio::test]
async fn in_flight_by_another_name() {
    let rig = rig(SQLITE, slow(900).await, r#"in_flight = { wait = "15s" }"#).await;
    let owner = rig.under_way(&event("k1", "a", 1)).await;
    is_problem(&rig.pay(&event("k2", "a", 2)).await, 409, "fingerprint-mismatch");
    let duplicate = rig.pay(&event("k3", "a", 1)).await;
    let first = owner.await.unwrap().unwrap();
    is_first(&first, "call 0");
    is_replay(&duplicate, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// A gateway that is killed after it sent leaves names behind: in flight until the lease ends, then one more attempt of the same event.
#[tokio::test]
async fn a_crash_leaves_no_name_stuck() {
    let script = |at: usize| if at == 0 { Act::Silence } else { answer(200, &[], b"at last") };
    let upstream = Upstream::start(move |_, at| script(at)).await;
    let rig = rig(SQLITE, upstream, "lease = \"2s\"\nin_flight = { wait = \"0s\" }").await;
    let lost = rig.under_way(&event("k1", "a", 1)).await;
    let rig = rig.crash();
    assert!(lost.await.unwrap().is_err());
    let first = rig.settle(&event("k2", "a", 1)).await;
    is_first(&first, "at last");
    second_attempt(&rig.upstream.hits());
    is_replay(&rig.pay(&event("k1", "a", 1)).await, &first);
}

/// Fifty at once under two names on one gateway with the embedded store.
#[tokio::test]
async fn fifty_at_once_under_two_names() {
    let rig = rig(SQLITE, slow(400).await, "").await;
    let deliveries = (0..50).map(|at| deliver(&rig.gateway, &event(&format!("k{}", at % 2), "a", 1))).collect();
    all_are_one(deliveries, &rig.upstream).await;
}

/// Fifty at once under two names over two gateways on one Redis, many times: who comes first differs.
#[tokio::test]
async fn fifty_at_once_under_two_names_over_two_gateways() {
    let redis = RedisServer::start();
    let upstream = slow(150).await;
    let text = aliased(&redis.url(), &upstream, "");
    let gateways = [Gateway::start(&text), Gateway::start(&text)];
    for round in 0..8 {
        let name = |at: usize| event(&format!("k{}-{round}", at % 2), &format!("a-{round}"), 1);
        let before = upstream.count();
        let deliveries: Vec<_> = (0..50).map(|at| deliver(&gateways[(at / 2) % 2], &name(at))).collect();
        for delivery in deliveries {
            let answer = delivery.await.unwrap().unwrap();
            assert!(answer.status == 200 || answer.code() == "in-flight", "{answer:?}");
        }
        for (at, gateway) in gateways.iter().enumerate() {
            let known = pay(gateway, &name(at)).await;
            assert_eq!((known.status, known.idempotency()), (200, "replay"), "{known:?}");
        }
        assert_eq!(upstream.count(), before + 1, "round {round}");
    }
}

/// One delivery is forwarded; all others repeat its answer or are told that it is in flight.
async fn all_are_one(deliveries: Vec<Delivery>, upstream: &Upstream) {
    let mut answers: Vec<Answer> = Vec::new();
    for delivery in deliveries {
        answers.push(delivery.await.unwrap().unwrap());
    }
    let firsts: Vec<_> = answers.iter().filter(|answer| answer.idempotency() == "first").collect();
    assert_eq!(firsts.len(), 1, "{firsts:?}");
    for answer in answers.iter().filter(|answer| answer.idempotency() != "first") {
        match answer.status {
            200 => is_replay(answer, firsts[0]),
            _ => is_problem(answer, 409, "in-flight"),
        }
    }
    assert!(answers.iter().any(|answer| answer.idempotency() == "replay"), "some waited for the answer");
    assert_eq!(upstream.count(), 1);
}

/// `body_alias`: an equal raw body under another id is a duplicate; by default it is not; one byte more is another event.
#[tokio::test]
async fn body_alias() {
    for (policy, is_duplicate) in [("body_alias = true", true), ("", false)] {
        let upstream = Upstream::counting().await;
        let text = config(SQLITE, upstream.address, policy).replace("key = [\"/id\"]", "key = [\"header:x-id\"]");
        let gateway = Gateway::start(&text);
        let send = async |id: &str, body: &str| post(gateway.ingest, "/pay", &[("x-id", id)], body).await;
        let first = send("1", r#"{"amount":1}"#).await;
        is_first(&first, "call 0");
        let second = send("2", r#"{"amount":1}"#).await;
        if is_duplicate {
            is_replay(&second, &first);
        } else {
            is_first(&second, "call 1");
        }
        let other = send("3", r#"{"amount":1 }"#).await;
        assert_eq!(other.idempotency(), "first", "{other:?}");
    }
}

/// A sender that leaves its id out, or puts one in, does not get an equal body through again.
#[tokio::test]
async fn a_body_with_and_without_a_key() {
    for ids in [[Some("1"), None], [None, Some("1")]] {
        let upstream = Upstream::start(|_, at| answer(if at == 0 { 500 } else { 200 }, &[], b"done")).await;
        let policy = "body_alias = true\nmissing_key = \"hash-body\"";
        let text = config(SQLITE, upstream.address, policy).replace("key = [\"/id\"]", "key = [\"header:x-id\"]");
        let gateway = Gateway::start(&text);
        let send = async |id: Option<&str>| {
            let fields: Vec<_> = id.iter().map(|id| ("x-id", *id)).collect();
            post(gateway.ingest, "/pay", &fields, r#"{"amount":1}"#).await
        };
        assert_eq!(send(ids[0]).await.status, 500);
        let first = send(ids[1]).await;
        is_first(&first, "done");
        second_attempt(&upstream.hits());
        for id in ids {
            is_replay(&send(id).await, &first);
        }
    }
}

/// A name lives at least as long as what it names.
#[tokio::test]
async fn a_name_outlives_its_event() {
    let redis = RedisServer::start();
    let rig = rig(&redis.url(), Upstream::counting().await, r#"window = "48h""#).await;
    is_first(&rig.pay(&event("k1", "a", 1)).await, "call 0");
    let records = redis.cli(&["--scan", "--pattern", "onceward:rec:*"]);
    let mut ends: Vec<(String, u64)> = Vec::new();
    for key in records.lines() {
        ends.push((redis.cli(&["HGET", key, "status"]), redis.cli(&["TTL", key]).parse().unwrap()));
    }
    let end = |status: &str| ends.iter().find(|(of, _)| of == status).unwrap_or_else(|| panic!("{status}: {ends:?}")).1;
    let day = Duration::from_hours(24).as_secs();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(end("succeeded") <= 2 * day && end("alias") >= end("succeeded") + day, "{ends:?}");
}
