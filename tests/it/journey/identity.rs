//! When two deliveries are the same event.

use super::rig::{Rig, event, is_first, is_problem, is_replay};
use crate::support::client::post;
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;

const SAME: bool = true;
const OTHER: bool = false;

/// §2, "the same key with other material": numbers are equal as exact decimals, text byte for byte, absent differs from null.
#[tokio::test]
async fn material_is_compared_exactly() {
    let rig = Rig::start("").await;
    let rows = [
        ("\"amount\":100", "\"amount\":1e2", SAME),
        ("\"amount\":100", "\"amount\":100.0", SAME),
        ("\"amount\":0", "\"amount\":-0", SAME),
        ("\"amount\":0.1", "\"amount\":1E-1", SAME),
        ("\"amount\":1e400", "\"amount\":10e399", SAME),
        ("\"amount\":\"\\u0061\"", "\"amount\":\"a\"", SAME),
        ("\"amount\":1,\"note\":\"x\"", "\"note\":[2], \"amount\" : 1", SAME),
        ("\"note\":1", "\"note\":2", SAME),
        ("\"amount\":9007199254740992", "\"amount\":9007199254740993", OTHER),
        ("\"amount\":0.1", "\"amount\":0.10000000000000001", OTHER),
        ("\"amount\":1e400", "\"amount\":1e401", OTHER),
        ("\"amount\":\"88.00\"", "\"amount\":\"88.0\"", OTHER),
        ("\"amount\":88", "\"amount\":\"88\"", OTHER),
        ("\"amount\":true", "\"amount\":\"true\"", OTHER),
        ("\"amount\":null", "\"note\":1", OTHER),
        ("\"amount\":null", "\"amount\":\"\"", OTHER),
        ("\"amount\":\"\u{e9}\"", "\"amount\":\"e\u{301}\"", OTHER),
    ];
    for (at, (one, two, same)) in rows.into_iter().enumerate() {
        let first = rig.pay(&format!("{{\"id\":\"evt_{at}\",{one}}}")).await;
        is_first(&first, &format!("call {at}"));
        let second = rig.pay(&format!("{{\"id\":\"evt_{at}\",{two}}}")).await;
        if same {
            is_replay(&second, &first);
        } else {
            is_problem(&second, 409, "fingerprint-mismatch");
            let fields = second.json()["fields"].as_array().cloned().unwrap_or_default();
            assert!(fields.contains(&"/amount".into()), "{one} {two}: {fields:?}");
        }
    }
    assert_eq!(rig.upstream.count(), rows.len());
}

/// Without material the whole body counts, in any order and spelling of the same JSON, and so does the query.
#[tokio::test]
async fn without_material_the_whole_body_counts() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "").replace(r#", material = ["/amount"]"#, "");
    let gateway = Gateway::start(&text);
    let rows = [
        ("", r#"{"id":"k","a":1,"b":[1,2]}"#, true),
        ("", r#" {"b" : [1.0, 2e0], "a":1, "id":"\u006b"} "#, true),
        ("", r#"{"id":"k","a":1,"b":[2,1]}"#, false),
        ("", r#"{"id":"k","a":"1","b":[1,2]}"#, false),
        ("", r#"{"id":"k","a":1,"b":[1,2],"c":null}"#, false),
        ("?x=1", r#"{"id":"k","a":1,"b":[1,2]}"#, false),
    ];
    for (query, body, same) in rows {
        let answer = post(gateway.ingest, &format!("/pay{query}"), &[], body).await;
        if same {
            assert_eq!((answer.status, answer.body.as_slice()), (200, &b"call 0"[..]), "{query} {body}: {answer:?}");
        } else {
            is_problem(&answer, 409, "fingerprint-mismatch");
        }
    }
    assert_eq!(upstream.count(), 1);
}

/// Keys of several parts never run into one another, and numbers are one key in every spelling.
#[tokio::test]
async fn keys_of_several_parts() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "").replace(r#"key = ["/id"]"#, r#"key = ["/a", "/b"]"#);
    let gateway = Gateway::start(&text);
    let pairs = [("ab", "c"), ("a", "bc"), ("a|b", "c"), ("a", "b|c"), ("a\\\\|b", "c"), ("a\\\\", "|b|c")];
    for (call, (a, b)) in pairs.into_iter().enumerate() {
        let body = format!("{{\"a\":\"{a}\",\"b\":\"{b}\",\"amount\":1}}");
        is_first(&post(gateway.ingest, "/pay", &[], &body).await, &format!("call {call}"));
        assert_eq!(post(gateway.ingest, "/pay", &[], &body).await.idempotency(), "replay");
    }
    let number = post(gateway.ingest, "/pay", &[], r#"{"a":7,"b":1e1,"amount":1}"#).await;
    assert_eq!(number.idempotency(), "first");
    is_replay(&post(gateway.ingest, "/pay", &[], r#"{"a":7.0,"b":10,"amount":1}"#).await, &number);
}

/// `missing_key = "reject"`, the default: no key, no forward.
#[tokio::test]
async fn missing_key_reject() {
    let rig = Rig::start("").await;
    for body in [r#"{"amount":1}"#, r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":" \t"}"#] {
        let answer = rig.pay(body).await;
        is_problem(&answer, 400, "missing-key");
        assert_eq!(answer.idempotency(), "rejected");
    }
    assert_eq!(rig.upstream.count(), 0);
}

/// `missing_key = "pass"`: forwarded every time, and said so.
#[tokio::test]
async fn missing_key_pass() {
    let rig = Rig::start(r#"missing_key = "pass""#).await;
    for call in 0..3 {
        let answer = rig.pay(r#"{"amount":1}"#).await;
        assert_eq!((answer.status, answer.idempotency()), (200, "bypassed"), "{answer:?}");
        assert_eq!(answer.body, format!("call {call}").into_bytes());
    }
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 3");
}

/// `missing_key = "hash-body"`: the whole body is the key; events without a key never share one.
#[tokio::test]
async fn missing_key_hash_body() {
    let rig = Rig::start(r#"missing_key = "hash-body""#).await;
    let first = rig.pay(r#"{"amount":1}"#).await;
    is_first(&first, "call 0");
    is_replay(&rig.pay(r#"{"amount":1}"#).await, &first);
    is_first(&rig.pay(r#"{"amount":2}"#).await, "call 1");
    is_first(&rig.pay(r#"{"id":"","amount":1}"#).await, "call 2");
    for hit in rig.upstream.hits() {
        let key = hit.header("idempotency-key").expect("a key");
        let digest = key.strip_prefix("t:pay:sha256-").unwrap_or_else(|| panic!("{key}"));
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    }
}
