//! Batches as Adyen, GoCardless and CloudEvents send them, made up to be as large and as awkward as a genuine sender's can be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::rig::{is_first, is_problem, is_replay};
use crate::support::client::{Answer, post};
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;

/// Adyen shows its keys in hexadecimal.
const KEY: [u8; 32] = [0x5a; 32];
/// The most events that a request may carry.
const EVENTS_MAX: usize = 1000;

/// The three routes, and their upstream.
struct Senders {
    gateway: Gateway,
    upstream: Upstream,
}

impl Senders {
    async fn start() -> Self {
        let upstream = Upstream::counting().await;
        let mut text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = \"{{dir}}/state\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nurl = \"memory:\"\n[upstreams.u]\nurl = \"http://{}\"\n[tenants.t]\n\
             limits = {{ rate = \"100000/s\" }}\n[tenants.t.secrets]\nsender = [{{ value = \"{}\" }}]\n",
            upstream.address,
            hex::encode(KEY)
        );
        for plugin in ["adyen", "gocardless", "cloudevents"] {
            text += &format!(
                "[[routes]]\ntenant = \"t\"\nname = \"{plugin}\"\npath = \"/{plugin}\"\nupstream = \"u\"\n\
                 plugin = \"{plugin}\"\nplugin_config = {{ secret = \"sender\" }}\n"
            );
        }
        Self { gateway: Gateway::start(&text), upstream }
    }

    async fn adyen(&self, items: &[Value]) -> Answer {
        let body = json!({ "live": "false", "notificationItems": items }).to_string();
        post(self.gateway.ingest, "/adyen", &[("content-type", "application/json")], body).await
    }

    async fn gocardless(&self, events: &[Value]) -> Answer {
        let body = json!({ "events": events, "meta": { "webhook_id": "WB1" } }).to_string();
        let tag = hex::encode(hmac(hex::encode(KEY).as_bytes(), body.as_bytes()));
        post(self.gateway.ingest, "/gocardless", &[("Webhook-Signature", &tag)], body).await
    }

    async fn cloudevents(&self, events: &[Value]) -> Answer {
        let token = format!("Bearer {}", hex::encode(KEY));
        let fields = [("authorization", token.as_str()), ("content-type", "application/cloudevents-batch+json")];
        post(self.gateway.ingest, "/cloudevents", &fields, Value::from(events).to_string()).await
    }

    /// What the upstream was told of the last forward's items, in short: `f` and `r`.
    fn items(&self) -> String {
        let hits = self.upstream.hits();
        let items = hits.last().and_then(|hit| hit.header("onceward-items")).unwrap_or_default();
        items.split(", ").filter_map(|item| item.chars().next()).collect()
    }
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// A signed item.
fn adyen(reference: &str, value: u64) -> Value {
    let signed = format!("{reference}::T:o-1:{value}:EUR:AUTHORISATION:true");
    json!({ "NotificationRequestItem": {
        "pspReference": reference, "merchantAccountCode": "T", "merchantReference": "o-1",
        "amount": { "value": value, "currency": "EUR" }, "eventCode": "AUTHORISATION", "success": "true",
        "additionalData": { "hmacSignature": STANDARD.encode(hmac(&KEY, signed.as_bytes())) },
    } })
}

fn gocardless(id: &str, action: &str) -> Value {
    json!({ "id": id, "resource_type": "payments", "action": action, "links": { "payment": "PM1", "mandate": "MD1" },
        "details": { "cause": "payment_confirmed" } })
}

/// Without data: what a plugin hands over of a request has room for a thousand such events.
fn cloudevent(id: usize, kind: &str) -> Value {
    json!({ "specversion": "1.0", "id": id.to_string(), "source": "/s", "type": kind })
}

/// The same item twice is one event; two amounts under one key refuse the whole request, and what came with them is free.
#[tokio::test]
async fn items_that_repeat() {
    let rig = Senders::start().await;
    let (a, b) = (adyen("A", 1), adyen("B", 1));
    let first = rig.adyen(&[a.clone(), b.clone(), a.clone()]).await;
    is_first(&first, "call 0");
    assert_eq!(rig.items(), "ffr");
    is_replay(&rig.adyen(&[b.clone(), a.clone()]).await, &first);
    is_replay(&rig.adyen(&[b]).await, &first);

    let refused = rig.adyen(&[adyen("C", 1), adyen("D", 1), adyen("C", 2)]).await;
    is_problem(&refused, 409, "fingerprint-mismatch");
    assert_eq!(refused.json()["fields"], json!(["/amount/value"]));
    is_problem(&rig.adyen(&[adyen("D", 1), adyen("A", 9)]).await, 409, "fingerprint-mismatch");
    is_first(&rig.adyen(&[adyen("D", 1), a]).await, "call 1");
    assert_eq!(rig.items(), "fr");

    let mut forged = adyen("E", 1);
    forged["NotificationRequestItem"]["amount"]["value"] = json!(2);
    is_problem(&rig.adyen(&[adyen("F", 1), forged]).await, 401, "unverified");
    is_first(&rig.adyen(&[adyen("F", 1)]).await, "call 2");
}

/// GoCardless' largest batch, and the same events cut otherwise: in the next request some of them are known.
#[tokio::test]
async fn a_batch_made_up_anew() {
    let rig = Senders::start().await;
    let events: Vec<_> = (0..300).map(|at| gocardless(&format!("EV{at:024}"), "confirmed")).collect();
    let first = rig.gocardless(&events[..250]).await;
    is_first(&first, "call 0");
    assert_eq!(rig.items(), "f".repeat(250));
    is_first(&rig.gocardless(&events[50..]).await, "call 1");
    assert_eq!(rig.items(), "r".repeat(200) + &"f".repeat(50));
    is_replay(&rig.gocardless(&events[..1]).await, &first);
    let failed = gocardless(&format!("EV{:024}", 7), "failed");
    is_problem(&rig.gocardless(&[failed]).await, 409, "fingerprint-mismatch");
    assert_eq!(rig.upstream.count(), 2);
}

/// A thousand events go through, one more is refused, and nothing of it is claimed.
#[tokio::test]
async fn the_largest_batch() {
    let rig = Senders::start().await;
    let events: Vec<_> = (0..=EVENTS_MAX).map(|at| cloudevent(at, "paid")).collect();
    is_problem(&rig.cloudevents(&events).await, 400, "malformed");
    assert_eq!(rig.upstream.count(), 0);
    let first = rig.cloudevents(&events[..EVENTS_MAX]).await;
    is_first(&first, "call 0");
    assert_eq!(rig.items(), "f".repeat(EVENTS_MAX));
    is_replay(&rig.cloudevents(&events[..EVENTS_MAX]).await, &first);
    is_first(&rig.cloudevents(&events[1..]).await, "call 1");
    assert_eq!(rig.items(), "r".repeat(EVENTS_MAX - 1) + "f");
    let mut other = events[1..].to_vec();
    other.push(cloudevent(500, "void"));
    is_problem(&rig.cloudevents(&other[1..]).await, 409, "fingerprint-mismatch");
    is_problem(&rig.cloudevents(&vec![events[0].clone(); EVENTS_MAX + 1]).await, 400, "malformed");
    is_replay(&rig.cloudevents(&vec![events[0].clone(); EVENTS_MAX]).await, &first);
    assert_eq!(rig.upstream.count(), 2);
}
