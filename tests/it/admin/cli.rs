//! `onceward events`: the admin API from a shell.

use std::process::{Command, Output};

use super::rig::{OPS, OTHER, Rig, T};
use crate::journey::rig::{bad_once, event};
use crate::support::upstream::Act;

/// Runs in a thread of its own, since the upstream is this runtime's.
async fn events(rig: &Rig, token: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.arg("events").args(arguments).args(["--url", &format!("http://{}", rig.gateway.admin)]);
    command.env_remove("ONCEWARD_TOKEN");
    if let Some(token) = token {
        command.env("ONCEWARD_TOKEN", token);
    }
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    )
}

#[tokio::test]
async fn an_operator_finds_and_resolves_a_held_event() {
    let rig = Rig::over("memory:", bad_once(|_| Act::Silence).await, "unknown = \"hold\"\nlease = \"300ms\"");
    rig.pay(&event("a", 1)).await;
    rig.pay(&event("b", 1)).await;
    let (code, list) = said(&events(&rig, Some(T), &["list", "t", "--state", "unknown", "--since", "1h"]).await);
    assert_eq!(code, Some(0), "{list}");
    assert!(list.starts_with("STATE") && list.contains("unknown") && list.lines().count() == 3, "{list}");
    let (code, page) = said(&events(&rig, Some(OPS), &["show", "t/pay", "a"]).await);
    assert_eq!(code, Some(0), "{page}");
    assert!(page.contains("t:pay:a") && page.contains("held 409"), "{page}");
    let (code, done) = said(&events(&rig, Some(OPS), &["release", "t/pay", "a"]).await);
    assert_eq!((code, done.as_str()), (Some(0), "a is released: the next delivery claims it.\n"));
    assert_eq!(rig.pay(&event("a", 1)).await.idempotency(), "first");
    let set = ["succeed", "t/pay", "b", "--status", "202", "--header", "x-by: hand"];
    assert_eq!(said(&events(&rig, Some(OPS), &set).await).0, Some(0));
    let replay = rig.pay(&event("b", 1)).await;
    assert_eq!((replay.status, replay.header("x-by")), (202, Some("hand")), "{replay:?}");
    let (code, refused) = said(&events(&rig, Some(OPS), &["release", "t/pay", "b"]).await);
    assert!(code == Some(1) && refused.contains("has succeeded"), "{refused}");
    let (code, json) = said(&events(&rig, Some(OPS), &["list", "t", "--json"]).await);
    assert_eq!(code, Some(0));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["events"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_wrong_says_what_to_do() {
    let rig = Rig::start("").await;
    for (token, arguments, code, expected) in [
        (None, &["list", "t"][..], 2, "onceward token new"),
        (Some("wrong"), &["list", "t"], 2, "does not know this token"),
        (Some(OTHER), &["list", "t"], 1, "no such thing"),
        (Some(OPS), &["list", "t", "--state", "x"], 2, "`state`"),
        (Some(OPS), &["show", "t/pay", "absent"], 1, "no such thing"),
        (Some(OPS), &["show", "pay", "a"], 2, "TENANT/SCOPE"),
        (Some(OPS), &["release", "t/pay", ".."], 1, "no such thing"),
        (Some(OPS), &["redeliver", "t/pay", "a", "--token-file", "/no/such/file"], 2, "cannot read"),
    ] {
        let output = said(&events(&rig, token, arguments).await);
        assert!(output.0 == Some(code) && output.1.contains(expected), "{arguments:?}: {output:?}");
    }
    let nobody = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["events", "list", "t", "--url", "http://127.0.0.1:1"])
        .env("ONCEWARD_TOKEN", OPS)
        .output()
        .unwrap();
    let output = said(&nobody);
    assert!(output.0 == Some(2) && output.1.contains("is the gateway running"), "{output:?}");
}
