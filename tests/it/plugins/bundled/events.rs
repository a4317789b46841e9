//! The providers' cases, to the letter: the reason of a refusal; key, alias and every material field of an event.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use onceward::event::{Event, Value};
use onceward::plugin::Inspection;
use serde_json::{Value as Json, json};

use super::{Route, delivery};

/// All cases of a provider, by name.
fn cases(provider: &str) -> Vec<Json> {
    let directory = format!("{}/tests/fixtures/providers/{provider}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()).collect()
}

async fn run(provider: &str, case: &Json, mut config: Json) -> Inspection {
    config["secret"] = "case".into();
    config["tolerance_s"] = case["config"]["tolerance_s"].clone();
    let secrets: Vec<_> = case["secrets"].as_array().unwrap().iter().map(|secret| secret.as_str().unwrap()).collect();
    let route = Route::new(provider, &config, &secrets).await;
    let headers: Vec<_> =
        case["headers"].as_array().unwrap().iter().map(|line| (text(&line[0]), text(&line[1]).as_bytes())).collect();
    let body = BASE64_STANDARD.decode(text(&case["body_base64"])).unwrap();
    route.inspect(delivery(case["now"].as_u64().unwrap(), &headers, body)).await.result.unwrap()
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap()
}

fn check(case: &Json, inspection: Inspection) {
    let name = text(&case["name"]);
    match (text(&case["expect"]["reason"]), inspection) {
        ("ok", Inspection::Events(events)) => {
            let items = case["expect"]["items"].as_array().unwrap();
            assert_eq!(events.len(), items.len(), "{name}");
            events.iter().zip(items).for_each(|(event, item)| check_event(name, event, item));
        }
        ("expired", Inspection::Stale(_)) => {}
        ("bad_signature", Inspection::Invalid(refusal)) => {
            assert_eq!(refusal.reason.as_str(), "bad-signature", "{name}")
        }
        (reason, other) => panic!("{name}: {reason} is expected, and the plugin says {other:?}"),
    }
}

fn check_event(name: &str, event: &Event, item: &Json) {
    assert_eq!(json!(event.key), item["key_parts"], "{name}");
    assert!(event.key_signed, "{name}");
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
async fn stripe() {
    for case in cases("stripe") {
        check(&case, run("stripe", &case, json!({})).await);
    }
}

#[tokio::test]
async fn standard_webhooks() {
    let material = ["/type", "/data/id", "/data/amount", "/data/currency", "/data/status"];
    for case in cases("standard-webhooks") {
        check(&case, run("standard-webhooks", &case, json!({ "material": material })).await);
        // Without configured material the whole body counts; key and verdict stay.
        if let Inspection::Events(events) = run("standard-webhooks", &case, json!({})).await {
            assert_eq!(json!(events[0].key), case["expect"]["items"][0]["key_parts"]);
            assert!(events[0].material.is_empty());
        } else {
            assert_eq!(case["expect"]["verified"], false);
        }
    }
}
