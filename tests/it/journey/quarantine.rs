//! Mismatches: refused, counted in a record of their own, and accepted only once that is written.

use serde_json::json;

use super::rig::{Rig, deliver, event, is_first, is_problem, is_replay, pay};
use crate::support::client::Answer;
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer, later};

/// The fields of each quarantine in a Redis.
fn quarantines(redis: &RedisServer) -> Vec<String> {
    let keys = redis.cli(&["--scan", "--pattern", "onceward:rec:*"]);
    let records = keys.lines().map(|key| redis.cli(&["HGETALL", key]));
    records.filter(|record| record.lines().any(|line| line == "mismatch")).collect()
}

/// How many mismatches the quarantines of a Redis count.
fn counted(redis: &RedisServer) -> u64 {
    quarantines(redis).iter().map(|record| count(record)).sum()
}

/// The count in a quarantine: whatever else is stored with it, it stands in a list or an object by that name.
fn count(record: &str) -> u64 {
    let at = record.find("count").unwrap_or_else(|| panic!("no count: {record}"));
    let digits: String =
        record[at..].chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// `mismatch.status = 202`: when the sender is told that it is accepted, it is in the store; one record a key, which counts; the
/// event's own record is untouched. No value is kept, only which field differs.
#[tokio::test]
async fn an_accepted_mismatch_is_durable() {
    let redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, "mismatch = { status = 202 }");
    let first = rig.pay(&event("evt_1", 1)).await;
    is_first(&first, "call 0");
    for came in 1..=3 {
        let accepted = rig.pay(&event("evt_1", 777_000 + came)).await;
        is_problem(&accepted, 202, "fingerprint-mismatch");
        assert_eq!(accepted.idempotency(), "mismatch");
        let kept = quarantines(&redis);
        assert_eq!((kept.len(), counted(&redis)), (1, u64::from(came)), "at once: {kept:?}");
        assert!(kept[0].contains("/amount") && !kept[0].contains("777"), "{kept:?}");
    }
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// Nothing is accepted that cannot be kept: a full store answers 503, and the upstream sees nothing.
#[tokio::test]
async fn a_mismatch_that_cannot_be_kept_is_not_accepted() {
    let redis = RedisServer::start();
    for policy in ["mismatch = { status = 202 }", "mismatch = { status = 202 }\nstore_down = \"forward\""] {
        let rig = Rig::over(&redis.url(), Upstream::counting().await, policy);
        let first = rig.pay(&event("evt_1", 1)).await;
        is_first(&first, "call 0");
        redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let refused = rig.pay(&event("evt_1", 2)).await;
        is_problem(&refused, 503, "store-unavailable");
        is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
        redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        is_problem(&rig.pay(&event("evt_1", 2)).await, 202, "fingerprint-mismatch");
        assert_eq!(rig.upstream.count(), 1);
        redis.cli(&["FLUSHALL"]);
    }
}

/// Every mismatch counts, also of many at once over two gateways, running and finished, while the answer does not wait for it.
#[tokio::test]
async fn a_storm_of_mismatches_is_counted() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, at| later(300, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let text = config(&redis.url(), upstream.address, "");
    let gateways = [Gateway::start(&text), Gateway::start(&text)];
    let owner = deliver(&gateways[0], &event("evt_1", 1));
    upstream.arrived(1).await;
    let storm: Vec<_> = (0..40).map(|at| deliver(&gateways[at % 2], &event("evt_1", 2 + at as u32))).collect();
    for refused in storm {
        let refused: Answer = refused.await.unwrap().unwrap();
        is_problem(&refused, 409, "fingerprint-mismatch");
        assert_eq!(refused.json()["fields"], json!(["/amount"]));
    }
    let first = owner.await.unwrap().unwrap();
    is_first(&first, "call 0");
    eventually("all are counted", || async { counted(&redis) == 40 }).await;
    assert_eq!(quarantines(&redis).len(), 1);
    is_replay(&pay(&gateways[1], &event("evt_1", 1)).await, &first);
    assert_eq!(upstream.count(), 1);
}
