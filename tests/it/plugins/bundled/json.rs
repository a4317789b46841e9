//! The plugin `json`: what a route can do by configuration alone.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use onceward::event::{Event, Value};
use onceward::plugin::{FailureKind, Inspection, PluginFault};
use serde_json::{Value as Json, json};

use super::{Route, delivery};

const BODY: &str = r#"{"id":"ord_1","amount":12.50,"currency":"EUR","type":"paid","data":{"id":7.0}}"#;

fn config(verify: Json) -> Json {
    json!({ "key": ["/id"], "material": ["/amount", "/currency", "/none"], "aliases": [["/type", "/data/id"]], "verify": verify })
}

fn mac(algorithm: hmac::Algorithm, secret: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), BODY.as_bytes()).as_ref().to_vec()
}

async fn one(route: &Route, headers: &[(&str, &[u8])]) -> Inspection {
    route.inspect(delivery(1, headers, BODY)).await.result.unwrap()
}

fn event(inspection: Inspection) -> Event {
    match inspection {
        Inspection::Events(mut events) if events.len() == 1 => events.remove(0),
        other => panic!("{other:?}"),
    }
}

fn refused(inspection: Inspection) -> &'static str {
    match inspection {
        Inspection::Invalid(refusal) => refusal.reason.as_str(),
        other => panic!("{other:?}"),
    }
}

/// The contract's own example, in each scheme and encoding, with the old secret of a rotation.
#[tokio::test]
async fn each_mac_verifies_and_nothing_else_does() {
    let schemes = [("hmac-sha256", hmac::HMAC_SHA256), ("hmac-sha512", hmac::HMAC_SHA512)];
    for (scheme, algorithm) in schemes.into_iter().chain([("hmac-sha1", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY)]) {
        let tag = mac(algorithm, "old");
        for (encoding, text) in [("hex", hex::encode(&tag)), ("base64", BASE64_STANDARD.encode(&tag))] {
            let verify = json!({ "scheme": scheme, "header": "X-Signature", "encoding": encoding, "prefix": "v=", "secret": "case" });
            let route = Route::new("json", &config(verify), &["new", "old"]).await;
            let good = format!("v={text}");
            let event = event(one(&route, &[("x-signature", good.as_bytes())]).await);
            assert_eq!(event.key, ["ord_1"]);
            assert!(event.key_signed);
            assert_eq!(event.aliases, [["paid", "7"]]);
            let material: Vec<_> = event.material.into_iter().map(|field| (field.name, field.value)).collect();
            assert_eq!(
                material,
                [
                    ("/amount".to_owned(), Value::Number("12.50".to_owned())),
                    ("/currency".to_owned(), Value::Text("EUR".to_owned())),
                    // Absent, and so named: octets come from no source.
                    ("/none".to_owned(), Value::Bytes(Vec::new())),
                ]
            );
            // Without the prefix, and cut short.
            assert_eq!(refused(one(&route, &[("x-signature", text.as_bytes())]).await), "bad-signature");
            assert_eq!(refused(one(&route, &[("x-signature", &good.as_bytes()[..20])]).await), "bad-signature");
            assert_eq!(refused(one(&route, &[]).await), "missing-signature");
            // Two lines, as some senders do while their secret changes.
            let lines: [(&str, &[u8]); 2] = [("x-signature", b"v=00"), ("x-signature", good.as_bytes())];
            assert!(matches!(one(&route, &lines).await, Inspection::Events(_)));
        }
    }
}

#[tokio::test]
async fn a_token_verifies_the_sender_but_signs_no_key() {
    let verify = json!({ "scheme": "token", "header": "authorization", "prefix": "Bearer ", "secret": "case" });
    let route = Route::new("json", &config(verify), &["s3cret"]).await;
    assert!(!event(one(&route, &[("authorization", b"Bearer s3cret")]).await).key_signed);
    for wrong in [&b"Bearer s3cre"[..], b"s3cret", b"Bearer ", b"Bearer s3crets"] {
        assert_eq!(refused(one(&route, &[("authorization", wrong)]).await), "bad-signature");
    }
}

/// A POST API's `Idempotency-Key`, with any body.
#[tokio::test]
async fn a_header_key_needs_neither_signature_nor_json() {
    let route = Route::new("json", &json!({ "key": ["header:Idempotency-Key"] }), &[]).await;
    let sent = delivery(1, &[("idempotency-key", b"k-1")], "not json");
    let event = event(route.inspect(sent).await.result.unwrap());
    assert_eq!((event.key, event.key_signed, event.material.len()), (vec!["k-1".to_owned()], false, 0));
    let without = route.inspect(delivery(1, &[], "not json")).await.result.unwrap();
    assert_eq!(without, Inspection::Events(Vec::new()));
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_the_senders_fault() {
    let route = Route::new("json", &json!({ "key": ["/id"] }), &[]).await;
    for body in ["", "{", r#"{"id":1,"id":2}"#, r#"{"id":{}}"#, r#"{"id":"\ud800"}"#] {
        let failure = route.inspect(delivery(1, &[], body)).await.result.unwrap_err();
        assert_eq!(failure.kind, FailureKind::PluginError(PluginFault::Malformed), "{body}");
    }
}

#[tokio::test]
async fn a_wrong_config_is_told_whole() {
    let route = Route::new("json", &json!({ "key": ["/id"] }), &[]).await;
    let wrong = json!({ "key": ["id"], "verify": { "scheme": "md5", "header": "h" }, "keys": [] });
    let faults = route.plugin.examine(&wrong.to_string()).await.unwrap().unwrap_err();
    let places: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(places, ["/key/0", "/verify/scheme", "/verify/secret", "/keys"]);
}
