//! What one plugin call costs: the bundled `stripe` plugin over a signed event of 1.5 KB, in a fresh instance with all limits on.

#![expect(clippy::expect_used, reason = "a benchmark that cannot start has nothing else to do")]

use std::sync::Arc;

use aws_lc_rs::hmac;
use criterion::{Criterion, criterion_group, criterion_main};
use onceward::event::{Delivery, Secret};
use onceward::plugin::{Engine, Grant, Inspection, Settings, bundled};

const SECRET: &str = "whsec_bench";
const NOW: u64 = 1_790_000_000;

fn delivery() -> Delivery {
    let body = format!(
        r#"{{"id":"evt_bench","object":"event","data":{{"object":{{"id":"pi_1","object":"payment_intent","amount":12500,"amount_received":12500,"currency":"eur","status":"succeeded","description":"{}"}}}},"livemode":false,"type":"payment_intent.succeeded"}}"#,
        "x".repeat(1270)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, format!("{NOW}.{body}").as_bytes());
    let mut headers = http::HeaderMap::new();
    let signature = format!("t={NOW},v1={}", hex::encode(tag.as_ref()));
    headers.insert("stripe-signature", signature.parse().expect("ASCII"));
    Delivery {
        method: http::Method::POST,
        scheme: "https",
        authority: "hooks.example".into(),
        path: "/in/stripe".into(),
        query: None,
        params: Vec::new(),
        headers,
        body: body.into(),
        received_at_ms: NOW * 1000,
        client_certificate: None,
    }
}

fn fresh_call(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let engine = Engine::new(Settings::default()).expect("an engine");
    let plugin = engine.load("stripe", bundled::bundled("stripe").unwrap_or_default()).expect("a plugin");
    let config = r#"{"secret":"s"}"#;
    let needs = runtime.block_on(plugin.examine(config)).expect("an answer").expect("a good config");
    let secrets = [("s".to_owned(), vec![Secret::new(SECRET)])].into();
    let grant = Arc::new(Grant { config: config.into(), secrets, needs, ..Grant::default() });
    let delivery = Arc::new(delivery());
    let first = runtime.block_on(plugin.inspect(&grant, &delivery));
    assert!(matches!(first.result, Ok(Inspection::Events(_))), "{first:?}");

    let name = format!("stripe, {} B, fresh instance", delivery.body.len());
    criterion.bench_function(&name, |bench| bench.iter(|| runtime.block_on(plugin.inspect(&grant, &delivery))));
}

criterion_group!(benches, fresh_call);
criterion_main!(benches);
