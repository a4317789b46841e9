//! The life of an upload: a version, active, previous, and gone.

use serde_json::json;

use super::rig::{
    OPS, ORDERS, Rig, T, activate, ask, bring_in, config, digest, names, orders, pay, registry, upload, version,
};
use crate::admin::rig::{audit, metrics};
use crate::journey::rig::{event, is_problem};
use crate::support::client::get;
use crate::support::gateway::Home;
use crate::support::upstream::Upstream;

/// A route without code answers 503; an upload alone changes nothing; an activation does at once.
#[tokio::test]
async fn upload_activate_serve() {
    let rig = Rig::start("").await;
    is_problem(&pay(&rig.gateway, &event("a", 1)).await, 503, "plugin-unavailable");
    assert!(rig.gateway.log().contains("no active version"), "{}", rig.gateway.log());

    let one = version(1);
    let uploaded = upload(&rig.gateway, &one).await;
    assert_eq!(uploaded.status, 201, "{uploaded:?}");
    let told = uploaded.json();
    assert_eq!((&told["digest"], &told["size"]), (&json!(digest(&one)), &json!(one.len())), "{told}");
    for measured in ["fuel", "memory", "compile_ms"] {
        assert!(told[measured].as_u64().unwrap() > 0, "{measured}: {told}");
    }
    assert!(told["version"].is_string() && told["code"]["limit"].as_u64() == Some(64 << 20), "{told}");
    is_problem(&pay(&rig.gateway, &event("a", 1)).await, 503, "plugin-unavailable");

    let activated = activate(&rig.gateway, &digest(&one)).await.json();
    assert_eq!((&activated["generation"], &activated["serving"]), (&json!(1), &json!(true)), "{activated}");
    let first = pay(&rig.gateway, &event("a", 1)).await;
    assert_eq!((first.status, first.idempotency()), (200, "first"), "{first:?}");
    assert_eq!(rig.upstream.hits()[0].header("idempotency-key"), Some("t:pay:a"));

    let seen = orders(&rig.gateway).await;
    assert_eq!(seen["versions"][0]["state"], "active", "{seen}");
    assert_eq!((&seen["serving_generation"], &seen["routes"]), (&json!(1), &json!(["pay"])), "{seen}");
    let done: Vec<_> = audit(&rig.gateway, "operator").iter().map(|line| line["verb"].clone()).collect();
    assert_eq!(done, ["upload", "activate"]);
    assert_eq!(audit(&rig.gateway, "operator")[1]["by"], "t-ci");
    let label = "{tenant=\"t\",plugin=\"t/orders\"}";
    let measured = metrics(&rig.gateway).await;
    assert_eq!(measured[&format!("onceward_plugin_generation{label}")], 1.0);
    assert_eq!(measured[&format!("onceward_plugin_generation_lag{label}")], 0.0);
}

/// An upgrade makes no old event new; a rollback is one call and walks back one step at a time.
#[tokio::test]
async fn an_upgrade_and_a_rollback_keep_what_is_known() {
    let rig = Rig::start("").await;
    bring_in(&rig.gateway, &version(1)).await;
    let first = pay(&rig.gateway, &event("a", 1)).await;
    for number in [2, 3] {
        bring_in(&rig.gateway, &version(number)).await;
        let replay = pay(&rig.gateway, &event("a", 1)).await;
        assert_eq!((replay.idempotency(), &replay.body), ("replay", &first.body), "{replay:?}");
    }
    let rollback = || ask(&rig.gateway, "POST", "/v1/tenants/t/plugins/orders/rollback", T, b"");
    for (back_to, previous) in [(2, json!(digest(&version(1)))), (1, json!(null))] {
        let told = rollback().await;
        assert_eq!(told.status, 200, "{told:?}");
        let told = told.json();
        assert_eq!((&told["active"], &told["serving"]), (&json!(digest(&version(back_to))), &json!(true)), "{told}");
        assert_eq!(told["previous"], previous, "{told}");
        assert_eq!(pay(&rig.gateway, &event("a", 1)).await.idempotency(), "replay");
    }
    is_problem(&rollback().await, 409, "conflict");
    assert_eq!(orders(&rig.gateway).await["generation"], 5);
    // What is active already is not activated again.
    assert_eq!(activate(&rig.gateway, &digest(&version(1))).await.json()["generation"], 5);
    assert_eq!(rig.upstream.count(), 1);
}

/// A restart finds what was active, without compiling it again.
#[tokio::test]
async fn a_restart_keeps_what_is_active() {
    let upstream = Upstream::counting().await;
    let home = Home::new(&config("file:registry", "sqlite:{dir}/onceward.db", upstream.address, ""));
    let gateway = home.start();
    bring_in(&gateway, &version(1)).await;
    bring_in(&gateway, &version(2)).await;
    let first = pay(&gateway, &event("a", 1)).await;
    assert_eq!(first.status, 200);
    let gateway = gateway.kill().start();
    let replay = pay(&gateway, &event("a", 1)).await;
    assert_eq!((replay.idempotency(), &replay.body), ("replay", &first.body), "{replay:?}");
    assert_eq!(orders(&gateway).await["active"], digest(&version(2)));
    // Even without the code's file: this machine has it compiled.
    let home = gateway.kill();
    std::fs::remove_dir_all(registry(&home).join("blobs")).unwrap();
    let gateway = home.start();
    assert_eq!(pay(&gateway, &event("a", 1)).await.idempotency(), "replay");
    // What somebody else wrote there is not run.
    let home = gateway.kill();
    let state = home.path().join("state/plugins");
    for file in names(&state).iter().filter(|name| name.ends_with(".cwasm")) {
        let path = state.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let gateway = home.start();
    is_problem(&pay(&gateway, &event("a", 1)).await, 503, "plugin-unavailable");
    assert!(gateway.log().contains("kept code is not what was written"), "{}", gateway.log());
    let ready = get(gateway.admin, "/readyz").await;
    assert_eq!((ready.status, ready.json()["status"].as_str().unwrap()), (200, "degraded"), "{ready:?}");
    // The same upload mends the registry, and is compiled again.
    assert_eq!(upload(&gateway, &version(2)).await.status, 201);
    crate::support::eventually("it serves again", || async {
        pay(&gateway, &event("a", 1)).await.idempotency() == "replay"
    })
    .await;
}

/// Five versions are kept, and those that serve whatever their age; their code goes with them.
#[tokio::test]
async fn old_versions_go_and_what_serves_stays() {
    let rig = Rig::start("[tenants.t]\nlimits = { versions = 2 }").await;
    bring_in(&rig.gateway, &version(1)).await;
    bring_in(&rig.gateway, &version(2)).await;
    for number in 3..=5 {
        assert_eq!(upload(&rig.gateway, &version(number)).await.status, 201);
    }
    let seen = orders(&rig.gateway).await;
    let states: Vec<_> = seen["versions"].as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, ["uploaded", "uploaded", "active", "previous"], "{seen}");
    let mut expected: Vec<_> = [1, 2, 4, 5].map(|number| digest(&version(number)) + ".wasm").to_vec();
    expected.sort();
    assert_eq!(names(&rig.registry().join("blobs")), expected);
    let gone = activate(&rig.gateway, &digest(&version(3))).await;
    is_problem(&gone, 404, "not-found");
    assert!(gone.json()["detail"].as_str().unwrap().contains("no version"), "{gone:?}");
}

/// What no route names can be uploaded and activated; it serves once a route names it.
#[tokio::test]
async fn a_plugin_without_a_route_is_kept() {
    let rig = Rig::start("").await;
    let spare = "/v1/tenants/t/plugins/spare";
    let uploaded = ask(&rig.gateway, "POST", &format!("{spare}/versions"), OPS, &version(1)).await;
    assert_eq!(uploaded.status, 201, "{uploaded:?}");
    let wish = json!({ "digest": digest(&version(1)) }).to_string();
    let told = ask(&rig.gateway, "POST", &format!("{spare}/activate"), OPS, wish.as_bytes()).await.json();
    assert_eq!((&told["generation"], &told["serving"]), (&json!(1), &json!(false)), "{told}");
    let list = ask(&rig.gateway, "GET", "/v1/tenants/t/plugins", T, b"").await.json();
    let named: Vec<_> = list["plugins"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(named, ["orders", "spare"], "{list}");
    assert_eq!(list["code"]["used"], version(1).len(), "{list}");
    is_problem(&ask(&rig.gateway, "GET", "/v1/tenants/t/plugins/nothing", T, b"").await, 404, "not-found");
    assert_eq!(ask(&rig.gateway, "GET", ORDERS, T, b"").await.json()["versions"], json!([]));
}
