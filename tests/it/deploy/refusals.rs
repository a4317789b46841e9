//! What the gate does not let in, each with its status and a text that says what to do; and that the gateway stays responsive.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::rig::{ORDERS, Rig, T, activate, ask, bring_in, digest, orders, pay, upload, version};
use crate::journey::rig::{event, is_problem, retry_after};
use crate::plugins::guest::{GuestCode, componentize};
use crate::support::client::{Answer, get, send};
use crate::support::eventually;

/// A component around a core module's text.
fn component(module: &str) -> Vec<u8> {
    wat::parse_str(format!("(component (core module {module}))")).unwrap()
}

/// Native code, as Wasmtime writes it.
fn native() -> Vec<u8> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
        .args(["plugin", "compile", "--cpu-seconds", "60"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&GuestCode::new().build()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Exports nothing, and imports what only WASI has.
fn wasi() -> Vec<u8> {
    let text = r#"(component
        (import "wasi:cli/environment@0.2.0" (instance (export "get-arguments" (func (result (list string)))))))"#;
    wat::parse_str(text).unwrap()
}

fn other_world() -> Vec<u8> {
    let module = wat::parse_str(r#"(module (memory (export "memory") 1) (func (export "run")))"#).unwrap();
    componentize(module, "package a:b; world w { export run: func(); }", "w")
}

#[tokio::test]
async fn each_bad_upload_is_refused_with_what_to_do() {
    let rig = Rig::start("[tenants.t]\nlimits = { uploads = \"100/h\" }").await;
    let blocks = format!("(func (local {}) {})", "i64 ".repeat(1_000), "(block)".repeat(20_000));
    let rows: [(&str, Vec<u8>, u16, &str, &str); 12] = [
        ("nothing", Vec::new(), 422, "plugin-refused", "not WebAssembly in its binary form"),
        ("text", b"(component)".to_vec(), 422, "plugin-refused", "onceward plugin build"),
        ("native code", native(), 422, "plugin-refused", "precompiled native code"),
        ("a core module", wat::parse_str("(module)").unwrap(), 422, "plugin-refused", "wasm-tools component new"),
        ("cut", version(1)[..20_000].to_vec(), 422, "plugin-refused", "not valid here"),
        ("another world", other_world(), 422, "plugin-refused", "does not export onceward:plugin/meta"),
        ("WASI", wasi(), 422, "plugin-refused", "wasi:cli/environment@0.2.0"),
        ("a bomb", component(&blocks), 422, "plugin-refused", "a plugin may have 2000000"),
        (
            "functions",
            component(&"(func)".repeat(100_000)),
            422,
            "plugin-refused",
            "functions; a plugin may have 10000",
        ),
        ("memory", component("(memory 65536)"), 422, "plugin-refused", "bytes of initial memory"),
        ("trap", GuestCode::new().describe("unreachable").build(), 422, "plugin-refused", "does not answer `describe`"),
        ("too large", vec![0; (2 << 20) + 1], 413, "body-too-large", "2097152 bytes that a plugin may have"),
    ];
    for (what, wasm, status, code, said) in rows {
        let started = Instant::now();
        let answer = upload(&rig.gateway, &wasm).await;
        assert!(started.elapsed() < Duration::from_secs(5), "{what}: {:?}", started.elapsed());
        is_problem(&answer, status, code);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(said), "{what}: {detail}");
    }
    assert_eq!(orders(&rig.gateway).await["versions"], json!([]));
    assert!(!rig.registry().exists(), "a refused upload left something");
}

/// A case file whose key is `id`, and what it expects.
fn case(name: &str, id: &str, expect: Value) -> String {
    let body = STANDARD.encode(format!(r#"{{"id":"{id}","amount":1}}"#));
    json!({
        "name": name, "method": "POST", "path": "/pay", "headers": [["content-type", "application/json"]],
        "body_base64": body, "secrets": ["s3cret"], "now": 1_790_000_000,
        "config": { "key": ["/id"], "material": ["/amount"] }, "expect": expect,
    })
    .to_string()
}

/// A form of a plugin and cases.
async fn upload_form(rig: &Rig, parts: &[(&str, &[u8])]) -> Answer {
    let mut body = Vec::new();
    for (name, bytes) in parts {
        let head = format!("--xyz\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"01.json\"\r\n\r\n");
        body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
    }
    body.extend(b"--xyz--\r\n");
    let bearer = format!("Bearer {T}");
    let fields = [("authorization", bearer.as_str()), ("content-type", "multipart/form-data; boundary=xyz")];
    send(rig.gateway.admin, "POST", &format!("{ORDERS}/versions"), &fields, &body).await
}

/// Of cases that come along all must pass, in both runs; what fails is told by name.
#[tokio::test]
async fn a_trial_on_the_tenants_own_cases() {
    let rig = Rig::start("").await;
    // Its config has no `verify`, to which the case's secret is not: the plugin says so of every case that does not fit it.
    let guest = GuestCode::new().build();
    let good = case("orders/01-first", "1", json!({ "verified": true, "items": [{ "key_parts": ["k"] }] }));
    let taken = upload_form(&rig, &[("plugin", &guest), ("case", good.as_bytes()), ("case", good.as_bytes())]).await;
    assert_eq!((taken.status, &taken.json()["cases"]), (201, &json!(2)), "{taken:?}");

    let bad = case("orders/02-key", "1", json!({ "verified": true, "items": [{ "key_parts": ["other"] }] }));
    let refused = upload_form(&rig, &[("plugin", &guest), ("case", good.as_bytes()), ("case", bad.as_bytes())]).await;
    is_problem(&refused, 422, "cases-failed");
    let told = refused.json();
    assert_eq!(told["cases"][0]["name"], "orders/02-key", "{told}");
    assert_eq!(told["cases"].as_array().unwrap().len(), 1, "{told}");
    assert!(told["detail"].as_str().unwrap().starts_with("1 of its 2 cases failed"), "{told}");

    for (parts, said) in [
        (vec![("plugin", guest.as_slice()), ("case", b"{".as_slice())], "is not a case file"),
        (vec![("case", good.as_bytes())], "no part `plugin`"),
        (vec![("plugin", guest.as_slice()), ("plugin", guest.as_slice())], "the part \"plugin\""),
        (vec![("plugin", guest.as_slice()), ("extra", b"x".as_slice())], "the part \"extra\""),
    ] {
        let refused = upload_form(&rig, &parts).await;
        is_problem(&refused, 400, "bad-body");
        assert!(refused.json()["detail"].as_str().unwrap().contains(said), "{refused:?}");
    }
    let huge = vec![0; (2 << 20) + 1];
    is_problem(&upload_form(&rig, &[("plugin", &huge)]).await, 413, "body-too-large");
}

/// The rate counts refused uploads too; another tenant's is its own.
#[tokio::test]
async fn uploads_are_limited_by_rate_and_by_code() {
    let rig =
        Rig::start("[tenants.t]\nlimits = { uploads = \"2/h\" }\n[tenants.other]\nlimits = { code = \"100KiB\" }")
            .await;
    is_problem(&upload(&rig.gateway, b"junk").await, 422, "plugin-refused");
    assert_eq!(upload(&rig.gateway, &version(1)).await.status, 201);
    let limited = upload(&rig.gateway, &version(2)).await;
    is_problem(&limited, 429, "rate-limited");
    assert!((1..=1801).contains(&retry_after(&limited)), "{limited:?}");
    assert!(limited.json()["detail"].as_str().unwrap().contains("limits.uploads is 2"), "{limited:?}");

    let full =
        ask(&rig.gateway, "POST", "/v1/tenants/other/plugins/big/versions", super::rig::OTHER, &version(1)).await;
    is_problem(&full, 422, "quota-exceeded");
    let detail = full.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(&format!("{} bytes of code; limits.code is 102400", version(1).len())), "{detail}");
}

/// One upload of a tenant at a time: the next is told to come again, while another tenant's goes on.
#[tokio::test]
async fn one_upload_of_a_tenant_at_a_time() {
    let rig = Rig::start("[tenants.t]\nlimits = { uploads = \"100000/h\" }").await;
    let path = format!("{ORDERS}/versions");
    let bearer = format!("Bearer {T}");
    // A body that does not end holds the turn.
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: {bearer}\r\ncontent-length: 1000\r\n\r\n",
        rig.gateway.admin
    );
    let mut slow = tokio::net::TcpStream::connect(rig.gateway.admin).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut slow, head.as_bytes()).await.unwrap();
    eventually("the second upload is told to wait", || async { upload(&rig.gateway, b"junk").await.status == 429 })
        .await;
    let other = ask(&rig.gateway, "POST", "/v1/tenants/other/plugins/o/versions", super::rig::OTHER, b"junk").await;
    is_problem(&other, 422, "plugin-refused");
    drop(slow);
    eventually("the turn is free again", || async { upload(&rig.gateway, b"junk").await.status == 422 }).await;
}

/// A version that a route's config does not fit is refused with every fault, and what serves serves on.
#[tokio::test]
async fn an_activation_that_does_not_fit_is_refused_whole() {
    let rig = Rig::start("").await;
    bring_in(&rig.gateway, &version(1)).await;
    // `stripe` wants a secret, and knows no `key`.
    let stripe = onceward::plugin::bundled::bundled("stripe").unwrap();
    assert_eq!(upload(&rig.gateway, stripe).await.status, 201);
    let refused = activate(&rig.gateway, &digest(stripe)).await;
    is_problem(&refused, 422, "config-refused");
    let faults = refused.json()["faults"].as_array().unwrap().clone();
    assert!(faults.len() > 1, "{faults:?}");
    assert!(
        faults.iter().all(|fault| fault["path"].as_str().unwrap().starts_with("routes[0].plugin_config")),
        "{faults:?}"
    );
    assert_eq!(orders(&rig.gateway).await["generation"], 1);
    assert_eq!(pay(&rig.gateway, &event("a", 1)).await.idempotency(), "first");
    for (bad, status, code) in [
        ("{}", 400, "bad-body"),
        (r#"{"digest":"abc"}"#, 400, "bad-body"),
        (r#"{"digest":"abc","colour":"red"}"#, 400, "bad-body"),
        ("[]", 400, "bad-body"),
        (&json!({ "digest": "0".repeat(64) }).to_string(), 404, "not-found"),
    ] {
        is_problem(&ask(&rig.gateway, "POST", &format!("{ORDERS}/activate"), T, bad.as_bytes()).await, status, code);
    }
}

/// While the worst that passes the caps is compiled, health and deliveries are answered as ever.
#[tokio::test]
async fn the_gateway_stays_responsive_while_it_compiles() {
    let rig = Rig::start("").await;
    bring_in(&rig.gateway, &version(1)).await;
    let body = format!("(local {}) {}", "i64 ".repeat(2_000), "(block)".repeat(999));
    let worst = component(&format!("(func {body})").repeat(200));
    let (gateway, stop) = (&rig.gateway, std::sync::atomic::AtomicBool::new(false));
    let compiling = async {
        let answer = upload(gateway, &worst).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        answer
    };
    let probing = async {
        let mut times = Vec::new();
        for at in 0.. {
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
            let started = Instant::now();
            assert_eq!(get(gateway.admin, "/healthz").await.status, 200);
            assert_eq!(pay(gateway, &event(&format!("e{at}"), 1)).await.status, 200);
            times.push(started.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times
    };
    let (answer, mut times) = tokio::join!(compiling, probing);
    is_problem(&answer, 422, "plugin-refused");
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100 - usize::from(times.len() == 1)];
    assert!(times.len() > 20 && p99 < Duration::from_millis(500), "{} probes, p99 {p99:?}", times.len());
}
