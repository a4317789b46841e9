//! `onceward plugin push | list | activate | rollback`, and what `check` and the API say of a plugin.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::rig::{OPS, ORDERS, OTHER, Rig, T, ask, bring_in, config, digest, pay, version};
use crate::journey::rig::{event, is_problem};
use crate::support::gateway::{Gateway, Home};

/// Runs beside the test's runtime.
async fn plugin(gateway: &Gateway, token: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.arg("plugin").args(arguments).args(["--url", &format!("http://{}", gateway.admin)]);
    command.env("ONCEWARD_TOKEN", token).current_dir(gateway.home().path());
    said(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
}

fn said(output: &Output) -> (Option<i32>, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[track_caller]
fn says(told: (Option<i32>, String), code: i32, parts: &[&str]) -> String {
    assert!(told.0 == Some(code) && parts.iter().all(|part| told.1.contains(part)), "{parts:?}: {told:?}");
    told.1
}

/// The whole life from a shell.
#[tokio::test]
async fn a_plugin_goes_live_from_a_shell() {
    let rig = Rig::start("").await;
    let (gateway, home) = (&rig.gateway, rig.gateway.home());
    for number in [1, 2] {
        std::fs::write(home.path().join(format!("{number}.wasm")), version(number)).unwrap();
    }
    let short = |number: u8| digest(&version(number))[..12].to_owned();
    says(plugin(gateway, T, &["list", "t"]).await, 0, &["t/orders: nothing is active; routes: pay"]);
    let next = format!("onceward plugin activate t/orders {}", short(1));
    let size = format!("{} of 2097152 bytes", version(1).len());
    says(plugin(gateway, T, &["push", "t/orders", "1.wasm"]).await, 0, &["t/orders has a new version", &size, &next]);
    let activated = plugin(gateway, T, &["activate", "t/orders", &short(1)[..6]]).await;
    says(activated, 0, &["generation 1 serves", "no version to roll back to"]);
    assert_eq!(pay(gateway, &event("a", 1)).await.idempotency(), "first");

    let pushed = plugin(gateway, OPS, &["push", "t/orders", "2.wasm", "--activate"]).await;
    says(pushed, 0, &["generation 2 serves", &format!("a rollback returns to {}", short(1))]);
    let listed = says(plugin(gateway, T, &["list", "t/orders"]).await, 0, &["generation 2 serves"]);
    let states: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(states, [[short(2).as_str(), "active"], [short(1).as_str(), "previous"]], "{listed}");
    says(plugin(gateway, T, &["rollback", "t/orders"]).await, 0, &["generation 3 serves", &short(1)]);
    says(plugin(gateway, T, &["rollback", "t/orders"]).await, 1, &["no previous version"]);
    let json = says(plugin(gateway, T, &["list", "t", "--json"]).await, 0, &[]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["plugins"][0]["generation"], 3);
}

/// Cases of a folder go with the upload; those that fail are told by name.
#[tokio::test]
async fn a_push_with_cases_is_held_against_them() {
    let rig = Rig::start("").await;
    let stripe = onceward::plugin::bundled::bundled("stripe").unwrap();
    std::fs::write(rig.gateway.home().path().join("stripe.wasm"), stripe).unwrap();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/providers");
    let push = ["push", "t/stripe", "stripe.wasm", "--cases"];
    let good = format!("{fixtures}/stripe");
    let count = std::fs::read_dir(&good).unwrap().count();
    let passed = format!("{count} passed");
    says(plugin(&rig.gateway, T, &[&push[..], &[&good]].concat()).await, 0, &[&passed]);
    let foreign = format!("{fixtures}/github");
    says(plugin(&rig.gateway, T, &[&push[..], &[&foreign]].concat()).await, 1, &["fails its own cases", "github/"]);
    says(plugin(&rig.gateway, T, &[&push[..], &["/nowhere"]].concat()).await, 2, &["cannot read /nowhere"]);
}

#[tokio::test]
async fn what_is_wrong_says_what_to_do() {
    let rig = Rig::start("").await;
    let gateway = &rig.gateway;
    std::fs::write(gateway.home().path().join("text.wasm"), b"(module)").unwrap();
    bring_in(gateway, &version(1)).await;
    for (token, arguments, code, expected) in [
        (T, &["push", "t/orders", "absent.wasm"][..], 2, "cannot read absent.wasm"),
        (T, &["push", "orders", "text.wasm"], 2, "is not TENANT/NAME"),
        (T, &["push", "t/orders", "text.wasm"], 1, "onceward plugin build"),
        (T, &["push", "t/Orders", "text.wasm"], 2, "1 to 63 of a-z"),
        (OTHER, &["push", "t/orders", "text.wasm"], 1, "no such thing"),
        ("wrong", &["list", "t"], 2, "does not know this token"),
        (OTHER, &["list", "t"], 1, "no such thing"),
        (T, &["list", "t/absent"], 1, "there is no plugin t/absent"),
        (T, &["activate", "t/orders", "abc"], 2, "its first six hex digits"),
        (T, &["activate", "t/orders", "000000"], 2, "no version of t/orders begins with 000000"),
        (T, &["activate", "t/absent", "000000"], 1, "there is no plugin t/absent"),
        (T, &["activate", "t/orders", &digest(&version(1)), "--shadow"], 1, "it is the active version"),
    ] {
        says(plugin(gateway, token, arguments).await, code, &[expected]);
    }
}

/// Role by verb: a tenant does with its own plugins what an operator may, and of another's learns nothing.
#[tokio::test]
async fn the_authorisation_matrix() {
    let rig = Rig::start("[tenants.t]\nlimits = { uploads = \"1000/h\" }").await;
    bring_in(&rig.gateway, &version(1)).await;
    let wish = json!({ "digest": digest(&version(1)) }).to_string();
    let (wish, foreign) = (wish.as_bytes(), "/v1/tenants/other/plugins/orders");
    // What the token of tenant t, of tenant other, and of the operator gets.
    let rows: [(&str, String, &[u8], [u16; 3]); 15] = [
        ("GET", "/v1/tenants/t/plugins".to_owned(), b"", [200, 404, 200]),
        ("GET", "/v1/tenants/other/plugins".to_owned(), b"", [404, 200, 200]),
        ("GET", "/v1/tenants/nobody/plugins".to_owned(), b"", [404, 404, 404]),
        ("GET", ORDERS.to_owned(), b"", [200, 404, 200]),
        ("GET", "/v1/tenants/%74/plugins/orders".to_owned(), b"", [200, 404, 200]),
        ("GET", foreign.to_owned(), b"", [404, 404, 404]),
        ("POST", format!("{ORDERS}/versions"), b"junk", [422, 404, 422]),
        ("POST", format!("{foreign}/versions"), b"junk", [404, 422, 422]),
        ("POST", format!("{ORDERS}/activate"), wish, [200, 404, 200]),
        ("POST", format!("{foreign}/activate"), wish, [404, 404, 404]),
        ("POST", format!("{ORDERS}/rollback"), b"", [409, 404, 409]),
        ("POST", format!("{foreign}/rollback"), b"", [404, 404, 404]),
        ("POST", format!("{ORDERS}/test"), b"{}", [400, 404, 400]),
        ("GET", format!("{ORDERS}/activate"), b"", [405, 404, 405]),
        ("DELETE", ORDERS.to_owned(), b"", [405, 404, 405]),
    ];
    for (method, path, body, expected) in rows {
        for (token, expected) in [T, OTHER, OPS].into_iter().zip(expected) {
            let answer = ask(&rig.gateway, method, &path, token, body).await;
            assert_eq!(answer.status, expected, "{method} {path} as {token}: {answer:?}");
            if expected >= 400 {
                is_problem(&answer, expected, &answer.code());
            }
        }
        for none in ["", "wrong", "operator-toke"] {
            is_problem(&ask(&rig.gateway, method, &path, none, body).await, 401, "unauthorized");
        }
    }
    // What is foreign cannot be told from what is not there.
    let (hidden, absent) = (ask(&rig.gateway, "GET", ORDERS, OTHER, b"").await, "/v1/tenants/nobody/plugins/orders");
    assert_eq!(hidden.body, ask(&rig.gateway, "GET", absent, OTHER, b"").await.body);
}

/// A request through a version, without a trace: nothing is forwarded, and the next delivery is first.
#[tokio::test]
async fn a_request_is_tried_on_a_version() {
    let rig = Rig::start("").await;
    assert_eq!(super::rig::upload(&rig.gateway, &version(1)).await.status, 201);
    let request = json!({
        "name": "x", "method": "POST", "path": "/pay", "headers": [], "body_base64": "eyJpZCI6ImEiLCJhbW91bnQiOjEuNTB9",
        "secrets": [], "now": 1_790_000_000,
        "config": { "key": ["/id"], "material": ["/amount"], "verify": { "scheme": "token", "header": "x-token", "secret": "case" } },
    });
    let test = async |digest: &str, request: &Value| {
        let wish = json!({ "digest": digest, "request": request }).to_string();
        ask(&rig.gateway, "POST", &format!("{ORDERS}/test"), T, wish.as_bytes()).await
    };
    let told = test(&digest(&version(1)), &request).await;
    // The case format names the secret at the top of the config, where this plugin has no such key.
    is_problem(&told, 422, "case-refused");
    let guest = crate::plugins::guest::GuestCode::new().build();
    assert_eq!(super::rig::upload(&rig.gateway, &guest).await.status, 201);
    let told = test(&digest(&guest), &request).await;
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    assert_eq!((&told["decision"], &told["verified"]), (&json!("process"), &json!(true)), "{told}");
    assert_eq!(told["events"][0]["key"], json!(["k"]), "{told}");
    assert!(told["usage"]["fuel"]["used"].as_u64().unwrap() < told["usage"]["fuel"]["limit"].as_u64().unwrap());
    is_problem(&test(&"0".repeat(64), &request).await, 404, "not-found");
    is_problem(&test(&digest(&guest), &json!({})).await, 400, "bad-body");
    assert_eq!(rig.upstream.count(), 0);
}

/// `check` warns of a plugin that is not active, asks the active one about each route, and changes nothing.
#[tokio::test]
async fn check_looks_into_the_registry() {
    let rig = Rig::start("").await;
    let check = |home: &Home| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
        said(&command.args(["check", "--config", "onceward.toml"]).current_dir(home.path()).output().unwrap())
    };
    let home = rig.gateway.home();
    says(check(&home), 0, &["warning: routes[0].plugin: t/orders has no active version"]);
    assert!(!home.path().join("registry").exists(), "a look made a registry");
    bring_in(&rig.gateway, &version(1)).await;
    let clean = check(&home);
    assert!(clean.0 == Some(0) && !clean.1.contains("routes[0].plugin:"), "{clean:?}");
    let text = config("file:registry", "memory:", rig.upstream.address, "").replace("{dir}", "unused");
    let broken = text.replacen("key = [\"/id\"]", "kye = [\"/id\"]", 1);
    assert_ne!(text, broken);
    std::fs::write(home.path().join("onceward.toml"), broken).unwrap();
    says(check(&home), 1, &["fault: routes[0].plugin_config"]);
    assert!(!home.path().join("unused").exists(), "a look wrote into state_dir");
}
