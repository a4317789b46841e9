//! An upload that fails, and the version that served before it.

use serde_json::json;

use super::rig::{Rig, bring_in, pay};
use crate::admin::rig::{audit, metrics};
use crate::journey::rig::{is_first, is_problem, is_replay};
use crate::plugins::guest::{GuestCode, Told};
use crate::support::client::get;

/// What the second version traps on; the first names it `old`.
const TRIGGER: &str = "now";

fn good() -> Vec<u8> {
    GuestCode::new().process(&[Told::key(&["old"])]).build()
}

fn trapping() -> Vec<u8> {
    GuestCode::new().extract("(unreachable)").build()
}

/// After twenty failures the version before serves, until another one is activated; health, audit and metrics say so.
#[tokio::test]
async fn a_failing_upload_rolls_over() {
    const GAUGE: &str = "onceward_plugin_breaker{tenant=\"t\",plugin=\"t/orders\"}";
    let rig = Rig::start("").await;
    bring_in(&rig.gateway, &good()).await;
    bring_in(&rig.gateway, &trapping()).await;
    assert_eq!(metrics(&rig.gateway).await[GAUGE], 0.0);
    for _ in 0..20 {
        is_problem(&pay(&rig.gateway, TRIGGER).await, 503, "plugin-failed");
    }
    let first = pay(&rig.gateway, TRIGGER).await;
    is_first(&first, "call 0");
    assert_eq!(rig.upstream.hits()[0].header("idempotency-key"), Some("t:pay:old"));
    is_replay(&pay(&rig.gateway, TRIGGER).await, &first);

    let ready = get(rig.gateway.admin, "/readyz").await;
    assert_eq!((ready.status, &ready.json()["status"]), (200, &json!("degraded")), "{ready:?}");
    assert!(ready.json()["reasons"][0].as_str().unwrap().contains("t/orders of t fails"), "{ready:?}");
    let off = audit(&rig.gateway, "breaker_off");
    assert_eq!(off.len(), 1, "{off:?}");
    assert_eq!((&off[0]["level"], &off[0]["failures"]), (&json!("ERROR"), &json!(20)), "{off:?}");
    assert_eq!(metrics(&rig.gateway).await[GAUGE], 1.0);

    bring_in(&rig.gateway, &good()).await;
    is_replay(&pay(&rig.gateway, TRIGGER).await, &first);
    assert_eq!(get(rig.gateway.admin, "/readyz").await.json()["status"], "ready");
    assert_eq!(metrics(&rig.gateway).await[GAUGE], 0.0);
}

/// `plugin_failure = "previous"`: from the first failure on.
#[tokio::test]
async fn the_version_before_is_asked_at_once() {
    let rig = Rig::start("[idempotency]\nplugin_failure = \"previous\"\n").await;
    bring_in(&rig.gateway, &good()).await;
    bring_in(&rig.gateway, &trapping()).await;
    let first = pay(&rig.gateway, TRIGGER).await;
    is_first(&first, "call 0");
    is_replay(&pay(&rig.gateway, TRIGGER).await, &first);
    is_first(&pay(&rig.gateway, "a good event").await, "call 1");
}
