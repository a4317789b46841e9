//! Who may send: signed routes through the whole gateway, with deliveries signed now.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::rig::{Rig, event, is_first, is_problem, is_replay};
use crate::support::client::{Answer, post};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

const STRIPE_SECRET: &str = "whsec_test-only-of-this-test";
const JSON_PLUGIN: &str = r#"plugin = "json"
plugin_config = { key = ["/id"], material = ["/amount"] }"#;
const STRIPE_PLUGIN: &str = r#"plugin = "stripe"
plugin_config = { secret = "sender", tolerance = "5m" }"#;
const STANDARD_PLUGIN: &str = r#"plugin = "standard-webhooks"
plugin_config = { secret = "sender", tolerance = "5m" }"#;
const HMAC_PLUGIN: &str = r#"plugin = "json"
plugin_config = { key = ["/id"], material = ["/amount"], verify = { scheme = "hmac-sha256", header = "x-signature", secret = "sender" } }"#;

/// The route `/pay` with another plugin, whose secrets are these.
async fn signed(store: &str, plugin: &str, secrets: &[&str]) -> Rig {
    let upstream = Upstream::counting().await;
    let secrets: Vec<_> = secrets.iter().map(|secret| format!("{{ value = \"{secret}\" }}")).collect();
    let text = config(store, upstream.address, "").replace(JSON_PLUGIN, plugin)
        + &format!(
            "[tenants.t.secrets]\n{}",
            if secrets.is_empty() { String::new() } else { format!("sender = [{}]\n", secrets.join(", ")) }
        );
    Rig { gateway: Gateway::start(&text), upstream }
}

fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a sender signs with its own clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn hmac(secret: &[u8], message: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    message.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn case(provider: &str, name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/providers/{provider}/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let case: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap()
}

async fn stripe(rig: &Rig, secret: &str, at: u64, body: &[u8]) -> Answer {
    let tag = hex::encode(hmac(secret.as_bytes(), &[at.to_string().as_bytes(), b".", body]));
    post(rig.gateway.ingest, "/pay", &[("Stripe-Signature", &format!("t={at},v1={tag}"))], body).await
}

/// Stripe's own bytes, signed now: first, redelivery (other signature, same event), conflict.
#[tokio::test]
async fn stripe_through_the_gateway() {
    let rig = signed(SQLITE, STRIPE_PLUGIN, &[STRIPE_SECRET]).await;
    let first = stripe(&rig, STRIPE_SECRET, now() - 30, &case("stripe", "01-first")).await;
    is_first(&first, "call 0");
    assert_eq!(rig.upstream.hits()[0].body, case("stripe", "01-first"));
    is_replay(&stripe(&rig, STRIPE_SECRET, now(), &case("stripe", "02-redelivery")).await, &first);
    let conflict = stripe(&rig, STRIPE_SECRET, now(), &case("stripe", "03-conflict-amount")).await;
    is_problem(&conflict, 409, "fingerprint-mismatch");
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 62: stale and future timestamps, rotation, a body that was touched; the tolerance is a gate of its own.
#[tokio::test]
async fn s62_stripe_signatures() {
    let rig = signed(SQLITE, STRIPE_PLUGIN, &["whsec_new", STRIPE_SECRET]).await;
    let body = case("stripe", "01-first");
    for at in [now() - 900, now() + 900] {
        let stale = stripe(&rig, STRIPE_SECRET, at, &body).await;
        is_problem(&stale, 401, "stale");
        assert_eq!(stale.idempotency(), "rejected");
    }
    is_problem(&stripe(&rig, "whsec_unknown", now(), &body).await, 401, "unverified");
    is_problem(&post(rig.gateway.ingest, "/pay", &[], &body).await, 401, "unverified");
    let at = now().to_string();
    let tag = hex::encode(hmac(STRIPE_SECRET.as_bytes(), &[at.as_bytes(), b".", &body]));
    let touched = [body.as_slice(), b" "].concat();
    let signature = format!("t={at},v1={tag}");
    is_problem(
        &post(rig.gateway.ingest, "/pay", &[("Stripe-Signature", &signature)], touched).await,
        401,
        "unverified",
    );
    assert_eq!(rig.upstream.count(), 0);
    let first = stripe(&rig, STRIPE_SECRET, now(), &body).await;
    is_first(&first, "call 0");
    is_replay(&stripe(&rig, "whsec_new", now(), &body).await, &first);
    let several = format!("t={at},v1={},v1={tag}", "0".repeat(64));
    is_replay(&post(rig.gateway.ingest, "/pay", &[("Stripe-Signature", &several)], &body).await, &first);
}

/// Standard Webhooks' own bytes, signed now.
#[tokio::test]
async fn standard_webhooks_through_the_gateway() {
    let key = [7_u8; 32];
    let rig = signed(SQLITE, STANDARD_PLUGIN, &[&format!("whsec_{}", STANDARD.encode(key))]).await;
    let send = async |id: &str, at: u64, body: Vec<u8>| {
        let at = at.to_string();
        let tag = STANDARD.encode(hmac(&key, &[id.as_bytes(), b".", at.as_bytes(), b".", &body]));
        let tag = format!("v1,{tag}");
        let fields = [("webhook-id", id), ("webhook-timestamp", at.as_str()), ("webhook-signature", tag.as_str())];
        post(rig.gateway.ingest, "/pay", &fields, body).await
    };
    let body = || case("standard-webhooks", "01-first");
    let first = send("msg_1", now() - 20, body()).await;
    is_first(&first, "call 0");
    is_replay(&send("msg_1", now(), body()).await, &first);
    is_problem(
        &send("msg_1", now(), case("standard-webhooks", "03-conflict-amount")).await,
        409,
        "fingerprint-mismatch",
    );
    is_problem(&send("msg_1", now() - 900, body()).await, 401, "stale");
    is_first(&send("msg_2", now(), body()).await, "call 1");
    assert_eq!(rig.upstream.count(), 2);
}

/// `json` with `verify`: the MAC covers the raw body.
#[tokio::test]
async fn json_with_a_mac() {
    let rig = signed(SQLITE, HMAC_PLUGIN, &["partner"]).await;
    let body = event("evt_1", 1);
    let tag = hex::encode(hmac(b"partner", &[body.as_bytes()]));
    let send = async |tag: &str, body: &str| post(rig.gateway.ingest, "/pay", &[("X-Signature", tag)], body).await;
    let first = send(&tag, &body).await;
    is_first(&first, "call 0");
    is_replay(&send(&tag, &body).await, &first);
    is_problem(&send(&tag, &event("evt_1", 2)).await, 401, "unverified");
    is_problem(&send("", &body).await, 401, "unverified");
    is_problem(&rig.pay(&body).await, 401, "unverified");
    assert_eq!(rig.upstream.count(), 1);
}

/// §3: an unverified sender makes no store call and learns nothing: a known event is refused in the same words as an unknown one.
#[tokio::test]
async fn an_unverified_sender_learns_nothing() {
    let redis = RedisServer::start();
    let rig = signed(&redis.url(), STRIPE_PLUGIN, &[STRIPE_SECRET]).await;
    let body = case("stripe", "01-first");
    is_first(&stripe(&rig, STRIPE_SECRET, now(), &body).await, "call 0");
    let known = body.clone();
    let unknown = String::from_utf8(body).unwrap().replace("evt_", "evx_").into_bytes();
    // Commands that touch records; health checks may come and go.
    let store_calls = || {
        let stats = redis.cli(&["INFO", "commandstats"]);
        let words = ["cmdstat_eval", "cmdstat_evalsha", "cmdstat_fcall", "cmdstat_h", "cmdstat_set", "cmdstat_get"];
        let calls = stats.lines().filter(|line| words.iter().any(|word| line.starts_with(word)));
        calls
            .map(|line| line.split(',').next().unwrap_or("").to_owned())
            .filter(|line| !line.starts_with("cmdstat_hello"))
            .collect::<Vec<_>>()
    };
    let before = store_calls();
    let mut refusals = Vec::new();
    for body in [&known, &unknown] {
        let refused = stripe(&rig, "whsec_forged", now(), body).await;
        is_problem(&refused, 401, "unverified");
        let mut problem = refused.json();
        problem["event"] = Value::Null;
        refusals.push((refused.status, problem));
    }
    assert_eq!(refusals[0], refusals[1], "nothing is revealed");
    assert_eq!(store_calls(), before, "the store was asked");
    assert_eq!(
        redis.cli(&["--scan", "--pattern", "onceward:rec:*"]).lines().filter(|key| key.contains("evx_")).count(),
        0
    );
    assert_eq!(rig.upstream.count(), 1);
}

/// §2, "rate counts verified events": forged ones cost a tenant nothing, and what is over the rate is refused unclaimed.
#[tokio::test]
async fn the_rate_counts_verified_events() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "").replace(JSON_PLUGIN, HMAC_PLUGIN)
        + "[tenants.t]\nsecrets.sender = [{ value = \"partner\" }]\nlimits = { rate = \"5/h\" }\n";
    let rig = Rig { gateway: Gateway::start(&text), upstream };
    for at in 0..20 {
        let forged = post(rig.gateway.ingest, "/pay", &[("X-Signature", "00")], event(&format!("evt_{at}"), 1)).await;
        is_problem(&forged, 401, "unverified");
    }
    for at in 0..8 {
        let body = event(&format!("evt_{at}"), 1);
        let tag = hex::encode(hmac(b"partner", &[body.as_bytes()]));
        let answer = post(rig.gateway.ingest, "/pay", &[("X-Signature", &tag)], body).await;
        if at < 5 {
            is_first(&answer, &format!("call {at}"));
        } else {
            is_problem(&answer, 429, "rate-limited");
            assert_eq!(answer.idempotency(), "rejected");
        }
    }
    assert_eq!(rig.upstream.count(), 5);
}

/// `refuse_status`: what this sender is told.
#[tokio::test]
async fn refuse_status() {
    let plugin = format!("refuse_status = 403\n{HMAC_PLUGIN}");
    let rig = signed(SQLITE, &plugin, &["partner"]).await;
    is_problem(&rig.pay(&event("evt_1", 1)).await, 403, "unverified");
}

/// `unsigned = "reject"`: a route whose sender signs nothing takes nothing.
#[tokio::test]
async fn unsigned_reject() {
    let rig = signed(SQLITE, &format!("unsigned = \"reject\"\n{JSON_PLUGIN}"), &[]).await;
    is_problem(&rig.pay(&event("evt_1", 1)).await, 401, "unverified");
    assert_eq!(rig.upstream.count(), 0);
}
