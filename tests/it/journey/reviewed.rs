//! What a review of the finished gateway found broken: each once, so that it stays right.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket};

use super::rig::{Rig, event, is_first, is_problem, is_replay, pay_request};
use crate::support::client::{post, send};
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Hit, Upstream, answer, later};

/// A sender that does not read a large answer is cut; the upstream answered, so the event is kept and not forwarded again.
#[tokio::test]
async fn a_sender_that_does_not_read_costs_no_second_forward() {
    let upstream = Upstream::start(|_, _| answer(200, &[], &vec![b'x'; 24 << 20])).await;
    let rig = Rig::patient(upstream, "4s", "");
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stalled = socket.connect(rig.gateway.ingest).await.unwrap();
    stalled.write_all(&pay_request(rig.gateway.ingest, &event("evt_1", 1))).await.unwrap();
    rig.upstream.arrived(1).await;
    let again = rig.settle(&event("evt_1", 1)).await;
    assert_eq!((again.status, again.idempotency()), (200, "replay"), "{:?}", again.headers);
    assert_eq!(again.header("idempotency-replay-body"), Some("omitted"));
    assert_eq!(rig.upstream.count(), 1);
}

/// An attempt that could not be sent gives the key free only if none was sent before it.
#[tokio::test]
async fn another_event_cannot_take_a_key_that_was_sent() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let broken = |_: &Hit, _| Act::WriteAndClose(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n".to_vec());
    let upstream = Upstream::start_at(address, broken).await;
    let gateway = Gateway::start(&config(SQLITE, address, ""));
    let pay = async |amount| post(gateway.ingest, "/pay", &[("connection", "close")], event("evt_1", amount)).await;
    assert_eq!(pay(1).await.status, 500);
    drop(upstream);
    eventually("the upstream is gone", || async { pay(1).await.code() == "upstream-unreachable" }).await;
    is_problem(&pay(999).await, 409, "fingerprint-mismatch");
}

/// A route that is only observed adds no outage: without a store, without a key, and beside a running twin all is forwarded.
#[tokio::test]
async fn an_observed_route_forwards_everything() {
    let mut redis = RedisServer::start();
    let upstream = Upstream::start(|_, at| later(if at == 0 { 1500 } else { 0 }, answer(200, &[], b"ok"))).await;
    let text = config(&redis.url(), upstream.address, "").replace("[routes.idempotency]", "mode = \"observe\"");
    let gateway = Gateway::start(&text);
    let running = tokio::spawn({
        let to = gateway.ingest;
        async move { post(to, "/pay", &[], event("evt_1", 1)).await }
    });
    upstream.arrived(1).await;
    let beside = post(gateway.ingest, "/pay", &[], event("evt_1", 1)).await;
    assert_eq!((beside.status, beside.idempotency()), (200, "bypassed"), "{beside:?}");
    assert!(!running.is_finished(), "it did not wait for its twin");
    let other = post(gateway.ingest, "/pay", &[], event("evt_1", 2)).await;
    assert_eq!((other.status, other.idempotency()), (200, "bypassed"), "{other:?}");
    let keyless = post(gateway.ingest, "/pay", &[], r#"{"amount":1}"#).await;
    assert_eq!((keyless.status, keyless.idempotency()), (200, "bypassed"), "{keyless:?}");
    running.await.unwrap();
    redis.kill();
    let without_store = post(gateway.ingest, "/pay", &[], event("evt_2", 1)).await;
    assert_eq!((without_store.status, without_store.idempotency()), (200, "bypassed"), "{without_store:?}");
}

/// A capture reaches the upstream as the sender wrote it, and cannot become a step up.
#[tokio::test]
async fn captures_are_not_written_anew() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "")
        .replace("path = \"/pay\"", "path = \"/in/{shop}/pay\"\nupstream_path = \"/hooks/{shop}/end\"");
    let gateway = Gateway::start(&text);
    let path = "/in/a%20%ff;b%7Bshop%7D/pay";
    assert_eq!(post(gateway.ingest, path, &[], event("evt_1", 1)).await.status, 200);
    assert_eq!(upstream.hits()[0].target, "/hooks/a%20%ff;b%7Bshop%7D/end");
    for step in ["/in/..;/pay", "/in/..%3b/pay", "/in/..%3Bx/pay", "/in/.%3b/pay"] {
        is_problem(&post(gateway.ingest, step, &[], event("evt_2", 1)).await, 400, "bad-request");
    }
    assert_eq!(upstream.count(), 1);
}

/// What is refused on a route before a claim says so in its headers too.
#[tokio::test]
async fn early_refusals_carry_the_gateways_headers() {
    let rig = Rig::start("").await;
    let large = send(rig.gateway.ingest, "POST", "/pay", &[], &vec![b' '; (1 << 20) + 1]).await;
    is_problem(&large, 413, "body-too-large");
    assert_eq!(large.idempotency(), "rejected");
    assert_eq!(large.header("onceward-event"), large.json()["event"].as_str());
}

/// The store is emptied while a forward runs: nobody else has the event, so its outcome is written all the same.
#[tokio::test]
async fn an_outcome_outlives_its_claim() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, at| later(600, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let rig = Rig::over(&redis.url(), upstream, "");
    let running = rig.under_way(&event("evt_1", 1)).await;
    redis.cli(&["FLUSHALL"]);
    let first = running.await.unwrap().unwrap();
    is_first(&first, "call 0");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// A duplicate that waits does not lose its answer to one slow call of the store.
#[tokio::test]
async fn a_waiter_outlasts_a_slow_store() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, _| later(4000, answer(200, &[], b"ok"))).await;
    let rig =
        Rig::over(&redis.url(), upstream, "in_flight = { wait = \"3s\", status = 409 }\nstore_down = \"forward\"");
    let running = rig.under_way(&event("evt_1", 1)).await;
    let duplicate = tokio::spawn({
        let to = rig.gateway.ingest;
        async move { post(to, "/pay", &[], event("evt_1", 1)).await }
    });
    // Once it waits, the store stalls for longer than one call may take.
    tokio::time::sleep(Duration::from_millis(400)).await;
    redis.cli(&["CLIENT", "PAUSE", "1500", "ALL"]);
    is_problem(&duplicate.await.unwrap(), 409, "in-flight");
    assert_eq!(running.await.unwrap().unwrap().status, 200);
    assert_eq!(rig.upstream.count(), 1);
}
