//! Anyone who knows the URL can send anything: the answer is a refusal, never a failure of the plugin.

use onceward::plugin::{FailureKind, Inspection, PluginFault};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::{Route, delivery};

/// Header values: octets that HTTP lets through, mixed with what the formats are made of.
fn value() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 13] = [
        b"t=1790000000",
        b"v1=",
        b"v1,",
        b"v1a,",
        b",",
        b" ",
        b"==",
        b"1790000000",
        b"99999999999999999999999999",
        b"msg_1",
        b"00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff",
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        b"\xff\x80",
    ];
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat())
}

/// Runs arbitrary requests through a route that nobody signed for.
fn never_fails(name: &'static str, headers: [&'static str; 3]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = match name {
        "json" => {
            json!({ "key": ["/id"], "verify": { "scheme": "hmac-sha256", "header": headers[0], "secret": "case" } })
        }
        "twilio" => json!({ "secret": "case", "notification_url": "https://hooks.example/in" }),
        "paypal" => json!({ "webhook_id": "case" }),
        "square" => json!({ "secret": "case", "notification_url": "https://hooks.example/in" }),
        "braintree" => json!({ "secret": "case", "public_key": "mine" }),
        _ => json!({ "secret": "case" }),
    };
    let route = runtime.block_on(Route::new(name, &config, &["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"]));
    let lines = prop::collection::vec((prop::sample::select(headers.to_vec()), value()), 0..6);
    let request = (lines, prop::collection::vec(any::<u8>(), 0..100));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(400) });
    let outcome = runner.run(&request, |(lines, body)| {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let result = runtime.block_on(route.inspect(delivery(1_790_000_000, &lines, body))).result;
        prop_assert!(matches!(result, Ok(Inspection::Invalid(_))), "{:?}", result);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn stripe() {
    never_fails("stripe", ["stripe-signature", "stripe-signature", "content-type"]);
}

#[test]
fn standard_webhooks() {
    never_fails("standard-webhooks", ["webhook-id", "webhook-timestamp", "webhook-signature"]);
}

#[test]
fn svix_names() {
    never_fails("standard-webhooks", ["svix-id", "svix-timestamp", "svix-signature"]);
}

#[test]
fn signatures_in_a_header() {
    never_fails("shopify", ["x-shopify-hmac-sha256", "x-shopify-topic", "x-shopify-event-id"]);
    never_fails("github", ["x-hub-signature-256", "x-github-delivery", "content-type"]);
    never_fails("paystack", ["x-paystack-signature", "x-paystack-signature", "content-type"]);
    never_fails("flutterwave", ["flutterwave-signature", "verif-hash", "content-type"]);
    never_fails("slack", ["x-slack-signature", "x-slack-request-timestamp", "content-type"]);
    never_fails("twilio", ["x-twilio-signature", "x-twilio-webhooks-signature-settings", "content-type"]);
    never_fails("svix", ["svix-id", "svix-timestamp", "svix-signature"]);
    never_fails("checkout-com", ["cko-signature", "cko-signature", "content-type"]);
    never_fails("gocardless", ["webhook-signature", "webhook-signature", "content-type"]);
    never_fails("mollie", ["x-mollie-signature", "x-mollie-signature", "content-type"]);
    never_fails("razorpay", ["x-razorpay-signature", "x-razorpay-event-id", "content-type"]);
    never_fails("square", ["x-square-hmacsha256-signature", "x-square-signature", "content-type"]);
    never_fails("xendit", ["x-callback-token", "webhook-id", "content-type"]);
}

#[test]
fn signatures_in_the_body() {
    for name in ["adyen", "braintree", "midtrans"] {
        never_fails(name, ["authorization", "content-type", "user-agent"]);
    }
}

/// The deepest and the widest data that a body may hold is compared by value, within stack and fuel.
#[test]
fn data_of_any_shape() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let route = runtime.block_on(Route::new("cloudevents", &json!({}), &[]));
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(120), close.repeat(120));
    let wide = format!("[{}0]", "{\"a\":1.5e3},".repeat(5000));
    for data in [deep("[", "]"), deep("{\"a\":", "}"), deep("[0,{\"b\":", "}]").replacen("0,", "", 60), wide] {
        let body = format!(r#"{{"specversion":"1.0","id":"1","source":"/a","type":"t","data":{data}}}"#);
        let lines = [("content-type", &b"application/cloudevents+json"[..])];
        let result = runtime.block_on(route.inspect(delivery(1_790_000_000, &lines, body))).result;
        let deeper_than_read = data.matches('{').count() + data.matches('[').count() > 127 && !data.contains("1.5e3");
        match result {
            Ok(Inspection::Events(events)) => assert!(events.len() == 1 && !deeper_than_read),
            Err(failure) => {
                assert!(deeper_than_read, "{failure}");
                assert_eq!(failure.kind, FailureKind::PluginError(PluginFault::Malformed), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn json_with_a_mac() {
    never_fails("json", ["x-signature", "x-signature", "content-type"]);
}

/// Past the signature the body may still be anything: a fault of the sender, within the fuel that its size pays for.
#[tokio::test]
async fn bodies_built_to_hurt() {
    let config = json!({ "key": ["/a/0/b"], "material": ["/a/0/c", "/x"], "aliases": [["/a/1"]] });
    let route = Route::new("json", &config, &[]).await;
    let escapes = format!(r#"{{"a":[{{"b":"{}"}}]}}"#, r"\u00e9".repeat(20_000));
    let members = format!("{{{}}}", (0..10_000).map(|n| format!("\"m{n}\":{n}")).collect::<Vec<_>>().join(","));
    let digits = |member: &str| format!(r#"{{"a":[{{"b":1,"{member}":{}}}]}}"#, "9".repeat(100_000));
    let no_key = Ok(Inspection::Events(Vec::new()));
    let malformed = Err(FailureKind::PluginError(PluginFault::Malformed));
    let bodies = [
        ("deep", "[".repeat(1 << 17), malformed.clone()),
        ("wide", format!("[{}1]", "1,".repeat(60_000)), no_key.clone()),
        ("members", members, no_key),
        ("a member twice", digits("b"), malformed.clone()),
        ("a material field of digits", digits("c"), malformed.clone()),
        ("escapes", escapes, malformed.clone()),
        ("quotes", "\"".repeat(1 << 17), malformed),
    ];
    for (name, body, expected) in bodies {
        let inspected = route.inspect(delivery(1, &[], body)).await;
        let outcome = inspected.result.map_err(|failure| failure.kind);
        assert_eq!(outcome, expected, "{name}");
    }
}
