//! A candidate through the whole gateway: uploaded, shown live traffic and captured requests, then let in or not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::requests;
use crate::admin::rig::{OPS, OTHER, audit, config, metrics};
use crate::journey::rig::{is_first, is_problem, is_replay};
use crate::journey::sealed::{KEY, with_keys};
use crate::plugins::guest::{GuestCode, Told};
use crate::support::client::{Answer, post, send};
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

const PLUGIN: &str = "/v1/tenants/t/plugins/guest";
/// A guest does what a test is about on a body of three bytes.
pub const TRIGGER: &str = "now";
const OTHER_EVENT: &str = "a good event";

/// The route `/pay` of tenant `t` is read by the plugin `t/guest`.
fn reading(store: &str, upstream: &Upstream, registry: &str, more: &str) -> String {
    let text = config(store, upstream.address, "").replacen(
        "plugin = \"json\"\nplugin_config = { key = [\"/id\"], material = [\"/amount\"] }",
        &format!("plugin = \"t/guest\"\nplugin_config = {{}}\n{more}"),
        1,
    );
    with_keys(&text, &[KEY])
        + &format!("\n[plugins]\nregistry = \"file:{registry}\"\n[tenants.t]\nlimits = {{ uploads = \"100/h\" }}\n")
}

pub struct Rig {
    pub gateway: Gateway,
    upstream: Upstream,
}

impl Rig {
    pub async fn start(more: &str) -> Self {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&reading("memory:", &upstream, "{dir}/registry", more));
        Self { gateway, upstream }
    }

    pub async fn act(&self, verb: &str, body: &Value) -> Answer {
        act(&self.gateway, verb, body).await
    }

    pub async fn pay(&self, body: &str) -> Answer {
        post(self.gateway.ingest, "/pay", &[], body).await
    }
}

async fn ask(gateway: &Gateway, method: &str, path: &str, token: &str, body: &[u8]) -> Answer {
    let bearer = format!("Bearer {token}");
    send(gateway.admin, method, path, &[("authorization", &bearer)], body).await
}

pub async fn upload(gateway: &Gateway, code: GuestCode) -> String {
    let answer = ask(gateway, "POST", &format!("{PLUGIN}/versions"), OPS, &code.build()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["digest"].as_str().unwrap().to_owned()
}

async fn act(gateway: &Gateway, verb: &str, body: &Value) -> Answer {
    ask(gateway, "POST", &format!("{PLUGIN}/{verb}"), OPS, body.to_string().as_bytes()).await
}

pub async fn activate(gateway: &Gateway, digest: &str) -> Answer {
    act(gateway, "activate", &json!({ "digest": digest })).await
}

/// Uploads a version and lets it serve.
pub async fn serve(gateway: &Gateway, code: GuestCode) -> String {
    let digest = upload(gateway, code).await;
    let answer = activate(gateway, &digest).await;
    assert_eq!((answer.status, answer.json()["serving"].as_bool()), (200, Some(true)), "{answer:?}");
    digest
}

/// Uploads a version and lets it run beside.
pub async fn shadow(gateway: &Gateway, code: GuestCode) -> String {
    let digest = upload(gateway, code).await;
    let answer = act(gateway, "activate", &json!({ "digest": digest, "shadow": true })).await;
    assert_eq!((answer.status, answer.json()["shadow"].as_str()), (200, Some(digest.as_str())), "{answer:?}");
    digest
}

async fn report(gateway: &Gateway) -> Value {
    let answer = ask(gateway, "GET", PLUGIN, OPS, b"").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["shadow_report"].clone()
}

/// The report once so many deliveries are in it.
pub async fn compared(gateway: &Gateway, deliveries: u64) -> Value {
    let seen = async || {
        let report = report(gateway).await;
        report["compared"].as_u64().unwrap_or(0) + report["skipped"].as_u64().unwrap_or(0)
    };
    eventually("the deliveries are compared", || async { seen().await >= deliveries }).await;
    report(gateway).await
}

pub fn keyed(key: &'static str) -> GuestCode {
    GuestCode::new().process(&[Told::key(&[key])])
}

/// What a candidate says differently is told and counted, changes nothing for senders, and keeps it from serving; one that declares
/// that its keys are others may serve.
#[tokio::test]
async fn another_key_is_found_and_refused() {
    let rig = Rig::start("").await;
    let active = serve(&rig.gateway, keyed("a")).await;
    let candidate = shadow(&rig.gateway, keyed("b")).await;
    let first = rig.pay(TRIGGER).await;
    is_first(&first, "call 0");
    for _ in 0..4 {
        is_replay(&rig.pay(TRIGGER).await, &first);
    }
    is_first(&rig.pay(OTHER_EVENT).await, "call 1");
    let found = compared(&rig.gateway, 6).await;
    assert_eq!((&found["compared"], &found["keys"], &found["equal"]), (&json!(6), &json!(5), &json!(1)), "{found}");
    assert_eq!((&found["active"], &found["candidate"]), (&json!(active), &json!(candidate)));
    let example = &found["examples"][0];
    assert_eq!(
        (&example["kind"], &example["active"], &example["candidate"]),
        (&json!("keys"), &json!("t:pay:a"), &json!("t:pay:b"))
    );
    assert_eq!(example["event"], first.header("onceward-event").unwrap());
    assert!(found["candidate_fuel"]["median"].as_u64() > Some(0), "{found}");
    let counted = metrics(&rig.gateway).await;
    let count = |result: &str| {
        counted
            .get(&format!("onceward_plugin_shadow_total{{tenant=\"t\",plugin=\"t/guest\",result=\"{result}\"}}"))
            .copied()
    };
    assert_eq!((count("keys"), count("equal")), (Some(5.0), Some(1.0)), "{counted:?}");

    let refused = activate(&rig.gateway, &candidate).await;
    is_problem(&refused, 409, "keys-differ");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("5 of 6") && detail.contains("t:pay:a") && detail.contains("key-namespace"), "{detail}");
    assert_eq!(refused.json()["shadow"]["keys"], 5);
    assert!(
        audit(&rig.gateway, "operator")
            .iter()
            .any(|line| line.to_string().contains("refused: the version gives other keys"))
    );
    is_replay(&rig.pay(TRIGGER).await, &first);

    // The same keys elsewhere: allowed, and every event is first-seen there.
    let renamed = shadow(&rig.gateway, keyed("b").called("2.0.0", "v2")).await;
    for _ in 0..3 {
        is_replay(&rig.pay(TRIGGER).await, &first);
    }
    assert_eq!(compared(&rig.gateway, 3).await["keys"], 3);
    let answer = activate(&rig.gateway, &renamed).await;
    assert_eq!((answer.status, answer.json()["shadow"].clone()), (200, Value::Null), "{answer:?}");
    is_first(&rig.pay(TRIGGER).await, "call 2");
    assert_eq!(rig.upstream.hits()[2].header("idempotency-key"), Some("t:pay@v2:b"));
    assert_eq!(report(&rig.gateway).await, Value::Null, "nothing runs beside it now");
}

#[tokio::test]
async fn an_equal_version_is_silent_and_serves() {
    let rig = Rig::start("").await;
    serve(&rig.gateway, keyed("a")).await;
    let candidate = shadow(&rig.gateway, keyed("a").called("2.0.0", "")).await;
    let first = rig.pay(TRIGGER).await;
    rig.pay(OTHER_EVENT).await;
    let found = compared(&rig.gateway, 2).await;
    assert_eq!((&found["equal"], &found["examples"]), (&json!(2), &json!([])), "{found}");
    assert_eq!(activate(&rig.gateway, &candidate).await.status, 200);
    is_replay(&rig.pay(TRIGGER).await, &first);
}

/// Collisions, splits and traps, each by its own candidate, one after the other.
#[tokio::test]
async fn collisions_splits_and_traps() {
    let rig = Rig::start("").await;
    serve(&rig.gateway, keyed("a")).await;
    let both = async || {
        for body in [TRIGGER, OTHER_EVENT, TRIGGER] {
            assert_eq!(rig.pay(body).await.status, 200);
        }
    };
    shadow(&rig.gateway, keyed("k")).await;
    both().await;
    let found = compared(&rig.gateway, 3).await;
    assert_eq!((&found["collisions"], &found["splits"]), (&json!(1), &json!(0)), "{found}");
    let trapping = shadow(&rig.gateway, GuestCode::new().extract("unreachable")).await;
    both().await;
    let found = compared(&rig.gateway, 3).await;
    assert_eq!((&found["failures"], &found["equal"]), (&json!({ "guest-trap": 2 }), &json!(1)), "{found}");
    assert!(!metrics(&rig.gateway).await.keys().any(|name| name.starts_with("onceward_plugin_failures_total")));
    // Only keys are the gate's.
    assert_eq!(activate(&rig.gateway, &trapping).await.status, 200);
    assert_eq!(rig.pay(TRIGGER).await.status, 503);

    let rig = Rig::start("").await;
    serve(&rig.gateway, keyed("k")).await;
    shadow(&rig.gateway, keyed("a")).await;
    for body in [TRIGGER, OTHER_EVENT] {
        rig.pay(body).await;
    }
    let found = compared(&rig.gateway, 2).await;
    assert_eq!((&found["collisions"], &found["splits"]), (&json!(0), &json!(1)), "{found}");
}

/// Whichever replica is asked knows what the others found.
#[tokio::test]
async fn replicas_add_up() {
    let redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let shared = tempfile::TempDir::new().unwrap();
    let text = reading(&redis.url(), &upstream, shared.path().to_str().unwrap(), "");
    let (one, two) = (Gateway::start(&text), Gateway::start(&text));
    serve(&one, keyed("a")).await;
    let candidate = shadow(&one, keyed("b")).await;
    // Both run it within two seconds.
    for gateway in [&one, &two] {
        eventually("the candidate runs beside", || async {
            post(gateway.ingest, "/pay", &[], TRIGGER).await;
            let counted = metrics(gateway).await;
            counted.keys().any(|name| name.starts_with("onceward_plugin_shadow_total"))
        })
        .await;
    }
    let own = async |gateway: &Gateway| -> f64 {
        let counted = metrics(gateway).await;
        counted
            .iter()
            .filter(|(name, _)| name.starts_with("onceward_plugin_shadow_total"))
            .map(|(_, count)| count)
            .sum()
    };
    eventually("each tells what both found", || async {
        let both = own(&one).await + own(&two).await;
        let (one, two) = (report(&one).await, report(&two).await);
        let told = one["compared"].as_f64().unwrap_or(0.0) + one["skipped"].as_f64().unwrap_or(0.0);
        told == both && one == two
    })
    .await;
    // One that has seen nothing itself refuses too, also once the others are gone.
    let home = one.kill();
    drop((home, two));
    let late = Gateway::start(&text);
    is_problem(&activate(&late, &candidate).await, 409, "keys-differ");
}

/// Requests that were captured while the active version served keep a candidate out that never ran beside it.
#[tokio::test]
async fn captured_requests_speak_too() {
    let rig = Rig::start("capture = { max = 1000, ttl = \"1h\" }").await;
    serve(&rig.gateway, keyed("a")).await;
    for at in 0..100 {
        let body = if at % 2 == 0 { TRIGGER } else { OTHER_EVENT };
        assert_eq!(rig.pay(body).await.status, 200);
    }
    let dir = rig.gateway.home().path().join("state/captures/t/pay");
    eventually("all are captured", || async { requests(&dir).len() == 100 }).await;
    let candidate = upload(&rig.gateway, keyed("b")).await;
    let tried = act(&rig.gateway, "test", &json!({ "digest": candidate, "captured": true })).await;
    assert_eq!(tried.status, 200, "{tried:?}");
    let tried = tried.json();
    assert_eq!(
        (&tried["captured"], &tried["report"]["compared"], &tried["report"]["keys"]),
        (&json!(100), &json!(100), &json!(50)),
        "{tried}"
    );
    let refused = activate(&rig.gateway, &candidate).await;
    is_problem(&refused, 409, "keys-differ");
    assert_eq!(refused.json()["replay"]["report"]["keys"], 50, "{refused:?}");
    let equal = upload(&rig.gateway, keyed("a").called("2.0.0", "")).await;
    let answer = activate(&rig.gateway, &equal).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let renamed = upload(&rig.gateway, keyed("b").called("3.0.0", "v3")).await;
    assert_eq!(activate(&rig.gateway, &renamed).await.status, 200);
    // What another tenant captured is not for its eyes.
    let foreign = ask(
        &rig.gateway,
        "POST",
        &format!("{PLUGIN}/test"),
        OTHER,
        json!({ "digest": candidate, "captured": true }).to_string().as_bytes(),
    )
    .await;
    is_problem(&foreign, 404, "not-found");
}

/// Answers do not wait for a candidate that spins to its limit.
#[tokio::test]
async fn a_spinning_candidate_delays_no_answer() {
    let rig = Rig::start("").await;
    serve(&rig.gateway, keyed("a")).await;
    assert_eq!(rig.pay(TRIGGER).await.status, 200);
    let median = async || -> Duration {
        let mut times = Vec::new();
        for _ in 0..101 {
            let start = Instant::now();
            assert_eq!(rig.pay(TRIGGER).await.status, 200);
            times.push(start.elapsed());
        }
        times.sort();
        times[50]
    };
    let before = median().await;
    shadow(&rig.gateway, GuestCode::new().extract("(loop $again (br $again)) (i32.const 0)")).await;
    let beside = median().await;
    let found = compared(&rig.gateway, 101).await;
    let spun = Duration::from_micros(found["candidate_us"]["median"].as_u64().unwrap());
    assert!(found["failures"].as_object().is_some_and(|kinds| !kinds.is_empty()), "{found}");
    assert!(beside < before + spun / 2, "{before:?} before, {beside:?} beside a candidate that takes {spun:?}");
}

/// An active version whose code is lost can be replaced, whatever there is to compare.
#[tokio::test]
async fn what_cannot_run_keeps_nobody_out() {
    let rig = Rig::start("capture = { max = 10, ttl = \"1h\" }").await;
    let active = serve(&rig.gateway, keyed("a")).await;
    rig.pay(TRIGGER).await;
    let home: Home = rig.gateway.home();
    let dir = home.path().join("state/captures/t/pay");
    eventually("it is captured", || async { requests(&dir).len() == 1 }).await;
    let candidate = upload(&rig.gateway, keyed("a").called("2.0.0", "")).await;
    std::fs::remove_file(home.path().join(format!("registry/t/guest/blobs/{active}.wasm"))).unwrap();
    let gateway = rig.gateway.kill();
    std::fs::remove_dir_all(home.path().join("state/plugins")).unwrap();
    let gateway = gateway.start();
    let answer = activate(&gateway, &candidate).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
