//! Plugins that misbehave, through the whole gateway: refused, nothing claimed, nothing forwarded, the next event served.

use super::rig::{Rig, event, is_first, is_problem, is_replay, pay, start_with_file};
use crate::plugins::guest::{GuestCode, Told};
use crate::support::client::{Answer, post};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Home;
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

const JSON_PLUGIN: &str = r#"plugin = "json"
plugin_config = { key = ["/id"], material = ["/amount"] }"#;
/// A body of three bytes is what a guest misbehaves on.
const TRIGGER: &str = "now";

/// `/pay` through this guest, and `/other` through the plugin json.
async fn guest(store: &str, guest: GuestCode, policy: &str) -> Rig {
    let upstream = Upstream::counting().await;
    let text = config(store, upstream.address, policy)
        .replace(JSON_PLUGIN, "plugin = \"file:{dir}/guest.wasm\"\nplugin_config = {}")
        + &format!(
            "[[routes]]\ntenant = \"t\"\nname = \"other\"\npath = \"/other\"\nupstream = \"u\"\n{JSON_PLUGIN}\n"
        );
    Rig { gateway: start_with_file(&text, "guest.wasm", &guest.build()), upstream }
}

/// Scenario 63: stopped within its limits, 503 with the kind, no claim, no forward; the next event gets a fresh instance, and
/// other plugins work on.
#[tokio::test]
async fn s63_guests_that_misbehave() {
    let redis = RedisServer::start();
    let forever = "(loop $again (br $again)) (i32.const 0)";
    let grow = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable";
    let guests = [
        ("trap in verify", GuestCode::new().verify("unreachable"), vec!["guest-trap"]),
        ("trap in extract", GuestCode::new().extract("unreachable"), vec!["guest-trap"]),
        ("loop in verify", GuestCode::new().verify(forever), vec!["out-of-fuel", "timeout"]),
        ("loop in extract", GuestCode::new().extract(forever), vec!["out-of-fuel", "timeout"]),
        ("recursion", GuestCode::new().extract("(call $recurse (i32.const 0))"), vec!["guest-trap", "out-of-fuel"]),
        ("memory", GuestCode::new().extract(grow), vec!["memory-limit", "guest-trap"]),
        ("nonsense", GuestCode::new().extract("(i32.const -4)"), vec!["guest-trap", "contract", "output-limit"]),
    ];
    for (name, code, kinds) in guests {
        let rig = guest(&redis.url(), code, "").await;
        for _ in 0..3 {
            let failed = rig.pay(TRIGGER).await;
            is_problem(&failed, 503, "plugin-failed");
            assert_eq!(failed.idempotency(), "rejected", "{name}");
            let kind = failed.json()["kind"].as_str().unwrap_or("").to_owned();
            assert!(kinds.contains(&kind.as_str()), "{name}: {kind}");
        }
        assert_eq!((rig.upstream.count(), records(&redis)), (0, 0), "{name}");
        let other = post(rig.gateway.ingest, "/other", &[], event("evt_1", 1)).await;
        is_first(&other, "call 0");
        is_first(&rig.pay("a good event").await, "call 1");
        assert_eq!(records(&redis), 2, "{name}");
        redis.cli(&["FLUSHALL"]);
    }
}

/// Scenario 63: a loop in the start function stops the start of the gateway, in time and with the file's name.
#[tokio::test]
async fn s63_a_loop_in_the_start_function() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "")
        .replace(JSON_PLUGIN, "plugin = \"file:{dir}/guest.wasm\"\nplugin_config = {}");
    let home = Home::new(&text);
    std::fs::write(home.path().join("guest.wasm"), GuestCode::new().start("(loop $again (br $again))").build())
        .unwrap();
    let said = home.refuses();
    assert!(said.contains("guest.wasm"), "{said}");
}

fn records(redis: &RedisServer) -> usize {
    redis.cli(&["--scan", "--pattern", "onceward:rec:*"]).lines().count()
}

/// `plugin_failure = "forward"`: only what failed in `extract`, after `verified`; never what was not verified.
#[tokio::test]
async fn plugin_failure_forward() {
    const POLICY: &str = r#"plugin_failure = "forward""#;
    let rig = guest(SQLITE, GuestCode::new().extract("unreachable"), POLICY).await;
    for call in 0..2 {
        let answer = rig.pay(TRIGGER).await;
        assert_eq!((answer.status, answer.idempotency()), (200, "bypassed"), "{answer:?}");
        assert_eq!(answer.body, format!("call {call}").into_bytes());
    }
    let rig = guest(SQLITE, GuestCode::new().verify("unreachable"), POLICY).await;
    is_problem(&rig.pay(TRIGGER).await, 503, "plugin-failed");
    assert_eq!(rig.upstream.count(), 0);
}

/// §3: what a plugin may say beside events: refuse, answer, pass.
#[tokio::test]
async fn refuse_answer_pass() {
    let rig = guest(SQLITE, GuestCode::new().reject(422, "not-ours", "wrong account"), "").await;
    let refused = rig.pay(TRIGGER).await;
    is_problem(&refused, 422, "rejected");
    assert_eq!(refused.idempotency(), "rejected");
    assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains("not-ours")), "{refused:?}");
    assert_eq!(rig.upstream.count(), 0);

    let rig = guest(SQLITE, GuestCode::new().respond(202, &[("x-pong", b"1")], b"pong"), "").await;
    let pong = rig.pay(TRIGGER).await;
    assert_eq!((pong.status, pong.idempotency(), pong.header("x-pong")), (202, "bypassed", Some("1")), "{pong:?}");
    assert_eq!((pong.body.as_slice(), rig.upstream.count()), (&b"pong"[..], 0));

    let rig = guest(SQLITE, GuestCode::new().pass(b"a thin ping"), "").await;
    for call in 0..2 {
        let passed = rig.pay(TRIGGER).await;
        assert_eq!((passed.status, passed.idempotency()), (200, "bypassed"), "{passed:?}");
        assert_eq!(passed.body, format!("call {call}").into_bytes());
    }
}

/// Scenario 66: CR, LF and NUL in a plugin's answer are refused, never written.
#[tokio::test]
async fn s66_bytes_that_split_an_answer() {
    let replies: [(&str, &[u8]); 4] =
        [("x-a", b"1\r\nx-evil: 1"), ("x-a", b"1\nx-evil: 1"), ("x-a", b"1\0"), ("x-a: 1\r\nx-evil", b"1")];
    for (name, value) in replies {
        let rig = guest(SQLITE, GuestCode::new().respond(200, &[(name, value)], b""), "").await;
        let refused = rig.pay(TRIGGER).await;
        is_problem(&refused, 503, "plugin-failed");
        assert_eq!(refused.json()["kind"], "contract");
        assert_eq!(refused.header("x-evil"), None);
    }
}

/// Batches, §4: repeats collapse, one forward names each item's state, and all known replays the first.
#[tokio::test]
async fn batches() {
    let items = [Told::key(&["a"]), Told::key(&["b"]), Told::key(&["a"])];
    let rig = guest(SQLITE, GuestCode::new().process(&items), "").await;
    let first = rig.pay(TRIGGER).await;
    is_first(&first, "call 0");
    let hit = &rig.upstream.hits()[0];
    assert_eq!(hit.header("onceward-items"), Some("first, first, replay"), "{hit:?}");
    assert!(hit.header("idempotency-key").is_some_and(|key| key.starts_with("t:pay:sha256-")), "{hit:?}");
    is_replay(&rig.pay(TRIGGER).await, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 64 on the embedded store.
#[tokio::test]
async fn s64_key_shapes_on_sqlite() {
    key_shapes(SQLITE).await;
}

/// Scenario 64 on Redis.
#[tokio::test]
async fn s64_key_shapes_on_redis() {
    let redis = RedisServer::start();
    key_shapes(&redis.url()).await;
}

/// Scenario 64: what says nothing is no key, what cannot be one is refused, and all other keys are stored whole, whatever they hold.
async fn key_shapes(store: &str) {
    let rig = Rig::over(store, Upstream::counting().await, "");
    let send = async |id: &str| -> Answer { rig.pay(&format!("{{{id}\"amount\":1}}")).await };
    for missing in ["", "\"id\":null,", "\"id\":\"\",", "\"id\":\"  \",", "\"id\":\"\\u00a0\\t\","] {
        is_problem(&send(missing).await, 400, "missing-key");
    }
    for malformed in ["\"id\":{},", "\"id\":[],", "\"id\":true,", "\"id\":\"a\",\"id\":\"b\",", "\"id\":\"\\ud800\","] {
        let refused = send(malformed).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "malformed"), "{malformed}: {refused:?}");
        assert_eq!(refused.idempotency(), "rejected");
    }
    for bytes in [&b"\xff\xfe{\"id\":1}"[..], b"", b"null", b"[1]"] {
        let refused = post(rig.gateway.ingest, "/pay", &[], bytes).await;
        assert_eq!((refused.status, refused.idempotency()), (400, "rejected"), "{refused:?}");
    }
    for too_long in [513, 2000] {
        let refused = send(&format!("\"id\":\"{}\",", "k".repeat(too_long))).await;
        assert!([400, 503].contains(&refused.status), "{refused:?}");
        assert_eq!(refused.idempotency(), "rejected");
    }
    assert_eq!(rig.upstream.count(), 0);
    let long = "k".repeat(512);
    let keys = [
        "\\u0000",
        "\\u0000\\u0000",
        "a\\u0000",
        "a",
        "{}",
        "{",
        "{a}{b}",
        "*",
        "?",
        "a b",
        "a\\r\\nSET x 1",
        "'; --",
        "%00",
        "\\\\",
        "|",
        "\u{1f600}",
        "\u{e9}",
        "e\u{301}",
        "sha256-1",
        long.as_str(),
        &long[1..],
    ];
    for (call, key) in keys.iter().enumerate() {
        let first = send(&format!("\"id\":\"{key}\",")).await;
        is_first(&first, &format!("call {call}"));
        is_replay(&send(&format!("\"id\":\"{key}\",")).await, &first);
    }
    let names: std::collections::BTreeSet<_> =
        rig.upstream.hits().iter().map(|hit| hit.header("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!(names.len(), keys.len(), "no two keys are one: {names:?}");
}

/// A guest that names the same key as others do has no part in their scope.
#[tokio::test]
async fn a_guest_keeps_to_its_route() {
    let rig = guest(SQLITE, GuestCode::new().process(&[Told::key(&["evt_1"])]), "").await;
    is_first(&post(rig.gateway.ingest, "/other", &[], event("evt_1", 1)).await, "call 0");
    is_first(&pay(&rig.gateway, TRIGGER).await, "call 1");
}
