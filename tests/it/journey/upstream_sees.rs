//! §4: what the upstream gets.

use super::rig::{Rig, event, is_first};
use crate::support::client::{post, send};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::upstream::{Hit, Upstream};

fn all<'a>(hit: &'a Hit, name: &str) -> Vec<&'a str> {
    hit.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
}

/// Method, query, end-to-end fields and body come through as sent; the gateway adds its own fields.
#[tokio::test]
async fn the_senders_bytes_and_the_gateways_fields() {
    let rig = Rig::start("").await;
    let fields = [
        ("X-Multi", "a"),
        ("x-other", "caf\u{e9}"),
        ("X-Multi", "b, c"),
        ("Content-Type", "application/json"),
        ("X-Empty", ""),
    ];
    let body = " {\"id\" : \"evt_1\",\r\n \"amount\":1e2, \"note\":\"\u{fc}\"} ";
    let answer = send(rig.gateway.ingest, "POST", "/pay?a=%20b&c&a=+%2f", &fields, body.as_bytes()).await;
    is_first(&answer, "call 0");
    let hit = &rig.upstream.hits()[0];
    assert_eq!((hit.method.as_str(), hit.target.as_str()), ("POST", "/pay?a=%20b&c&a=+%2f"));
    assert_eq!(hit.body, body.as_bytes());
    assert_eq!(all(hit, "x-multi"), ["a", "b, c"]);
    // Each char of a value is an octet: the two of an é.
    assert_eq!(hit.header("x-other"), Some("caf\u{c3}\u{a9}"));
    assert_eq!((hit.header("x-empty"), hit.header("content-type")), (Some(""), Some("application/json")));
    assert_eq!(hit.header("host"), Some(rig.upstream.address.to_string().as_str()));
    assert_eq!(hit.header("idempotency-key"), Some("t:pay:evt_1"));
    assert_eq!((hit.header("onceward-tenant"), hit.header("onceward-route")), (Some("t"), Some("pay")));
    assert_eq!(hit.header("onceward-attempt"), Some("1"));
    assert!(hit.header("onceward-fence").is_some_and(|fence| fence.parse::<u64>().is_ok()), "{hit:?}");
    assert_eq!(hit.header("onceward-event"), answer.header("onceward-event"));
    assert_eq!((hit.header("x-forwarded-for"), hit.header("x-forwarded-proto")), (Some("127.0.0.1"), Some("http")));
    assert_eq!(hit.header("x-forwarded-host"), Some(rig.gateway.ingest.to_string().as_str()));
    assert!(is_traceparent(hit.header("traceparent").expect("traceparent")), "{hit:?}");
    assert!(all(hit, "transfer-encoding").is_empty() || all(hit, "content-length").is_empty(), "one framing: {hit:?}");
}

fn is_traceparent(field: &str) -> bool {
    let parts: Vec<&str> = field.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [2, 32, 16, 2] && parts.iter().all(hex) && parts[0] == "00"
}

/// Scenario 54: own fields are set after hop-by-hop removal; a sender's copies of them and its hop-by-hop fields are dropped.
#[tokio::test]
async fn s54_a_senders_copies_are_dropped() {
    let rig = Rig::start("").await;
    let fields = [
        ("Idempotency-Key", "forged"),
        ("Onceward-Attempt", "9"),
        ("Onceward-Fence", "99"),
        ("Onceward-Tenant", "forged"),
        ("Onceward-Route", "forged"),
        ("Onceward-Event", "forged"),
        ("Onceward-Items", "forged"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("X-Forwarded-Proto", "forged"),
        ("X-Forwarded-Host", "forged"),
        ("traceparent", "00-11111111111111111111111111111111-2222222222222222-01"),
        ("Connection", "x-hop, onceward-tenant, idempotency-key"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Proxy-Connection", "keep-alive"),
        ("X-Stays", "1"),
    ];
    is_first(&post(rig.gateway.ingest, "/pay", &fields, event("evt_1", 1)).await, "call 0");
    let hit = &rig.upstream.hits()[0];
    assert_eq!(hit.header("idempotency-key"), Some("t:pay:evt_1"));
    assert_eq!((hit.header("onceward-attempt"), hit.header("onceward-tenant")), (Some("1"), Some("t")));
    assert_eq!(hit.header("x-forwarded-for"), Some("127.0.0.1"));
    for dropped in ["x-hop", "keep-alive", "te", "proxy-connection", "onceward-items"] {
        assert_eq!(hit.header(dropped), None, "{dropped}: {hit:?}");
    }
    assert_eq!(hit.header("x-stays"), Some("1"));
    assert_ne!(hit.header("onceward-fence"), Some("99"));
    let came_through = |(_, value): &(String, String)| {
        ["forged", "6.6.6.6", "2222222222222222"].iter().any(|forged| value.contains(forged))
    };
    assert!(!hit.headers.iter().any(came_through), "{hit:?}");
}

/// `Idempotency-Key` is readable where it can be, a digest where it cannot, and never ambiguous.
#[tokio::test]
async fn the_idempotency_keys_form() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "").replace(r#"key = ["/id"]"#, r#"key = ["/a", "/b"]"#);
    let gateway = Gateway::start(&text);
    let long = "x".repeat(250);
    let fits = "x".repeat(255 - "t:pay:".len() - "|1".len());
    let rows: Vec<(&str, &str, Option<String>)> = vec![
        ("evt_1", "1", Some("t:pay:evt_1|1".to_owned())),
        ("x|y", "z\\\\", Some("t:pay:x\\|y|z\\\\".to_owned())),
        ("a:b", "{}", Some("t:pay:a:b|{}".to_owned())),
        (&fits, "1", Some(format!("t:pay:{fits}|1"))),
        (&long, "1", None),
        ("sha256-abc", "1", None),
        ("a b", "1", None),
        ("caf\u{e9}", "1", None),
        ("a\\r\\nx-evil: 1", "1", None),
        ("a\\u0000", "1", None),
        ("a\\u007f", "1", None),
    ];
    for (at, (a, b, expect)) in rows.into_iter().enumerate() {
        let body = format!("{{\"a\":\"{a}\",\"b\":\"{b}\",\"amount\":1}}");
        is_first(&post(gateway.ingest, "/pay", &[], body).await, &format!("call {at}"));
        let hit = &upstream.hits()[at];
        let key = hit.header("idempotency-key").expect("a key").to_owned();
        match expect {
            Some(expect) => assert_eq!(key, expect),
            None => assert!(key.strip_prefix("t:pay:sha256-").is_some_and(|hex| hex.len() == 64), "{a}: {key}"),
        }
        assert_eq!(hit.header("x-evil"), None, "{hit:?}");
    }
    let keys: std::collections::BTreeSet<_> =
        upstream.hits().iter().map(|hit| hit.header("idempotency-key").expect("a key").to_owned()).collect();
    assert_eq!(keys.len(), upstream.count(), "no two events share a key");
}

/// `upstream_path` with captures, a prefix in the upstream's URL, `preserve_host`, and a query that stays.
#[tokio::test]
async fn the_upstreams_path_and_host() {
    let upstream = Upstream::counting().await;
    let address = upstream.address;
    let text = config(SQLITE, address, "")
        .replace(&format!("http://{address}"), &format!("http://{address}/base"))
        .replace("[upstreams.u]", "[upstreams.u]\npreserve_host = true")
        + r#"
[[routes]]
tenant = "t"
name = "shop"
path = "/shops/{shop}/hook"
upstream_path = "/in/{shop}"
plugin = "json"
plugin_config = { key = ["/id"] }
upstream = "u"
"#;
    let gateway = Gateway::start(&text);
    is_first(&post(gateway.ingest, "/pay", &[], event("evt_1", 1)).await, "call 0");
    is_first(&post(gateway.ingest, "/shops/north/hook?q=1", &[], event("evt_1", 1)).await, "call 1");
    let hits = upstream.hits();
    assert_eq!(hits[0].target, "/base/pay");
    assert_eq!(hits[1].target, "/base/in/north?q=1");
    assert_eq!(hits[0].header("host"), Some(gateway.ingest.to_string().as_str()));
    assert_eq!(hits[1].header("idempotency-key"), Some("t:shop:evt_1"));
}

/// The route's captures are part of what must be equal: the same key for another shop is no duplicate.
#[tokio::test]
async fn path_captures_are_compared() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "").replace(r#"path = "/pay""#, r#"path = "/pay/{shop}""#);
    let gateway = Gateway::start(&text);
    is_first(&post(gateway.ingest, "/pay/north", &[], event("evt_1", 1)).await, "call 0");
    let other = post(gateway.ingest, "/pay/south", &[], event("evt_1", 1)).await;
    assert_eq!((other.status, other.code().as_str()), (409, "fingerprint-mismatch"), "{other:?}");
    assert_eq!(upstream.hits()[0].target, "/pay/north");
    assert_eq!(upstream.count(), 1);
}
