//! What the providers' contracts warn of, beyond their published cases.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use onceward::event::Event;
use onceward::plugin::Inspection;
use serde_json::{Value as Json, json};

use super::{Route, delivery};

fn mac(key: &[u8], message: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message.as_bytes()).as_ref().to_vec()
}

async fn inspect(route: &Route, headers: &[(&str, &[u8])], body: impl Into<bytes::Bytes>) -> Inspection {
    route.inspect(delivery(1_790_000_000, headers, body)).await.result.unwrap()
}

fn events(inspection: Inspection) -> Vec<Event> {
    match inspection {
        Inspection::Events(events) => events,
        other => panic!("{other:?}"),
    }
}

fn refused(inspection: Inspection) -> &'static str {
    match inspection {
        Inspection::Invalid(refusal) => refusal.reason.as_str(),
        other => panic!("{other:?}"),
    }
}

/// The largest batch that GoCardless sends fits the budget, with ids and causes as long as they really are, and its events are the
/// same as in a batch of their own.
#[tokio::test]
async fn gocardless_sends_250_events() {
    let route = Route::new("gocardless", &json!({ "secret": "case" }), &["s3cret"]).await;
    let event = |n: usize| {
        json!({
            "id": format!("EV{n:012}"), "created_at": "2026-09-21T13:30:00.000Z", "resource_type": "refunds",
            "action": "refund_settled", "links": { "refund": format!("RF{n:012}"), "payment": format!("PM{n:012}"),
            "organisation": "OR000000000001" }, "metadata": {},
            "details": { "origin": "gocardless", "cause": "payment_confirmed_late", "description": "Sent to the bank." },
        })
    };
    let send = async |events: Vec<Json>| {
        let body = json!({ "events": events, "meta": { "webhook_id": "WB1" } }).to_string();
        let tag = hex::encode(mac(b"s3cret", &body));
        self::events(inspect(&route, &[("webhook-signature", tag.as_bytes())], body).await)
    };
    let all = send((0..250).map(event).collect()).await;
    assert_eq!(all.len(), 250);
    let alone = send(vec![event(249)]).await;
    assert_eq!((&all[249].key, &all[249].material), (&alone[0].key, &alone[0].material));
}

/// Adyen joins what it signs by colons and escapes none. Where the merchant's own reference has some, its neighbours could take
/// them over under the same signature.
#[tokio::test]
async fn adyen_fields_cannot_be_shifted() {
    let route = Route::new("adyen", &json!({ "secret": "case" }), &["00ff"]).await;
    let tag = BASE64_STANDARD.encode(mac(&[0, 0xff], "P1::Shop:order:7:100:EUR:AUTHORISATION:true"));
    let body = |account: &str, reference: &str| {
        let item = json!({
            "pspReference": "P1", "merchantAccountCode": account, "merchantReference": reference,
            "amount": { "value": 100, "currency": "EUR" }, "eventCode": "AUTHORISATION", "success": "true",
            "additionalData": { "hmacSignature": tag },
        });
        json!({ "notificationItems": [{ "NotificationRequestItem": item }] }).to_string()
    };
    assert_eq!(events(inspect(&route, &[], body("Shop", "order:7")).await).len(), 1);
    assert_eq!(refused(inspect(&route, &[], body("Shop:order", "7")).await), "malformed");
    assert_eq!(refused(inspect(&route, &[], body("Shop", "order:70")).await), "bad-signature");
}

/// No item at all would be a request that every signature of none vouches for.
#[tokio::test]
async fn adyen_items_are_all_signed() {
    let route = Route::new("adyen", &json!({ "secret": "case" }), &["00ff"]).await;
    for (body, reason) in [
        (r#"{"notificationItems":[]}"#.to_owned(), "malformed"),
        (
            r#"{"notificationItems":[{"NotificationRequestItem":{"additionalData":{}}}]}"#.to_owned(),
            "missing-signature",
        ),
        (r#"{"notificationItems":[{"NotificationRequestItem":{}}]}"#.to_owned(), "missing-signature"),
        (format!(r#"{{"notificationItems":[{}1]}}"#, "{},".repeat(300_000)), "malformed"),
    ] {
        assert_eq!(refused(inspect(&route, &[], body).await), reason);
    }
}

/// Where classic pings are let through unsigned, a next-generation event still needs its signature.
#[tokio::test]
async fn mollie_takes_no_unsigned_event() {
    let form: (&str, &[u8]) = ("content-type", b"application/x-www-form-urlencoded");
    let event = r#"{"resource":"event","id":"event_1","type":"payment.paid","entityId":"tr_1"}"#;
    let route = Route::new("mollie", &json!({ "secret": "case" }), &["s3cret"]).await;
    assert!(matches!(inspect(&route, &[form], "id=tr_1").await, Inspection::Pass(_)));
    assert_eq!(refused(inspect(&route, &[form], event).await), "missing-signature");
    assert_eq!(refused(inspect(&route, &[("content-type", b"application/json")], event).await), "missing-signature");
    assert_eq!(refused(inspect(&route, &[form, ("x-mollie-signature", b"")], "id=tr_1").await), "missing-signature");

    let classic = Route::new("mollie", &json!({}), &[]).await;
    assert!(matches!(inspect(&classic, &[form], "id=tr_1").await, Inspection::Pass(_)));
    let signed = ("x-mollie-signature", &b"sha256=00"[..]);
    assert_eq!(refused(inspect(&classic, &[signed], event).await), "unknown-key");
}

/// An id that only a header carries is no key when it is absent, blank, or there twice.
#[tokio::test]
async fn razorpay_without_one_id_has_no_key() {
    let route = Route::new("razorpay", &json!({ "secret": "case" }), &["s3cret"]).await;
    let body = r#"{"account_id":"acc_1","event":"payment.captured","contains":["payment"],"created_at":1}"#;
    let tag = hex::encode(mac(b"s3cret", body));
    let signed = ("x-razorpay-signature", tag.as_bytes());
    for ids in [&[][..], &[("x-razorpay-event-id", &b" "[..])]] {
        let headers: Vec<_> = [signed].into_iter().chain(ids.iter().copied()).collect();
        assert_eq!(events(inspect(&route, &headers, body).await), []);
    }
    let twice: [(&str, &[u8]); 3] = [signed, ("x-razorpay-event-id", b"a"), ("x-razorpay-event-id", b"b")];
    let failure = route.inspect(delivery(1, &twice, body)).await.result.unwrap_err();
    assert_eq!(failure.kind, onceward::plugin::FailureKind::PluginError(onceward::plugin::PluginFault::Malformed));
}
