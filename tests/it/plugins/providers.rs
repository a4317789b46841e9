//! The bundled plugins over their providers' published cases, through the command that a user runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onceward::cli::{plugin_run, plugin_test};
use onceward::plugin::{Grant, bundled};

use super::support::{self, ENGINE, delivery, grant};

fn cases(provider: &str) -> PathBuf {
    Path::new("tests/fixtures/providers").join(provider)
}

fn test(plugin: &str, cases: &Path) -> (u8, String) {
    let mut out = Vec::new();
    let status = plugin_test::test(plugin, cases, &mut out).unwrap();
    (status, String::from_utf8(out).unwrap())
}

/// Every published case comes out as its provider's contract says.
#[test]
fn all_cases_pass() {
    let counts = [
        ("adyen", 9),
        ("braintree", 13),
        ("checkout-com", 7),
        ("cloudevents", 15),
        ("flutterwave", 11),
        ("github", 9),
        ("gocardless", 6),
        ("midtrans", 7),
        ("mollie", 7),
        ("paypal", 7),
        ("paystack", 7),
        ("razorpay", 7),
        ("shopify", 7),
        ("slack", 10),
        ("square", 7),
        ("standard-webhooks", 9),
        ("stripe", 10),
        ("svix", 9),
        ("twilio", 13),
        ("xendit", 9),
    ];
    // Every plugin but the one that has no provider.
    let named: Vec<_> = bundled::NAMES.iter().filter(|name| **name != "json").copied().collect();
    assert_eq!(counts.map(|(provider, _)| provider).to_vec(), named);
    for (provider, count) in counts {
        let (status, out) = test(provider, &cases(provider));
        assert!(status == 0 && out.ends_with(&format!("{count} passed, 0 failed\n")), "{out}");
    }
}

/// `plugin test` finds what differs: a case that expects something else fails, and says what.
#[test]
fn a_wrong_expectation_is_found() {
    let changes: [(&str, &str, &str, &str); 6] = [
        ("01-first", r#""verified": true"#, r#""verified": false"#, "verified, expected"),
        ("04-bad-signature", r#""verified": false"#, r#""verified": true"#, "bad-signature"),
        ("05-expired", r#""expired""#, r#""bad_signature""#, "stale by"),
        ("02-redelivery", r#""duplicate""#, r#""new""#, "[Duplicate], expected [New]"),
        ("03-conflict-amount", "stripe/01-first", "stripe/99-gone", "which is not among the cases"),
        ("01-first", "\n     \"evt_test_0001\"", "\n     \"evt_other\"", "expected [[\"evt_other\"]]"),
    ];
    for (file, from, to, told) in changes {
        let directory = tempfile::tempdir().unwrap();
        for name in ["01-first", file] {
            let text = std::fs::read_to_string(cases("stripe").join(name).with_extension("json")).unwrap();
            let text = if name == file { text.replacen(from, to, 1) } else { text };
            std::fs::write(directory.path().join(name).with_extension("json"), text).unwrap();
        }
        let (status, out) = test("stripe", directory.path());
        assert!(status == 1 && out.contains(told) && out.contains(", 1 failed"), "{file} {to}: {out}");
    }
}

/// What cannot be read is an error of use, not a failed case.
#[test]
fn unreadable_input_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    assert!(plugin_test::test("stripe", empty.path(), &mut out).is_err());
    assert!(plugin_test::test("nobody", &cases("stripe"), &mut out).is_err());
    assert!(plugin_test::test("/nowhere.wasm", &cases("stripe"), &mut out).is_err());
    assert!(out.is_empty());
}

/// `plugin run` tells the decision and what it cost, used of allowed.
#[test]
fn run_tells_decision_and_cost() {
    let mut out = Vec::new();
    let status = plugin_run::run("plugins/dist/stripe.wasm", &cases("stripe").join("01-first.json"), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(status, 0, "{out}");
    for told in [
        "verified  yes",
        "process 1 event",
        "[\"evt_test_0001\"]",
        "/data/object/amount\" = 12500",
        "fuel",
        "/67108864 B",
    ] {
        assert!(out.contains(told), "{told:?} in {out}");
    }
}

#[test]
fn bench_tells_rate_and_percentiles() {
    let mut out = Vec::new();
    let case = cases("stripe").join("01-first.json");
    assert_eq!(plugin_run::bench("stripe", &case, Duration::from_millis(200), &mut out).unwrap(), 0);
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("calls/s") && out.contains("p50") && out.contains("p99"), "{out}");
}

/// The same bytes give the same events and cost the same fuel, every time.
#[tokio::test]
async fn a_thousand_runs_agree() {
    let json = ENGINE.load("json", bundled::bundled("json").unwrap()).unwrap();
    let config = r#"{"key": ["/id"], "material": ["/amount", "/currency"]}"#;
    let needs = json.examine(config).await.unwrap().unwrap();
    let grant = Arc::new(Grant { config: config.into(), needs, allow_unsigned: true, ..grant() });
    let request = delivery(br#"{"id": "e-1", "amount": 1.10, "currency": "eur", "rest": [1, 2, {"a": null}]}"#);

    let first = json.inspect(&grant, &request).await;
    for _ in 0..1000 {
        let again = json.inspect(&grant, &request).await;
        assert_eq!(again.result.unwrap(), *first.result.as_ref().unwrap());
        assert_eq!(again.usage.fuel, first.usage.fuel);
        assert_eq!(again.usage.memory_bytes, first.usage.memory_bytes);
    }
}

/// A bundled plugin asks for its secret by name, and says what is wrong with a config.
#[tokio::test]
async fn configs_are_examined() {
    let stripe = ENGINE.load("stripe", bundled::bundled("stripe").unwrap()).unwrap();
    let needs = stripe.examine(r#"{"secret": "main"}"#).await.unwrap().unwrap();
    assert_eq!((needs.secrets, needs.headers), (vec!["main".to_owned()], vec!["stripe-signature".to_owned()]));
    assert!(!stripe.examine(r#"{"secrte": "main"}"#).await.unwrap().unwrap_err().is_empty());

    let version = &stripe.version().version;
    let (own, digest) = version.split_once('+').unwrap();
    assert_eq!((own, digest.len()), (stripe.descriptor().version.as_str(), 12));
    let unsigned = support::grant();
    assert!(!unsigned.allow_unsigned);
}
