//! `onceward explain`: what is stored, and what would follow. Beside a running gateway, and without one.

use std::process::{Command, Output};

use serde_json::Value;

use super::rig::{Rig, config};
use crate::journey::rig::{bad_once, event};
use crate::support::config::SQLITE;
use crate::support::gateway::Home;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream, answer};

fn explain(home: &Home, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.args(["explain", "--config", "onceward.toml"]).args(arguments).current_dir(home.path());
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn decisions(told: &Value) -> Vec<String> {
    let next = told["next"].as_array().unwrap().iter();
    next.map(|next| format!("{} {}", next["decision"].as_str().unwrap(), next["status"])).collect()
}

#[tokio::test]
async fn it_tells_what_the_next_delivery_then_gets() {
    let redis = RedisServer::start();
    foretells(&redis.url()).await;
    foretells(SQLITE).await;
}

/// Beside a running gateway over this store.
async fn foretells(store: &str) {
    let upstream = bad_once(|id| match id {
        "silent" => Act::Silence,
        "refused" => answer(500, &[], b"no"),
        _ => answer(201, &[], b"made"),
    });
    let rig = Rig::over(store, upstream.await, "unknown = \"hold\"\nlease = \"300ms\"");
    for id in ["ok", "silent", "refused"] {
        rig.pay(&event(id, 1)).await;
    }
    let home = rig.gateway.home();
    for (id, expected) in [
        ("ok", ["replay 201", "mismatch 409"]),
        ("silent", ["held 409", "mismatch 409"]),
        ("refused", ["forward null", "mismatch 409"]),
    ] {
        let output = explain(&home, &["t/pay", id, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(decisions(&told), expected, "{id}: {told}");
        assert_eq!(told["fields"], serde_json::json!(["$method", "/amount"]), "{told}");
        // The API says the same, but for the moment of asking.
        let mut api = rig.see(&super::rig::place(id)).await.json();
        let mut told = told;
        for both in [&mut api, &mut told] {
            both["now"].take();
            both["next"].take();
        }
        assert_eq!(told, api);
    }
    // And it is so: other material first, since it changes nothing.
    for (id, status) in [("ok", 201), ("silent", 409), ("refused", 200)] {
        assert_eq!(rig.pay(&event(id, 2)).await.code(), "fingerprint-mismatch", "{id}");
        assert_eq!(rig.pay(&event(id, 1)).await.status, status, "{id}");
    }
}

#[tokio::test]
async fn it_reads_for_people_also_when_no_gateway_runs() {
    let rig = Rig::over(SQLITE, Upstream::counting().await, "");
    rig.pay(&event("ord_1", 1)).await;
    let (home, _) = rig.gateway.stop();
    let output = explain(&home, &["t/pay", "ord_1"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for expected in [
        "t:pay:ord_1",
        "succeeded",
        "window ends",
        " d 23 h)",
        "$method, /amount",
        "upstream 200",
        "same  material  replay 200",
        "other material  mismatch 409",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let rig = Rig::over(SQLITE, Upstream::counting().await, "");
    let home = rig.gateway.home();
    let nothing = explain(&home, &["t/pay", "absent"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", text(&nothing));
    assert!(text(&nothing).contains("first-seen"), "{}", text(&nothing));
    for wrong in ["t/nothing", "nobody/pay", "pay"] {
        let output = explain(&home, &[wrong, "a"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("t/pay") && text(&output).contains("other/other"), "{}", text(&output));
    }
    let memory = Home::new(&config("memory:", "127.0.0.1:1".parse().unwrap(), ""));
    let output = explain(&memory, &["t/pay", "a"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("onceward events show t/pay a"), "{}", text(&output));
}
