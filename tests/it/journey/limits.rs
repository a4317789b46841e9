//! A tenant's limits: what it may have in work, spend in plugins and write into the log; and that nobody else pays for it.

use std::time::Instant;

use super::rig::{deliver, event, forwards, is_first, is_problem, is_replay, retry_after, start_with_file};
use crate::admin::rig::{logged, metrics};
use crate::plugins::guest::GuestCode;
use crate::support::client::{Answer, post};
use crate::support::config::config;
use crate::support::gateway::Gateway;
use crate::support::upstream::{Upstream, answer, later};

const JSON: &str = r#"plugin = "json"
plugin_config = { key = ["/id"], material = ["/amount"] }"#;

/// `/pay` of tenant `t` under these limits, and `/other` of another tenant.
fn limited(upstream: &Upstream, limits: &str, idempotency: &str) -> String {
    config("memory:", upstream.address, idempotency)
        + &format!(
            "[[routes]]\ntenant = \"o\"\nname = \"other\"\npath = \"/other\"\nupstream = \"u\"\n{JSON}\n[tenants.t]\nlimits = {limits}\n"
        )
}

/// As [`limited`], with a guest behind `/pay`; senders are told apart by `X-Forwarded-For`.
async fn guest(code: GuestCode, limits: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::counting().await;
    let text = limited(&upstream, limits, "")
        .replacen(JSON, "plugin = \"file:{dir}/guest.wasm\"\nplugin_config = {}", 1)
        .replace("[admin]", "trusted_proxies = [\"127.0.0.0/8\"]\n[admin]");
    (start_with_file(&text, "guest.wasm", &code.build()), upstream)
}

async fn from(gateway: &Gateway, address: &str, body: &str) -> Answer {
    post(gateway.ingest, "/pay", &[("x-forwarded-for", address)], body).await
}

fn note(gateway: &Gateway, answer: &Answer) -> String {
    let id = answer.json()["event"].as_str().unwrap().to_owned();
    let line = logged(gateway, "onceward::event").into_iter().find(|line| line["event"] == id.as_str()).unwrap();
    line["note"].as_str().unwrap_or_default().to_owned()
}

/// What is over the limit is refused, not the other tenant's, and there is room again when the work is done.
#[tokio::test]
async fn requests_in_work() {
    let upstream = Upstream::start(|_, _| later(1500, answer(200, &[], b"done"))).await;
    let gateway = Gateway::start(&limited(&upstream, "{ concurrency = 2 }", ""));
    let working: Vec<_> = (0..2).map(|at| deliver(&gateway, &event(&format!("w{at}"), 1))).collect();
    upstream.arrived(2).await;
    for at in 0..3 {
        let over = post(gateway.ingest, "/pay", &[], event(&format!("over{at}"), 1)).await;
        is_problem(&over, 429, "rate-limited");
        assert_eq!(over.idempotency(), "rejected");
        assert!(note(&gateway, &over).contains("limits.concurrency: 2 of 2"), "{over:?}");
    }
    is_first(&post(gateway.ingest, "/other", &[], event("o", 1)).await, "done");
    for delivery in working {
        is_first(&delivery.await.unwrap().unwrap(), "done");
    }
    is_first(&post(gateway.ingest, "/pay", &[], event("later", 1)).await, "done");
    assert!(forwards(&upstream, "over0").is_empty());
    let counted = metrics(&gateway).await;
    assert_eq!(counted["onceward_limited_total{tenant=\"t\",limit=\"concurrency\"}"], 3.0);
}

/// A burst that is soon over is served.
#[tokio::test]
async fn a_short_burst_is_served() {
    let upstream = Upstream::start(|_, _| later(10, answer(200, &[], b"done"))).await;
    let gateway = Gateway::start(&limited(&upstream, "{ concurrency = 4 }", ""));
    let burst: Vec<_> = (0..12).map(|at| deliver(&gateway, &event(&format!("e{at}"), 1))).collect();
    for delivery in burst {
        is_first(&delivery.await.unwrap().unwrap(), "done");
    }
}

/// Duplicates that wait for a running event's answer take nobody's place.
#[tokio::test]
async fn waiters_hold_no_place() {
    let upstream = Upstream::start(|hit, _| match hit.body.windows(4).any(|four| four == b"slow") {
        true => later(1500, answer(200, &[], b"slow")),
        false => answer(200, &[], b"done"),
    });
    let upstream = upstream.await;
    let gateway =
        Gateway::start(&limited(&upstream, "{ concurrency = 2 }", "in_flight = { wait = \"5s\", status = 409 }"));
    let first = deliver(&gateway, &event("slow", 1));
    upstream.arrived(1).await;
    let waiting: Vec<_> = (0..8).map(|_| deliver(&gateway, &event("slow", 1))).collect();
    // Each of them asks the store once, under one place, before it waits.
    for at in 0..5 {
        is_first(&post(gateway.ingest, "/pay", &[], event(&format!("e{at}"), 1)).await, "done");
    }
    let first = first.await.unwrap().unwrap();
    is_first(&first, "slow");
    for duplicate in waiting {
        is_replay(&duplicate.await.unwrap().unwrap(), &first);
    }
    assert_eq!(forwards(&upstream, "slow").len(), 1);
}

const LOOP: &str = "(loop $again (br $again)) (unreachable)";

/// Junk that costs the most it may is cut off, and the genuine sender is served all the while, from wherever the junk comes.
#[tokio::test]
async fn plugin_time() {
    let (gateway, upstream) = guest(GuestCode::new().verify(LOOP), "{ plugin_time = \"100ms/s\" }").await;
    is_first(&from(&gateway, "192.0.2.1", "genuine").await, "call 0");
    let one = (0..50).map(|_| "203.0.113.7".to_owned()).collect::<Vec<_>>();
    let many = (0..50).map(|at| format!("203.0.113.{at}")).collect();
    for (junk, limit, text) in
        [(one, "plugin-time-of-address", "its quarter of 100ms"), (many, "plugin-time", "100ms of 100ms")]
    {
        let mut refused = Vec::new();
        for address in &junk {
            let answer = from(&gateway, address, "now").await;
            match answer.status {
                503 => is_problem(&answer, 503, "plugin-failed"),
                _ => {
                    is_problem(&answer, 429, "rate-limited");
                    assert!(retry_after(&answer) >= 1);
                    refused.push(answer);
                }
            }
            let genuine = from(&gateway, "192.0.2.1", "genuine").await;
            assert_eq!((genuine.status, genuine.idempotency()), (200, "replay"), "{genuine:?}");
        }
        assert!(refused.len() > 10, "{limit}: {} of {}", refused.len(), junk.len());
        assert!(refused.iter().any(|answer| note(&gateway, answer).contains(text)), "{limit}");
        let counted = metrics(&gateway).await;
        assert!(counted[&format!("onceward_limited_total{{tenant=\"t\",limit=\"{limit}\"}}")] > 0.0, "{counted:?}");
    }
    is_first(&post(gateway.ingest, "/other", &[], event("o", 1)).await, "call 1");
    assert_eq!(upstream.count(), 2);
}

/// A tenant's plugins cannot flood the program's log: what is over the limit is counted.
#[tokio::test]
async fn log_lines() {
    const LINES: usize = 40;
    let mut code = GuestCode::new();
    let line = code.memory().put(b"flood\r\nforged");
    let write = format!("(call $log (i32.const 3) (i32.const {}) (i32.const {}))", line.at, line.len).repeat(LINES);
    let (gateway, _upstream) = guest(code.first(&write), "{ rate = \"200/s\" }").await;
    let started = Instant::now();
    let calls: usize = 20;
    for _ in 0..calls {
        assert_eq!(from(&gateway, "192.0.2.1", "now").await.status, 200);
    }
    let most = 100 + 100 * (started.elapsed().as_secs() as usize + 1);
    let written = gateway.log().lines().filter(|line| line.contains(r"flood\\r\\nforged")).count();
    assert!(written >= 100 && written <= most, "{written} of at most {most}");
    let dropped = metrics(&gateway).await["onceward_plugin_log_dropped_total{tenant=\"t\"}"];
    assert_eq!(written + dropped as usize, calls * LINES);
}

/// Each kind of failure says what it used of what it may, to whoever reads the log.
#[tokio::test]
async fn failures_say_used_and_limit() {
    let grow = "(loop $more (drop (memory.grow (i32.const 100))) (br $more)) (unreachable)";
    for (code, kind, text) in [
        (GuestCode::new().verify(LOOP), "out-of-fuel", "fuel 5001200 of 5001200"),
        (GuestCode::new().extract(grow), "memory-limit", "of 67108864 B"),
        (GuestCode::new().respond(200, &[], &[b'x'; 65 << 10]), "output-limit", "of 65536 B"),
        (GuestCode::new().extract("(unreachable)"), "guest-trap", "guest-trap in extract"),
        (GuestCode::new().process_raw(0xffff_0000, 2), "contract", "contract in extract"),
        (GuestCode::new().verify_error(4, "why"), "plugin-error", "plugin-error internal in verify: why"),
    ] {
        let (gateway, _upstream) = guest(code, "{ rate = \"200/s\" }").await;
        let failed = from(&gateway, "192.0.2.1", "now").await;
        is_problem(&failed, 503, "plugin-failed");
        assert_eq!(failed.json()["kind"], kind);
        assert!(note(&gateway, &failed).contains(text), "{kind}: {}", note(&gateway, &failed));
        let counted = metrics(&gateway).await;
        let of_kind = counted.iter().find(|(name, _)| {
            name.starts_with("onceward_plugin_failures_total") && name.contains(&format!("kind=\"{kind}\""))
        });
        assert_eq!(of_kind.map(|(_, count)| *count), Some(1.0), "{counted:?}");
    }
}
