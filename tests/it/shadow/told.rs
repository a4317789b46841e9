//! What people are told of a candidate, and what is left of it.

use std::process::Command;

use serde_json::{Value, json};

use super::live::{Rig, TRIGGER, activate, compared, keyed, serve, shadow, upload};
use super::rig::requests;
use crate::admin::rig::T;
use crate::plugins::guest::{GuestCode, Told};
use crate::support::eventually;
use crate::support::gateway::Gateway;

/// Exit code and text.
async fn onceward(gateway: &Gateway, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command
        .arg("plugin")
        .args(arguments)
        .args(["--url", &format!("http://{}", gateway.admin)])
        .env("ONCEWARD_TOKEN", T);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// A tenant finds out from a shell what a version would do, and why it is not let in.
#[tokio::test]
async fn from_a_shell() {
    let rig = Rig::start("capture = {}").await;
    let active = serve(&rig.gateway, keyed("a")).await;
    let candidate = upload(&rig.gateway, keyed("b")).await;
    let (code, none) = onceward(&rig.gateway, &["compare", "t/guest", &candidate[..12]]).await;
    assert!(code == Some(0) && none.contains("captured no request"), "{none}");
    assert_eq!(rig.pay(TRIGGER).await.status, 200);
    let dir = rig.gateway.home().path().join("state/captures/t/pay");
    eventually("it is captured", || async { requests(&dir).len() == 1 }).await;
    let (code, found) = onceward(&rig.gateway, &["compare", "t/guest", &candidate[..12]]).await;
    assert_eq!(code, Some(0), "{found}");
    for part in
        ["captured requests: 1 compared, 0 equal", "differ: keys 1", "keys: t:pay:a → t:pay:b (route pay, event "]
    {
        assert!(found.contains(part), "{part}: {found}");
    }
    let (code, json) = onceward(&rig.gateway, &["compare", "t/guest", &candidate, "--json"]).await;
    assert_eq!((code, &serde_json::from_str::<Value>(&json).unwrap()["captured"]), (Some(0), &json!(1)), "{json}");
    let (code, refused) = onceward(&rig.gateway, &["activate", "t/guest", &candidate]).await;
    assert!(code == Some(1) && refused.contains("key-namespace") && refused.contains("t:pay:b"), "{refused}");

    let material = Told { key: vec!["a"], material: vec![], aliases: vec![vec!["x"]] };
    shadow(&rig.gateway, GuestCode::new().process(&[material]).called("2.0.0", "")).await;
    rig.pay(TRIGGER).await;
    compared(&rig.gateway, 1).await;
    let (code, list) = onceward(&rig.gateway, &["list", "t/guest"]).await;
    assert_eq!(code, Some(0), "{list}");
    for part in
        [&active[..12], "beside the active version runs", "live traffic: 1 compared, 0 equal", "aliases: none → x"]
    {
        assert!(list.contains(part), "{part}: {list}");
    }
}

/// What `test` needs is one of two things, and something to compare with.
#[tokio::test]
async fn a_replay_needs_an_active_version() {
    let rig = Rig::start("").await;
    let candidate = upload(&rig.gateway, keyed("b")).await;
    let test = async |wish: Value| rig.act("test", &wish).await;
    let answer = test(json!({ "digest": candidate, "captured": true })).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "conflict"), "{answer:?}");
    serve(&rig.gateway, keyed("a")).await;
    let answer = test(json!({ "digest": candidate, "captured": true })).await;
    assert_eq!((answer.status, &answer.json()["captured"]), (200, &json!(0)), "{answer:?}");
    for wish in [
        json!({ "digest": candidate }),
        json!({ "digest": candidate, "captured": false }),
        json!({ "digest": candidate, "captured": true, "request": {} }),
    ] {
        assert_eq!(test(wish.clone()).await.status, 400, "{wish}");
    }
    let answer = test(json!({ "digest": "0".repeat(64), "captured": true })).await;
    assert_eq!(answer.status, 404, "{answer:?}");
}

/// The reports on a version go with it.
#[tokio::test]
async fn reports_go_with_their_version() {
    let rig = Rig::start("").await;
    serve(&rig.gateway, keyed("a")).await;
    let candidate = shadow(&rig.gateway, keyed("b")).await;
    rig.pay(TRIGGER).await;
    compared(&rig.gateway, 1).await;
    let reports = rig.gateway.home().path().join(format!("registry/t/guest/shadow/{candidate}"));
    assert_eq!(std::fs::read_dir(&reports).unwrap().count(), 1);
    let next = upload(&rig.gateway, keyed("b").called("2.0.0", "v2")).await;
    assert_eq!(activate(&rig.gateway, &next).await.status, 200);
    for version in ["3.0.0", "4.0.0", "5.0.0", "6.0.0", "7.0.0"] {
        upload(&rig.gateway, keyed("b").called(version, "v2")).await;
    }
    let left = std::fs::read_dir(&reports).map_or(0, Iterator::count);
    assert_eq!(left, 0, "reports on a version that is gone");
}
