//! What is taken as a plugin and what is refused, and what a guest sees and may use.

use std::sync::Arc;

use aws_lc_rs::hmac;
use onceward::event::Secret;
use onceward::plugin::{FailureKind, Grant, LoadError};

use super::guest::{GuestCode, componentize};
use super::support::{ENGINE, assert_well, delivery, failure, grant, inspect, load, trigger};

fn refusal(wasm: &[u8]) -> LoadError {
    match ENGINE.load("x", wasm) {
        Ok(_) => panic!("loaded"),
        Err(refusal) => refusal,
    }
}

/// Each refusal says what to do.
#[test]
fn what_is_no_plugin_is_refused() {
    let text = refusal(b"(component)");
    assert!(matches!(text, LoadError::NotBinary) && text.to_string().contains("onceward plugin build"));
    assert!(matches!(refusal(b""), LoadError::NotBinary));

    let module = refusal(&wat::parse_str("(module)").unwrap());
    assert!(matches!(module, LoadError::CoreModule) && module.to_string().contains("not a component"));

    let broken = GuestCode::new().build();
    assert!(matches!(refusal(&broken[..broken.len() / 2]), LoadError::Invalid(_)));
}

/// Native code is never taken: it could do anything.
#[test]
fn precompiled_code_is_refused() {
    let engine = wasmtime::Engine::default();
    let native = engine.precompile_component(&GuestCode::new().build()).unwrap();
    assert!(matches!(refusal(&native), LoadError::Precompiled));
}

#[test]
fn another_world_is_refused_by_name() {
    let module =
        wat::parse_str(r#"(module (import "demo:demo/clock" "now" (func (result i64))) (func (export "run")))"#);
    let wit =
        "package demo:demo; interface clock { now: func() -> u64; } world demo { import clock; export run: func(); }";
    let refused = refusal(&componentize(module.unwrap(), wit, "demo"));
    assert!(refused.to_string().contains("imports demo:demo/clock"), "{refused}");

    let module = wat::parse_str(r#"(module (func (export "run")))"#).unwrap();
    let refused = refusal(&componentize(module, "package demo:demo; world demo { export run: func(); }", "demo"));
    assert!(
        refused.to_string().contains("does not export onceward:plugin/meta@0.1.0, onceward:plugin/verifier"),
        "{refused}"
    );
}

/// A plugin that cannot say what it is does not load.
#[test]
fn a_plugin_must_describe_itself() {
    let trap = refusal(&GuestCode::new().describe("(unreachable)").build());
    assert!(matches!(trap, LoadError::Describe(failure) if failure.kind == FailureKind::GuestTrap));
}

#[tokio::test]
async fn a_plugin_says_what_it_needs() {
    let plugin = load(GuestCode::new());
    assert_eq!((plugin.descriptor().name.as_str(), plugin.version().name.as_str()), ("guest", "guest"));
    assert!(plugin.version().version.starts_with("1.2.3+"));
    let needs = plugin.examine("{}").await.unwrap().unwrap();
    assert_eq!(needs.headers, ["x-wanted"]);
}

/// A guest gets the headers that it asked for and no other: `list<header>` has this many items.
#[tokio::test]
async fn only_needed_headers_are_copied() {
    for (headers, count) in [(vec![], 0), (vec!["x-wanted".to_owned()], 1), (vec!["*".to_owned()], 2)] {
        let check =
            format!("(if (i32.ne (i32.load offset=56 (local.get $request)) (i32.const {count})) (then unreachable))");
        let plugin = load(GuestCode::new().first(&check));
        let mut grant = grant();
        grant.needs.headers = headers;
        let inspected = plugin.inspect(&Arc::new(grant), &trigger()).await;
        assert!(inspected.result.is_ok(), "{count}: {:?}", inspected.result);
    }
}

/// A check tries each secret behind the name; a name outside the grant is unknown, and an unusable one no key.
#[tokio::test]
async fn secrets_are_used_by_name_only() {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"old"), b"bad");
    let secrets = |texts: &[&str]| texts.iter().map(|text| Secret::new(*text)).collect::<Vec<_>>();
    let grant = Arc::new(Grant {
        secrets: [
            ("both".to_owned(), secrets(&["new", "old"])),
            ("new".to_owned(), secrets(&["new"])),
            ("public".to_owned(), secrets(&["whpk_b2xk", ""])),
        ]
        .into(),
        ..grant()
    });
    let (unknown_secret, bad_key) = (0, 1);
    for (name, tag, expect) in [
        ("both", tag.as_ref(), Ok(true)),
        ("new", tag.as_ref(), Ok(false)),
        ("both", &tag.as_ref()[..31], Ok(false)),
        ("both", b"", Ok(false)),
        ("other", tag.as_ref(), Err(unknown_secret)),
        ("public", tag.as_ref(), Err(bad_key)),
    ] {
        let plugin = load(GuestCode::new().check_hmac(name, tag, expect));
        let inspected = plugin.inspect(&grant, &trigger()).await;
        assert!(inspected.result.is_ok(), "{name}: {:?}", inspected.result);
    }
}

/// The host's work is paid with the guest's fuel, byte by byte.
#[tokio::test]
async fn hashing_costs_fuel() {
    let again = |times: u32| {
        let mut code = GuestCode::new();
        for _ in 0..times {
            code = code.check_hmac("s", b"", Ok(false));
        }
        load(code)
    };
    let grant = Arc::new(Grant { secrets: [("s".to_owned(), vec![Secret::new("k")])].into(), ..grant() });
    let used = async |times: u32| again(times).inspect(&grant, &trigger()).await.usage.fuel.used;
    let (none, one, two) = (used(0).await, used(1).await, used(2).await);
    assert!(one - none >= 500 && two - one == one - none, "{none} {one} {two}");
}

/// Shorter or longer bodies than the trigger's leave the guest well-behaved: the fixture itself works.
#[tokio::test]
async fn the_fixture_tells_requests_apart() {
    let plugin = load(GuestCode::new().verify("(unreachable)"));
    assert_well(&plugin).await;
    assert!(inspect(&plugin, &delivery(b"")).await.result.is_ok());
    assert_eq!(failure(&plugin).await.kind, FailureKind::GuestTrap);
}

/// Certificates are not fetched in this version: the sender is asked to retry, and nothing passes unverified.
#[tokio::test]
async fn certificates_are_unavailable() {
    let unavailable = 4;
    let body = format!(
        "(call $certificate_verify (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) \
         (i32.const 0) (i32.const 64)) \
         (if (i32.ne (i32.load16_u (i32.const 64)) (i32.const {})) (then unreachable))",
        1 | (unavailable << 8)
    );
    let inspected = inspect(&load(GuestCode::new().first(&body)), &trigger()).await;
    assert!(inspected.result.is_ok(), "{:?}", inspected.result);
}

/// Calls run wherever the request does: one engine serves every core, and a call's future may move to another.
#[test]
fn calls_run_on_any_thread() {
    let plugin = load(GuestCode::new());
    let threads = [(); 4].map(|()| {
        let plugin = plugin.clone();
        let calls = async move {
            for _ in 0..50 {
                assert_well(&plugin).await;
            }
        };
        std::thread::spawn(move || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(calls))
    });
    for thread in threads {
        thread.join().unwrap();
    }
}
