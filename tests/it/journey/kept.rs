//! `replay.redact` and `keep_request`: what is kept of an answer and of a request, and what never is.

use std::time::Duration;

use onceward::event::ScopeKey;
use onceward::event::{KeyKind, Secret};
use onceward::gateway::keep::{Written, read_back};
use onceward::store::{Backend, SealedStores, SealingKeys, Stores};

use super::rig::{Rig, bad_once, deliver, event, is_replay, pay};
use super::sealed::{CANARY, KEY, found_in, holds, with_keys};
use crate::support::client::post;
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream, answer};

async fn answering(fields: &'static [(&'static str, &'static str)], body: &'static str) -> Upstream {
    Upstream::start(move |_, _| answer(200, fields, body.as_bytes())).await
}

/// The first answer is whole; what is kept lacks what the route redacts and keeps every other byte, also on disk.
#[tokio::test]
async fn a_redacted_answer() {
    let body = r#"{ "id": 12345678901234567890.50, "card": "4242424242424242", "list": [{"card":1},{"x": 1e400}] }"#;
    let upstream = answering(&[("etag", "\"1\""), ("x-keep", "1")], body).await;
    let rig = Rig::with(upstream, r#"replay = { redact = ["/card", "/list/0/card"] }"#);
    let first = rig.pay(&event("evt_1", 1)).await;
    assert_eq!((String::from_utf8_lossy(&first.body).as_ref(), first.header("etag")), (body, Some("\"1\"")));
    let replay = rig.pay(&event("evt_1", 1)).await;
    assert_eq!(replay.idempotency(), "replay");
    let left = r#"{"id":12345678901234567890.50,"list":[{},{"x": 1e400}]}"#;
    assert_eq!(String::from_utf8_lossy(&replay.body), left);
    assert_eq!((replay.header("x-keep"), replay.header("etag")), (Some("1"), None), "{replay:?}");
    assert_eq!(replay.header("content-length"), Some(left.len().to_string().as_str()));
    is_replay(&rig.pay(&event("evt_1", 1)).await, &replay);
    assert_eq!(rig.upstream.count(), 1);
    assert_eq!(found_in(rig.gateway.home().path(), CANARY), Vec::<String>::new());
}

/// What cannot be redacted is not kept at all: the replay has status and fields.
#[tokio::test]
async fn an_answer_that_cannot_be_redacted() {
    for (fields, body) in [
        (&[("x-keep", "1")][..], "card=4242424242424242"),
        (&[("x-keep", "1"), ("content-encoding", "gzip")], r#"{"card":"4242424242424242"}"#),
    ] {
        let rig = Rig::with(answering(fields, body).await, r#"replay = { redact = ["/card"] }"#);
        let first = rig.pay(&event("evt_1", 1)).await;
        assert_eq!(String::from_utf8_lossy(&first.body), body);
        let replay = rig.pay(&event("evt_1", 1)).await;
        assert_eq!((replay.status, replay.idempotency(), replay.body.len()), (200, "replay", 0), "{replay:?}");
        assert_eq!(replay.header("idempotency-replay-body"), Some("omitted"));
        assert_eq!((replay.header("x-keep"), replay.header("content-encoding")), (Some("1"), None));
        assert_eq!(found_in(rig.gateway.home().path(), CANARY), Vec::<String>::new());
    }
}

/// The request that a record keeps, opened with the key of the tests.
async fn kept(redis: &RedisServer, id: &str) -> Option<Written> {
    let opened = Stores::open(Backend::Redis(redis.url()), Duration::from_secs(5)).await.unwrap();
    let store = SealedStores::new(opened, SealingKeys::new(&[Secret::new(KEY)])).handle();
    let key = ScopeKey {
        tenant: "t".into(),
        scope: "pay".into(),
        namespace: String::new(),
        kind: KeyKind::Key,
        parts: vec![id.into()],
    };
    let record = store.peek(&key).await.unwrap().current.expect("a record");
    record.request.map(|written| read_back(&written).unwrap())
}

/// A request that may wait for a person stands with its claim, encrypted and whole; a success clears it.
#[tokio::test]
async fn a_request_is_kept_while_it_may_wait() {
    let redis = RedisServer::start();
    let upstream = bad_once(|id| if id == "evt_bad" { Act::Reset } else { answer(200, &[], b"good") }).await;
    let policy = "unknown = \"hold\"\nkeep_request = \"attention\"";
    let gateway = Gateway::start(&with_keys(&config(&redis.url(), upstream.address, policy), &[KEY]));
    let body = format!(r#"{{"id":"evt_bad","amount":1,"card":"{CANARY}"}}"#);
    let fields = [("authorization", "Bearer 4000056655665556"), ("x-a", "1"), ("x-a", "2")];
    assert_eq!(post(gateway.ingest, "/pay?a=1", &fields, &body).await.status, 502);
    let written = kept(&redis, "evt_bad").await.expect("a kept request");
    assert_eq!(written.delivery.body, body);
    assert_eq!((written.delivery.path.as_str(), written.delivery.query.as_deref()), ("/pay", Some("a=1")));
    assert_eq!(written.delivery.headers.get("authorization").unwrap(), "Bearer 4000056655665556");
    assert_eq!(written.delivery.headers.get_all("x-a").iter().count(), 2);
    assert_eq!(written.sender.forwarded_for, "127.0.0.1");
    let record = redis.cli(&["HGETALL", "onceward:rec:t:pay:evt_bad"]);
    assert!(record.contains("sealed:"), "{record}");
    for secret in [CANARY, "4000056655665556"] {
        assert!(!holds(record.as_bytes(), secret), "{record}");
        assert_eq!(found_in(gateway.home().path(), secret), Vec::<String>::new());
    }
    assert_eq!(pay(&gateway, &event("evt_good", 1)).await.status, 200);
    assert!(kept(&redis, "evt_good").await.is_none(), "nobody has to look at a success");
}

/// The claim itself holds the request: a crash in the middle of the forward loses nothing.
#[tokio::test]
async fn a_request_is_kept_over_a_crash() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, _| Act::Silence).await;
    let policy = "failed = \"dead-letter\"\nkeep_request = \"attention\"";
    let gateway = Gateway::start(&with_keys(&config(&redis.url(), upstream.address, policy), &[KEY]));
    let delivery = deliver(&gateway, &event("evt_1", 1));
    upstream.arrived(1).await;
    gateway.kill();
    assert!(delivery.await.unwrap().is_err());
    assert_eq!(kept(&redis, "evt_1").await.expect("a kept request").delivery.body, event("evt_1", 1));
}

/// Where no person is waited for, and where the route says never, no request is kept.
#[tokio::test]
async fn a_request_is_kept_for_nothing_else() {
    for policy in ["keep_request = \"attention\"", "unknown = \"hold\""] {
        let redis = RedisServer::start();
        let upstream = Upstream::start(|_, _| Act::Reset).await;
        let gateway = Gateway::start(&with_keys(&config(&redis.url(), upstream.address, policy), &[KEY]));
        assert_eq!(pay(&gateway, &event("evt_1", 1)).await.status, 502);
        assert!(kept(&redis, "evt_1").await.is_none(), "{policy}");
    }
}

/// Without keys no request may be kept: said before anything is served.
#[tokio::test]
async fn requests_are_kept_encrypted_only() {
    let upstream = Upstream::counting().await;
    let home = crate::support::gateway::Home::new(&config(SQLITE, upstream.address, "keep_request = \"attention\""));
    assert!(home.refuses().contains("set store.encryption_keys"));
}
