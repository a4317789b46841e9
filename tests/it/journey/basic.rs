//! First, replay, conflict: the journey on every store, and what a replay repeats.

use std::time::{Duration, SystemTime};

use super::rig::{Rig, event, is_first, is_problem, is_replay};
use crate::support::client::{Answer, post, send};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream};

const MEMORY: &str = "memory:";

/// The journey promise on the embedded store.
#[tokio::test]
async fn journey_on_sqlite() {
    journey(SQLITE).await;
}

/// The journey promise on the development store.
#[tokio::test]
async fn journey_on_memory() {
    journey(MEMORY).await;
}

/// The journey promise on Redis.
#[tokio::test]
async fn journey_on_redis() {
    let redis = RedisServer::start();
    journey(&redis.url()).await;
}

/// §3: forwarded once, replayed byte for byte, never replayed for other material; a conflict changes nothing.
async fn journey(store: &str) {
    let rig = Rig::over(store, Upstream::counting().await, "");
    let first = rig.pay(&event("evt_1", 48_151)).await;
    is_first(&first, "call 0");
    assert_eq!(first.header("x-call"), Some("0"));
    expires_in(&first, Duration::from_hours(30 * 24));
    let id = first.header("onceward-event").expect("an event id").to_owned();

    let replay = rig.pay(&event("evt_1", 48_151)).await;
    is_replay(&replay, &first);
    assert_eq!(replay.header("idempotency-expires"), first.header("idempotency-expires"), "the window is fixed");
    assert_ne!(replay.header("onceward-event").expect("an event id"), id, "each delivery has an id of its own");
    assert_eq!(rig.upstream.count(), 1);

    let conflict = rig.pay(&event("evt_1", 62_342)).await;
    is_problem(&conflict, 409, "fingerprint-mismatch");
    assert_eq!(conflict.idempotency(), "mismatch");
    assert_eq!(conflict.json()["fields"], serde_json::json!(["/amount"]));
    assert_eq!(conflict.json()["event"].as_str(), conflict.header("onceward-event"));
    let text = String::from_utf8_lossy(&conflict.body).into_owned();
    assert!(!text.contains("48151") && !text.contains("62342"), "values leak: {text}");
    assert_eq!(conflict.header("idempotency-replayed"), None);

    is_replay(&rig.pay(&event("evt_1", 48_151)).await, &first);
    assert_eq!(rig.upstream.count(), 1);
    is_first(&rig.pay(&event("evt_2", 48_151)).await, "call 1");
}

#[track_caller]
fn expires_in(answer: &Answer, window: Duration) {
    let field = answer.header("idempotency-expires").expect("Idempotency-Expires");
    let expires = httpdate::parse_http_date(field).unwrap_or_else(|_| panic!("no HTTP date: {field}"));
    #[expect(clippy::disallowed_methods, reason = "the field is a date of the wall clock")]
    let left = expires.duration_since(SystemTime::now()).expect("a date to come");
    assert!(left <= window && left + Duration::from_mins(2) > window, "{left:?}");
}

/// §3: a finished event of another tenant or of another scope is another event; routes that share a scope share their keys.
#[tokio::test]
async fn keys_live_in_a_tenant_and_a_scope() {
    let upstream = Upstream::counting().await;
    let route = |tenant: &str, name: &str, more: &str| {
        format!(
            "[[routes]]\ntenant = \"{tenant}\"\nname = \"{name}\"\npath = \"/{tenant}/{name}\"\nplugin = \"json\"\nupstream = \"u\"\n{more}\n\
             plugin_config = {{ key = [\"/id\"], material = [\"/amount\"] }}\n"
        )
    };
    let shared = "scope = \"payments\"";
    let routes = [
        route("a", "x", ""),
        route("b", "x", ""),
        route("a", "y", shared),
        route("a", "z", shared),
        route("b", "y", shared),
    ];
    let gateway = Gateway::start(&(config(SQLITE, upstream.address, "") + &routes.concat()));
    let deliver = |path: &'static str, amount: u32| post(gateway.ingest, path, &[], event("same", amount));
    for (call, path) in ["/pay", "/a/x", "/b/x", "/a/y"].into_iter().enumerate() {
        is_first(&deliver(path, 1).await, &format!("call {call}"));
    }
    let shared = deliver("/a/z", 1).await;
    assert_eq!((shared.idempotency(), shared.body.as_slice()), ("replay", &b"call 3"[..]));
    is_problem(&deliver("/a/z", 2).await, 409, "fingerprint-mismatch");
    is_first(&deliver("/b/y", 2).await, "call 4");
}

/// D6 on the embedded store.
#[tokio::test]
async fn any_answer_is_replayed_from_sqlite() {
    replays_any_answer(SQLITE).await;
}

/// D6 on Redis.
#[tokio::test]
async fn any_answer_is_replayed_from_redis() {
    let redis = RedisServer::start();
    replays_any_answer(&redis.url()).await;
}

/// D6 on the development store.
#[tokio::test]
async fn any_answer_is_replayed_from_memory() {
    replays_any_answer(MEMORY).await;
}

/// D6: status, header list with repeats in order, and body bytes are replayed, whatever they are.
async fn replays_any_answer(store: &str) {
    let binary: Vec<u8> = (0..=255).chain([0, 0, b'\r', b'\n', 255]).collect();
    let gzip = [&[0x1f, 0x8b, 8, 0][..], &binary].concat();
    let answers: Vec<Vec<u8>> = vec![
        raw("200 OK", b"content-type: application/octet-stream\r\n", &binary),
        raw("200 OK", b"content-encoding: gzip\r\nvary: accept-encoding\r\n", &gzip),
        raw("200 OK", b"x-a: 1\r\nlink: <a>\r\nx-a: 3\r\nx-b: \r\nx-a: 2\r\nlink: <b>\r\n", b"repeated"),
        raw("200 OK", b"x-octets: caf\xe9 \xff\xfe\r\n", b"octets"),
        b"HTTP/1.1 204 No Content\r\nx-left: nothing\r\n\r\n".to_vec(),
        raw("201 Created", b"location: /payments/1\r\n", b""),
        b"HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n".to_vec(),
    ];
    let count = answers.len();
    let upstream = Upstream::start(move |_, at| Act::Write(answers[at].clone())).await;
    let rig = Rig::over(store, upstream, "");
    for at in 0..count {
        let body = event(&format!("evt_{at}"), 1);
        let first = rig.pay(&body).await;
        assert_eq!(first.idempotency(), "first", "{first:?}");
        is_replay(&rig.pay(&body).await, &first);
        is_replay(&rig.pay(&body).await, &first);
        check_answer(at, &first, &binary);
    }
    assert_eq!(rig.upstream.count(), count);
}

/// The first answers are the upstream's own, untouched.
fn check_answer(at: usize, first: &Answer, binary: &[u8]) {
    let all = |name: &str| -> Vec<String> {
        first.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.clone()).collect()
    };
    match at {
        0 => assert_eq!(first.body, binary),
        1 => assert_eq!(all("content-encoding"), ["gzip"]),
        2 => assert_eq!((all("x-a"), all("link")), (texts(&["1", "3", "2"]), texts(&["<a>", "<b>"]))),
        3 => assert_eq!(all("x-octets"), ["caf\u{e9} \u{ff}\u{fe}"]),
        4 => assert_eq!((first.status, first.body.len(), all("x-left")), (204, 0, texts(&["nothing"]))),
        5 => assert_eq!((first.status, all("location")), (201, texts(&["/payments/1"]))),
        _ => assert_eq!((first.status, first.body.as_slice()), (202, &b"abcde"[..])),
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn raw(status: &str, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    [head.as_bytes(), fields, b"\r\n", body].concat()
}

/// §3: a replay lacks `drop_headers` and hop-by-hop fields; an upstream's own copies of the gateway's fields never come through.
#[tokio::test]
async fn dropped_fields() {
    let fields = b"set-cookie: s=1\r\nx-drop: 1\r\nx-keep: 1\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                   idempotency-status: forged\r\nidempotency-replayed: forged\r\nidempotency-expires: forged\r\nonceward-event: forged\r\n\
                   idempotency-replay-body: forged\r\n";
    let upstream = Upstream::start(move |_, _| Act::Write(raw("200 OK", fields, b"kept"))).await;
    let rig = Rig::with(upstream, r#"replay = { drop_headers = ["set-cookie", "X-Drop"] }"#);
    let first = rig.pay(&event("evt_1", 1)).await;
    is_first(&first, "kept");
    assert_eq!((first.header("set-cookie"), first.header("x-drop")), (Some("s=1"), Some("1")));
    let replay = rig.pay(&event("evt_1", 1)).await;
    assert_eq!(replay.idempotency(), "replay");
    assert_eq!((replay.header("set-cookie"), replay.header("x-drop")), (None, None));
    for answer in [&first, &replay] {
        assert_eq!(
            (answer.header("x-keep"), answer.header("x-hop"), answer.header("keep-alive")),
            (Some("1"), None, None)
        );
        assert!(answer.headers.iter().all(|(_, value)| value != "forged"), "{answer:?}");
        let statuses = answer.headers.iter().filter(|(name, _)| name == "idempotency-status").count();
        assert_eq!(statuses, 1, "{answer:?}");
    }
}

/// §3: what no route takes is refused before anything else, by the gateway's own problems.
#[tokio::test]
async fn refusals_before_a_route() {
    let upstream = Upstream::counting().await;
    let small = config(SQLITE, upstream.address, "").replace("[server]", "[server]\nmax_body = \"1KiB\"");
    let gateway = Gateway::start(&small);
    is_problem(&post(gateway.ingest, "/pays", &[], "{}").await, 404, "no-route");
    is_problem(&post(gateway.ingest, "/pay/", &[], "{}").await, 404, "no-route");
    let put = send(gateway.ingest, "PUT", "/pay", &[], b"{}").await;
    is_problem(&put, 405, "method-not-allowed");
    assert_eq!(put.header("allow"), Some("POST"));
    let big = format!(r#"{{"id":"big","amount":1,"x":"{}"}}"#, "x".repeat(2000));
    is_problem(&post(gateway.ingest, "/pay", &[], big).await, 413, "body-too-large");
    let mut chunked =
        b"POST /pay HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    chunked.extend(format!("fa0\r\n{}\r\n0\r\n\r\n", "x".repeat(4000)).into_bytes());
    let refused = crate::support::client::exchange(gateway.ingest, &chunked).await.expect("an answer");
    is_problem(&refused, 413, "body-too-large");
    assert_eq!(upstream.count(), 0);
}
