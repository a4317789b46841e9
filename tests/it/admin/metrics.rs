//! I12: the counters equal what was done, and what the log shows.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rig::{Rig, logged};
use crate::journey::rig::{bad_once, event, settle};
use crate::support::client::{get, post};
use crate::support::upstream::{Act, answer};

const SHORT: &str = "lease = \"400ms\"\nin_flight = { wait = \"0s\", status = 409 }";

fn of_route(name: &str, more: &str) -> String {
    format!("{name}{{tenant=\"t\",route=\"pay\"{more}}}")
}

/// One of each: first, replays, a mismatch, no key, a failure and its retry, a silence and its second forward; and no route.
async fn scripted() -> Rig {
    let upstream = bad_once(|id| match id {
        "silent" => Act::Silence,
        "refused" => answer(503, &[], b"busy"),
        _ => answer(200, &[], b"fine"),
    });
    let rig = Rig::over("memory:", upstream.await, SHORT);
    assert_eq!(rig.pay(&event("a", 1)).await.idempotency(), "first");
    assert_eq!(rig.pay(&event("a", 1)).await.idempotency(), "replay");
    assert_eq!(rig.pay(&event("a", 1)).await.idempotency(), "replay");
    assert_eq!(rig.pay(&event("a", 2)).await.idempotency(), "mismatch");
    assert_eq!(rig.pay("{}").await.code(), "missing-key");
    assert_eq!(rig.pay(&event("refused", 1)).await.status, 503);
    assert_eq!(rig.pay(&event("refused", 1)).await.status, 200);
    assert_eq!(rig.pay(&event("silent", 1)).await.code(), "upstream-timeout");
    let retried = settle(&rig.gateway, &event("silent", 1)).await;
    assert_eq!((retried.status, retried.idempotency()), (200, "first"), "{retried:?}");
    assert_eq!(post(rig.gateway.ingest, "/nowhere", &[], "").await.code(), "no-route");
    assert_eq!(get(rig.gateway.ingest, "/pay").await.code(), "method-not-allowed");
    rig
}

#[tokio::test]
async fn counters_equal_a_scripted_run_and_its_log() {
    let rig = scripted().await;
    let metrics = rig.metrics().await;
    let count = |name: &str| metrics.get(name).copied().unwrap_or_default();
    let outcome = |word: &str| count(&of_route("onceward_requests_total", &format!(",outcome=\"{word}\"")));
    // How many duplicates met the running event depends on the machine's speed.
    let busy = outcome("in-flight");
    for (word, expected) in [
        ("first", 4.0),
        ("replay", 2.0),
        ("fingerprint-mismatch", 1.0),
        ("missing-key", 1.0),
        ("upstream-timeout", 1.0),
    ] {
        assert_eq!(outcome(word), expected, "{word}: {metrics:?}");
    }
    let result = |word: &str| count(&of_route("onceward_claims_total", &format!(",result=\"{word}\"")));
    for (word, expected) in [("claimed", 5.0), ("replay", 2.0), ("mismatch", 1.0), ("in-flight", busy), ("error", 0.0)]
    {
        assert_eq!(result(word), expected, "{word}: {metrics:?}");
    }
    for (name, expected) in [
        ("onceward_replays_total", 2.0),
        ("onceward_mismatches_total", 1.0),
        ("onceward_in_flight_conflicts_total", busy),
        ("onceward_takeovers_total", 1.0),
        ("onceward_unknown_outcomes_total", 1.0),
        ("onceward_lease_lost_total", 0.0),
        ("onceward_finalise_failures_total", 0.0),
        ("onceward_processing", 0.0),
        ("onceward_processing_oldest_seconds", 0.0),
        ("onceward_upstream_seconds_count", 5.0),
        ("onceward_request_seconds_count", 9.0 + busy),
    ] {
        assert_eq!(metrics.get(&of_route(name, "")), Some(&expected), "{name}: {metrics:?}");
    }
    let unrouted = |word: &str| count(&format!("onceward_requests_total{{tenant=\"\",route=\"\",outcome=\"{word}\"}}"));
    assert_eq!((unrouted("no-route"), unrouted("method-not-allowed")), (1.0, 1.0), "{metrics:?}");
    assert_eq!(count("onceward_config_generation"), 1.0);
    assert_eq!(count("onceward_window_resets_total"), 0.0);
    let plugin: f64 = metrics.get("onceward_plugin_seconds_count{plugin=\"json\"}").copied().unwrap();
    assert_eq!(plugin, 9.0 + busy, "each routed delivery is one call: {metrics:?}");
    assert_eq!(count("onceward_plugin_fuel_count{plugin=\"json\"}"), plugin);
    assert!(count("onceward_store_seconds_count{op=\"swap\"}") >= 11.0, "{metrics:?}");
    assert_eq!(count("onceward_store_errors_total{kind=\"timeout\"}"), 0.0);
    the_log_says_the_same(&rig, &metrics);
}

fn the_log_says_the_same(rig: &Rig, metrics: &BTreeMap<String, f64>) {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for line in logged(&rig.gateway, "onceward::event") {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let name = format!(
            "onceward_requests_total{{tenant=\"{}\",route=\"{}\",outcome=\"{}\"}}",
            text("tenant"),
            text("route"),
            text("decision")
        );
        *lines.entry(name).or_default() += 1.0;
    }
    let counted: BTreeMap<String, f64> = metrics
        .iter()
        .filter(|(name, _)| name.starts_with("onceward_requests_total"))
        .map(|(n, v)| (n.clone(), *v))
        .collect();
    assert_eq!(counted, lines);
    for (kind, expected) in [("mismatch", 1), ("unknown_outcome", 1), ("second_forward", 1), ("lease_lost", 0)] {
        assert_eq!(rig.audit(kind).len(), expected, "{kind}");
    }
    let second: &Value = &rig.audit("second_forward")[0];
    assert_eq!((&second["idempotency_key"], &second["attempt"]), (&"t:pay:silent".into(), &2.into()), "{second}");
    assert!(second["fence"].as_u64().is_some() && second["event"].as_str().is_some(), "{second}");
}

/// A claim shows while its forward runs, with its age.
#[tokio::test]
async fn what_runs_is_shown_while_it_runs() {
    let slow = crate::support::upstream::Upstream::start(|_, _| {
        crate::support::upstream::later(350, answer(200, &[], b"slow"))
    });
    let rig = Rig::over("memory:", slow.await, "");
    let delivery = crate::journey::rig::deliver(&rig.gateway, &event("a", 1));
    rig.upstream.arrived(1).await;
    let metrics = rig.metrics().await;
    assert_eq!(metrics.get(&of_route("onceward_processing", "")), Some(&1.0), "{metrics:?}");
    assert!(metrics[&of_route("onceward_processing_oldest_seconds", "")] > 0.0, "{metrics:?}");
    delivery.await.unwrap().unwrap();
    assert_eq!(rig.metrics().await.get(&of_route("onceward_processing", "")), Some(&0.0));
}

/// Whatever is sent, no label comes from a request.
#[tokio::test]
async fn labels_are_not_the_senders() {
    let rig = Rig::start("").await;
    for at in 0..50 {
        post(rig.gateway.ingest, &format!("/canary{at}"), &[], "").await;
        rig.pay(&event(&format!("canary{at}"), at)).await;
    }
    let text = String::from_utf8(get(rig.gateway.admin, "/metrics").await.body).unwrap();
    assert!(!text.contains("canary"), "{text}");
}
