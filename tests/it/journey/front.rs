//! A Redis in front of a SQL store: it answers what is final, and its loss costs speed only.

use std::time::{Duration, Instant};

use super::rig::{event, is_first, is_problem, is_replay, pay};
use crate::support::client::Answer;
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::postgres::PostgresServer;
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

fn fronted(store: &str, front: &RedisServer, upstream: &Upstream) -> Gateway {
    let front = format!("front = \"{}\"\n[upstreams.u]", front.url());
    Gateway::start(&config(store, upstream.address, "").replacen("[upstreams.u]", &front, 1))
}

/// Delivers an event, then waits until the front has its answer.
async fn finished(gateway: &Gateway, front: &RedisServer, id: &str) -> Answer {
    let copies = || front.cli(&["--scan", "--pattern", "onceward:front:*"]).lines().count();
    let before = copies();
    let first = pay(gateway, &event(id, 1)).await;
    assert_eq!(first.idempotency(), "first", "{first:?}");
    eventually("the front has a copy", || async { copies() > before }).await;
    first
}

/// First, replay and mismatch as over the store alone; with the SQL server gone, what is finished is still answered, and nothing else.
#[tokio::test]
async fn what_is_final_is_answered_without_the_sql_server() {
    let (mut server, front) = (PostgresServer::start(), RedisServer::start());
    let upstream = Upstream::counting().await;
    let gateway = fronted(&server.url("postgres"), &front, &upstream);
    let first = finished(&gateway, &front, "evt_1").await;
    is_first(&first, "call 0");
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    is_problem(&pay(&gateway, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    server.kill();
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    is_problem(&pay(&gateway, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    is_problem(&pay(&gateway, &event("evt_2", 1)).await, 503, "store-unavailable");
    assert_eq!(upstream.count(), 1);
    server.restart();
    eventually("served", || async { pay(&gateway, &event("evt_2", 1)).await.status == 200 }).await;
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    assert_eq!(upstream.count(), 2);
}

/// Flushed, frozen, killed: the SQL store goes on deciding, and a call waits for the front no longer than it may.
#[tokio::test]
async fn without_the_front_the_sql_store_answers() {
    let mut front = RedisServer::start();
    let upstream = Upstream::counting().await;
    let gateway = fronted(SQLITE, &front, &upstream);
    let first = finished(&gateway, &front, "evt_1").await;
    front.cli(&["FLUSHALL"]);
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    front.pause();
    let started = Instant::now();
    for turn in 0..100 {
        is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
        assert_eq!(pay(&gateway, &event(&format!("new_{turn}"), 1)).await.idempotency(), "first");
    }
    // Were the front waited for each time, 200 calls would take its 10 ms each, twice for the new ones.
    assert!(started.elapsed() < Duration::from_millis(3000), "{:?}", started.elapsed());
    front.kill();
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    is_problem(&pay(&gateway, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    assert_eq!(upstream.count(), 101);
}
