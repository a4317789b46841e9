//! The providers' cases, to the letter: the reason of a refusal; key, alias and every material field of an event.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use onceward::event::{Event, Value};
use onceward::plugin::{Inspection, Plugin};
use serde_json::{Value as Json, json};

use super::{Route, delivery, load};

/// All cases of a provider, by name.
fn cases(provider: &str) -> Vec<Json> {
    let directory = format!("{}/tests/fixtures/providers/{provider}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()).collect()
}

async fn run(plugin: &Plugin, case: &Json, extra: Json) -> Inspection {
    let mut config = case["config"].clone();
    config["secret"] = "case".into();
    config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let secrets: Vec<_> = case["secrets"].as_array().unwrap().iter().map(|secret| secret.as_str().unwrap()).collect();
    let route = Route::of(plugin.clone(), &config, &secrets).await;
    let headers: Vec<_> =
        case["headers"].as_array().unwrap().iter().map(|line| (text(&line[0]), text(&line[1]).as_bytes())).collect();
    let body = BASE64_STANDARD.decode(text(&case["body_base64"])).unwrap();
    let mut sent = delivery(case["now"].as_u64().unwrap(), &headers, body);
    sent.method = text(&case["method"]).parse().unwrap();
    sent.query = text(&case["path"]).split_once('?').map(|(_, query)| query.to_owned());
    route.inspect(sent).await.result.unwrap()
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap()
}

fn check(case: &Json, inspection: Inspection) {
    let name = text(&case["name"]);
    let expect = &case["expect"];
    match (text(&expect["reason"]), inspection) {
        ("ok", Inspection::Respond(reply)) if expect["kind"] == "handshake" => {
            assert_eq!(json!(reply.status.as_u16()), expect["respond"]["status"], "{name}");
            assert_eq!(reply.body, text(&expect["respond"]["body"]), "{name}");
        }
        ("ok", Inspection::Events(events)) => {
            let items = expect["items"].as_array().unwrap();
            assert_eq!(events.len(), items.len(), "{name}");
            events.iter().zip(items).for_each(|(event, item)| check_event(case, event, item));
        }
        ("expired", Inspection::Stale(_)) => {}
        ("unsigned", Inspection::Pass(_)) => assert_eq!(expect["kind"], "thin-ping", "{name}"),
        (reason, Inspection::Invalid(refusal)) => {
            assert_eq!(refusal.reason.as_str(), reason.replace('_', "-"), "{name}");
            let status = refusal.status.map(|status| status.as_u16());
            assert_eq!(json!(status), expect["respond"]["bad_signature"], "{name}");
        }
        (reason, other) => panic!("{name}: {reason} is expected, and the plugin says {other:?}"),
    }
}

fn check_event(case: &Json, event: &Event, item: &Json) {
    let name = text(&case["name"]);
    assert_eq!(json!(event.key), item["key_parts"], "{name}");
    // Midtrans signs the order's id and not what happened to it.
    let key_signed = case["expect"]["key_signed"] != false && case["provider"] != "midtrans";
    assert_eq!(event.key_signed, key_signed, "{name}");
    let aliases = item.get("alias_parts").into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(json!(event.aliases), Json::Array(aliases), "{name}");
    let material: serde_json::Map<_, _> =
        event.material.iter().map(|field| (field.name.clone(), plain(&field.value))).collect();
    assert_eq!(Json::Object(material), item["material"], "{name}");
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Number(token) => serde_json::from_str(token).unwrap(),
        Value::Bool(flag) => json!(flag),
        Value::Null => Json::Null,
        Value::Bytes(bytes) => json!(bytes),
    }
}

#[tokio::test]
async fn providers_with_fixed_material() {
    // CloudEvents has the data's digest for material, and PayPal needs certificates: `plugin test` runs both.
    let providers = [
        "adyen",
        "braintree",
        "checkout-com",
        "flutterwave",
        "github",
        "gocardless",
        "midtrans",
        "mollie",
        "paystack",
        "razorpay",
        "shopify",
        "slack",
        "square",
        "stripe",
        "svix",
        "twilio",
        "xendit",
    ];
    for provider in providers {
        let plugin = load(provider);
        for case in cases(provider) {
            check(&case, run(&plugin, &case, json!({})).await);
        }
    }
}

#[tokio::test]
async fn standard_webhooks() {
    let material = ["/type", "/data/id", "/data/amount", "/data/currency", "/data/status"];
    let plugin = load("standard-webhooks");
    for case in cases("standard-webhooks") {
        check(&case, run(&plugin, &case, json!({ "material": material })).await);
        // Without configured material the whole body counts; key and verdict stay.
        if let Inspection::Events(events) = run(&plugin, &case, json!({})).await {
            assert_eq!(json!(events[0].key), case["expect"]["items"][0]["key_parts"]);
            assert!(events[0].material.is_empty());
        } else {
            assert_eq!(case["expect"]["verified"], false);
        }
    }
}
