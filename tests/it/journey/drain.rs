//! How a gateway stops.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::rig::{Rig, event, is_first, is_problem, is_replay};
use crate::support::client::{exchange, request};
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::upstream::{Act, Upstream, answer, later};

async fn stuck_once() -> Upstream {
    Upstream::start(|_, at| if at == 0 { Act::Silence } else { answer(200, &[], format!("call {at}").as_bytes()) })
        .await
}

/// The status of a page of the admin listener, 0 when nobody answers.
async fn health(gateway: &Gateway, path: &str) -> u16 {
    let page = exchange(gateway.admin, &request(gateway.admin, "GET", path, &[], b"")).await;
    page.map_or(0, |answer| answer.status)
}

/// Waits for the end without blocking the upstream, which shares this thread.
async fn ended(gateway: &mut Gateway) -> i32 {
    let mut status = None;
    for _ in 0..2000 {
        status = gateway.ended();
        if status.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    status.expect("the gateway ends").code().unwrap_or(-1)
}

/// Scenario 8: SIGTERM: not ready at once, in-flight work finishes beyond its first lease, exit 0, and the answer is kept.
#[tokio::test]
async fn s08_sigterm_finishes_what_is_in_flight() {
    let upstream = Upstream::start(|_, at| later(2500, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let mut rig = Rig::with(upstream, "lease = \"600ms\"");
    assert_eq!((health(&rig.gateway, "/readyz").await, health(&rig.gateway, "/healthz").await), (200, 200));
    let mut idle = TcpStream::connect(rig.gateway.ingest).await.unwrap();
    idle.write_all(b"POST /pay HTTP/1.1\r\n").await.unwrap();
    let delivery = rig.under_way(&event("evt_1", 1)).await;
    rig.gateway.signal(Signal::TERM);
    eventually("not ready", || async { health(&rig.gateway, "/readyz").await == 503 }).await;
    assert!(!delivery.is_finished(), "not ready while work goes on");
    let first = delivery.await.unwrap().unwrap();
    is_first(&first, "call 0");
    assert_eq!(ended(&mut rig.gateway).await, 0);
    let again = rig.gateway.home().start();
    is_replay(&super::rig::pay(&again, &event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 8: at the drain's deadline claims are left to their lease, not released; exit 0.
#[tokio::test]
async fn s08_the_drains_deadline() {
    let upstream = stuck_once().await;
    let policy = "lease = \"3s\"\nin_flight = { wait = \"0s\" }";
    let text =
        config(SQLITE, upstream.address, policy).replace("[server]", "[server]\ndrain = { deadline = \"500ms\" }");
    let mut rig = Rig { gateway: Gateway::start(&text), upstream };
    rig.under_way(&event("evt_1", 1)).await;
    let asked = Instant::now();
    rig.gateway.signal(Signal::TERM);
    assert_eq!(ended(&mut rig.gateway).await, 0);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    rig.gateway = rig.gateway.home().start();
    if asked.elapsed() < Duration::from_millis(2000) {
        is_problem(&rig.pay(&event("evt_1", 1)).await, 409, "in-flight");
    }
    is_first(&rig.settle(&event("evt_1", 1)).await, "call 1");
    assert_eq!(rig.upstream.hits()[1].header("onceward-attempt"), Some("2"));
}

/// Scenario 9: a second SIGTERM ends at once, with the guarantees of kill -9.
#[tokio::test]
async fn s09_a_second_sigterm_ends_at_once() {
    let mut rig = Rig::with(stuck_once().await, "lease = \"2s\"\nin_flight = { wait = \"0s\" }");
    rig.under_way(&event("evt_1", 1)).await;
    rig.gateway.signal(Signal::TERM);
    eventually("not ready", || async { health(&rig.gateway, "/readyz").await == 503 }).await;
    assert!(rig.gateway.ended().is_none(), "it waits for what is in flight");
    let asked = Instant::now();
    rig.gateway.signal(Signal::TERM);
    ended(&mut rig.gateway).await;
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    rig.gateway = rig.gateway.home().start();
    is_first(&rig.settle(&event("evt_1", 1)).await, "call 1");
    assert_eq!(rig.upstream.hits()[1].header("onceward-attempt"), Some("2"));
}

/// An idle gateway ends at once and well; its records are there again after the restart.
#[tokio::test]
async fn a_restart_forgets_nothing() {
    let mut rig = Rig::start("").await;
    let first = rig.pay(&event("evt_1", 1)).await;
    let asked = Instant::now();
    let (home, status) = rig.gateway.stop();
    assert!(status.success() && asked.elapsed() < Duration::from_secs(5), "{status} after {:?}", asked.elapsed());
    rig.gateway = home.start();
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    assert_eq!(rig.upstream.count(), 1);
}

/// SIGHUP, which a closed terminal or a reload script sends, ends nothing.
#[tokio::test]
async fn a_hang_up_ends_nothing() {
    let mut rig = Rig::start("").await;
    rig.gateway.signal(Signal::HUP);
    eventually("it says so", || async { rig.gateway.log().contains("SIGHUP") }).await;
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    assert!(rig.gateway.ended().is_none());
}
