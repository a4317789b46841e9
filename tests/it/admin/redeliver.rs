//! A held event's own request, sent again by an operator: encrypted in the store until it succeeds, and forwarded to the byte.

use std::process::Command;

use serde_json::json;

use super::rig::{OPS, Rig, config, place};
use crate::journey::rig::{event, fence, forwards, is_problem, is_replay};
use crate::support::client::{Answer, post};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream, answer};

const HOLD: &str =
    "unknown = \"hold\"\nkeep_request = \"attention\"\nlease = \"500ms\"\nin_flight = { wait = \"0s\", status = 409 }";

/// A gateway with encryption over `store`, with `more` added to its config. The upstream breaks off at each event's first forward.
async fn rig(store: &str, more: &str) -> Rig {
    let calls = std::sync::Mutex::<std::collections::HashMap<Vec<u8>, usize>>::default();
    let upstream = Upstream::start(move |hit, _| {
        let mut calls = calls.lock().unwrap();
        let call = calls.entry(hit.body.clone()).or_default();
        *call += 1;
        if *call == 1 { Act::Reset } else { answer(201, &[("x-made", "yes")], b"made") }
    })
    .await;
    let keys = "encryption_keys = [{ value = \"a key that only this test has\" }]\n[upstreams.u]";
    let config = config(store, upstream.address, HOLD).replace("[upstreams.u]", keys) + more;
    Rig { gateway: Gateway::start(&config), upstream }
}

/// Delivers an event whose outcome nobody knows then.
async fn hold(rig: &Rig, body: &str, fields: &[(&str, &str)]) {
    is_problem(&post(rig.gateway.ingest, "/pay", fields, body).await, 502, "upstream-failed");
    is_problem(&rig.pay(body).await, 409, "held");
}

/// The same bytes and fields, the same key, the next attempt, a higher fence; its answer is what redeliveries get.
#[tokio::test]
async fn a_held_event_is_sent_again() {
    let redis = RedisServer::start();
    for store in ["sqlite:{dir}/onceward.db", &redis.url()] {
        let rig = rig(store, "").await;
        let body = r#"{"id":"a", "amount":1e2, "more":"\u00e9"}"#;
        hold(&rig, body, &[("x-partner", "p\u{e9}"), ("authorization", "Bearer sender")]).await;
        let done = rig.act(&(place("a") + "/redeliver"), "").await;
        assert_eq!((done.status, &done.json()["upstream_status"]), (200, &json!(201)), "{done:?}");
        let hits = forwards(&rig.upstream, "a");
        assert_eq!(hits.len(), 2, "{hits:?}");
        assert_eq!(hits[0].body, hits[1].body);
        for field in ["x-partner", "authorization", "content-type", "idempotency-key", "x-forwarded-for"] {
            assert_eq!(hits[0].header(field), hits[1].header(field), "{field}");
        }
        assert_eq!(hits[1].header("onceward-attempt"), Some("2"));
        assert!(fence(&hits[1]) > fence(&hits[0]));
        let replay = rig.pay(body).await;
        assert_eq!((replay.status, replay.idempotency(), replay.body.as_slice()), (201, "replay", &b"made"[..]));
        is_replay(&rig.pay(body).await, &replay);
        is_problem(&rig.act(&(place("a") + "/redeliver"), "").await, 409, "conflict");
        assert_eq!(forwards(&rig.upstream, "a").len(), 2);
        let told = rig.see(&place("a")).await.json();
        assert_eq!(
            (&told["state"], &told["operators"][0]["verb"]),
            (&json!("succeeded"), &json!("redeliver")),
            "{told}"
        );
    }
}

/// From a shell, in words; and again when the attempt fails too.
#[tokio::test]
async fn the_command_sends_it_again() {
    let rig = rig("memory:", "").await;
    hold(&rig, &event("a", 1), &[]).await;
    let home = rig.gateway.home();
    let token = home.path().join("token");
    std::fs::write(&token, OPS).unwrap();
    let url = format!("http://{}", rig.gateway.admin);
    let run = |verb: &'static str| {
        let (url, token) = (url.clone(), token.clone());
        tokio::task::spawn_blocking(move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
            command.args(["events", verb, "t/pay", "a", "--url", &url, "--token-file"]).arg(token).output().unwrap()
        })
    };
    let done = run("redeliver").await.unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.contains("201"), "{said} {}", String::from_utf8_lossy(&done.stderr));
    let refused = run("redeliver").await.unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
    assert_eq!(forwards(&rig.upstream, "a").len(), 2);
}

/// An operator and the sender at once, after a release: one of them forwards, the other is told.
#[tokio::test]
async fn an_operator_and_the_sender_at_once() {
    let rig = rig("memory:", "").await;
    for turn in 0..10 {
        let id = format!("e{turn}");
        hold(&rig, &event(&id, 1), &[]).await;
        assert_eq!(rig.act(&(place(&id) + "/release"), "").await.status, 200);
        let (redelivered, delivered): (Answer, Answer) =
            tokio::join!(async { rig.act(&(place(&id) + "/redeliver"), "").await }, async {
                rig.pay(&event(&id, 1)).await
            });
        let at = place(&id);
        eventually("the event ends", || async { rig.see(&at).await.json()["state"] == "succeeded" }).await;
        assert_eq!(forwards(&rig.upstream, &id).len(), 2, "{redelivered:?} {delivered:?}");
        assert!(redelivered.status == 200 || redelivered.status == 409, "{redelivered:?}");
    }
}
