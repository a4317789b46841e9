//! What operators do with events: release, succeed, redeliver.

use serde_json::{Value, json};

use super::rig::{Rig, place};
use crate::journey::rig::{bad_once, event, is_problem};
use crate::support::client::Answer;
use crate::support::eventually;
use crate::support::upstream::{Act, answer, later};

const HOLD: &str = "unknown = \"hold\"\nlease = \"500ms\"\nin_flight = { wait = \"0s\", status = 409 }";

/// A gateway that holds event `a`, whose first forward nobody knows the outcome of.
async fn held() -> Rig {
    let rig = Rig::over("memory:", bad_once(|_| Act::Silence).await, HOLD);
    is_problem(&rig.pay(&event("a", 1)).await, 504, "upstream-timeout");
    is_problem(&rig.pay(&event("a", 1)).await, 409, "held");
    rig
}

async fn next(rig: &Rig, id: &str) -> Vec<(String, u64)> {
    let told = rig.see(&place(id)).await.json();
    let next = told["next"].as_array().unwrap().clone();
    next.iter()
        .map(|next| (next["decision"].as_str().unwrap().to_owned(), next["status"].as_u64().unwrap_or(0)))
        .collect()
}

fn words(pairs: [(&str, u64); 2]) -> Vec<(String, u64)> {
    pairs.map(|(word, status)| (word.to_owned(), status)).to_vec()
}

/// The next delivery claims, whatever it holds; attempt and fence go on, and the upstream sees that.
#[tokio::test]
async fn a_released_event_is_forwarded_by_the_next_delivery() {
    let rig = held().await;
    assert_eq!(next(&rig, "a").await, words([("held", 409), ("mismatch", 409)]));
    let done = rig.act(&(place("a") + "/release"), "").await;
    assert_eq!((done.status, done.json()), (200, json!({ "verb": "release", "state": "failed" })));
    assert_eq!(next(&rig, "a").await, words([("forward", 0), ("forward", 0)]));
    let told = rig.see(&place("a")).await.json();
    assert_eq!((&told["released"], told["operators"][0]["verb"].as_str()), (&json!(true), Some("release")), "{told}");
    assert_eq!(told["operators"][0]["by"], "ops");
    // Other material than before: the operator said that it may be.
    let second = rig.pay(&event("a", 2)).await;
    assert_eq!((second.status, second.idempotency()), (200, "first"), "{second:?}");
    let hits = rig.upstream.hits();
    assert_eq!(hits.len(), 2);
    assert_eq!(hits[1].header("onceward-attempt"), Some("2"));
    assert!(crate::journey::rig::fence(&hits[1]) > crate::journey::rig::fence(&hits[0]));
    let told = rig.see(&place("a")).await.json();
    let states: Vec<&str> =
        told["attempts"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["unknown", "succeeded"], "{told}");
    let line = &rig.audit("operator")[0];
    assert_eq!(
        (&line["verb"], &line["by"], &line["result"]),
        (&json!("release"), &json!("ops"), &json!("done")),
        "{line}"
    );
    assert_eq!(
        (&line["tenant"], &line["scope"], &line["idempotency_key"]),
        (&json!("t"), &json!("pay"), &json!("t:pay:a"))
    );
}

/// Redeliveries get the operator's answer, byte for byte, and nothing is forwarded.
#[tokio::test]
async fn a_succeeded_event_replays_the_given_answer() {
    let rig = held().await;
    let given = r#"{"status":201,"headers":{"x-by":"hand"},"body_base64":"AP8="}"#;
    assert_eq!(rig.act(&(place("a") + "/succeed"), given).await.status, 200);
    let replay = rig.pay(&event("a", 1)).await;
    assert_eq!(
        (replay.status, replay.idempotency(), replay.body.as_slice()),
        (201, "replay", &[0, 255][..]),
        "{replay:?}"
    );
    assert_eq!(replay.header("x-by"), Some("hand"));
    is_problem(&rig.pay(&event("a", 2)).await, 409, "fingerprint-mismatch");
    assert_eq!(rig.upstream.count(), 1);
    for verb in ["release", "succeed", "redeliver"] {
        is_problem(&rig.act(&format!("{}/{verb}", place("a")), "").await, 409, "conflict");
    }
    let results: Vec<Value> = rig.audit("operator").iter().map(|line| line["result"].clone()).collect();
    assert_eq!(results, ["done", "refused", "refused", "refused"]);
}

#[tokio::test]
async fn without_an_answer_a_success_is_200_and_empty() {
    let rig = held().await;
    assert_eq!(rig.act(&(place("a") + "/succeed"), "").await.status, 200);
    let replay = rig.pay(&event("a", 1)).await;
    assert_eq!((replay.status, replay.idempotency(), replay.body.len()), (200, "replay", 0), "{replay:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_changes_nothing() {
    let rig = held().await;
    for bad in ["{", "[]", r#"{"status":"x"}"#, r#"{"status":100}"#, r#"{"bdy":""}"#, r#"{"body_base64":"*"}"#] {
        is_problem(&rig.act(&(place("a") + "/succeed"), bad).await, 400, "bad-body");
    }
    assert_eq!(next(&rig, "a").await, words([("held", 409), ("mismatch", 409)]));
}

/// A forward under way is nobody's to change; without a kept request there is nothing to send again.
#[tokio::test]
async fn a_running_event_and_one_without_a_request_are_refused() {
    let slow = crate::support::upstream::Upstream::start(|_, _| later(300, answer(200, &[], b"slow"))).await;
    let rig = Rig::over("memory:", slow, "");
    let delivery = crate::journey::rig::deliver(&rig.gateway, &event("a", 1));
    rig.upstream.arrived(1).await;
    for verb in ["release", "succeed", "redeliver"] {
        is_problem(&rig.act(&format!("{}/{verb}", place("a")), "").await, 409, "conflict");
    }
    assert_eq!(next(&rig, "a").await, words([("in-flight", 409), ("mismatch", 409)]));
    assert_eq!(delivery.await.unwrap().unwrap().status, 200);

    let rig = held().await;
    let refused: Answer = rig.act(&(place("a") + "/redeliver"), "").await;
    is_problem(&refused, 409, "conflict");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("release it, then let the sender resend"), "{detail}");
}

/// Of many operators at once exactly one changes the event.
#[tokio::test]
async fn races_are_decided_once() {
    let rig = std::sync::Arc::new(held().await);
    let acting: Vec<_> = (0..12)
        .map(|at| {
            let rig = std::sync::Arc::clone(&rig);
            tokio::spawn(
                async move { rig.act(&(place("a") + "/succeed"), &format!(r#"{{"body":"{at}"}}"#)).await.status },
            )
        })
        .collect();
    let mut done = 0;
    for acting in acting {
        match acting.await.unwrap() {
            200 => done += 1,
            409 => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(done, 1);
    let told = rig.see(&place("a")).await.json();
    assert_eq!(told["operators"].as_array().unwrap().len(), 1, "{told}");
}

/// Who waits for a running event's lease hears of the operator's word at once.
#[tokio::test]
async fn a_waiting_duplicate_gets_the_operators_answer() {
    let idempotency = "lease = \"20s\"\nin_flight = { wait = \"10s\", status = 409 }";
    let rig = Rig::over("memory:", bad_once(|_| Act::Reset).await, idempotency);
    is_problem(&rig.pay(&event("a", 1)).await, 502, "upstream-failed");
    let waiting = crate::journey::rig::deliver(&rig.gateway, &event("a", 1));
    eventually("the duplicate waits", || async {
        let met = rig
            .metrics()
            .await
            .get("onceward_requests_total{tenant=\"t\",route=\"pay\",outcome=\"in-flight\"}")
            .copied();
        met.is_none() && !waiting.is_finished()
    })
    .await;
    assert_eq!(rig.act(&(place("a") + "/succeed"), r#"{"body":"by hand"}"#).await.status, 200);
    let answered = waiting.await.unwrap().unwrap();
    assert_eq!((answered.status, answered.idempotency(), answered.body.as_slice()), (200, "replay", &b"by hand"[..]));
}
