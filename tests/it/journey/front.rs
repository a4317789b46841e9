//! A Redis in front of a SQL store: it answers what is final, and its loss costs speed only.

use std::time::{Duration, Instant};

use super::rig::{event, is_first, is_problem, is_replay, pay};
use crate::support::client::Answer;
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::postgres::PostgresServer;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

fn fronted(store: &str, front: &RedisServer, upstream: &Upstream) -> Gateway {
    let front = format!("front = \"{}\"\n[upstreams.u]", front.url());
    Gateway::start(&config(store, upstream.address, "").replacen("[upstreams.u]", &front, 1))
}

/// Delivers an event, and again until the front has its answer: one that is not there yet when an event ends gets its copy later.
async fn finished(gateway: &Gateway, front: &RedisServer, id: &str) -> Answer {
    let copies = || front.cli(&["--scan", "--pattern", "onceward:front:*"]).lines().count();
    let before = copies();
    let first = pay(gateway, &event(id, 1)).await;
    assert_eq!(first.idempotency(), "first", "{first:?}");
    eventually("the front has a copy", || async {
        is_replay(&pay(gateway, &event(id, 1)).await, &first);
        copies() > before
    })
    .await;
    first
}

/// How long 100 replays and 100 new events take.
async fn turns(gateway: &Gateway, known: &Answer, name: &str) -> Duration {
    let started = Instant::now();
    for turn in 0..100 {
        is_replay(&pay(gateway, &event("evt_1", 1)).await, known);
        assert_eq!(pay(gateway, &event(&format!("{name}_{turn}"), 1)).await.idempotency(), "first");
    }
    started.elapsed()
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

/// With the SQL server gone a front that answers late is waited for: what is final is still answered.
#[tokio::test]
async fn a_slow_front_answers_without_the_sql_server() {
    let (mut server, front) = (PostgresServer::start(), RedisServer::start());
    let between = Proxy::before(([127, 0, 0, 1], front.port()).into()).await;
    let upstream = Upstream::counting().await;
    let at_front = format!("front = \"redis://{}\"\n[upstreams.u]", between.address);
    let config = config(&server.url("postgres"), upstream.address, "").replacen("[upstreams.u]", &at_front, 1);
    let gateway = Gateway::start(&config);
    let first = finished(&gateway, &front, "evt_1").await;
    // Six times the patience of a call that could go on to the SQL server.
    between.set(Mode::Delay(Duration::from_millis(60)));
    server.kill();
    for _ in 0..5 {
        is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
        is_problem(&pay(&gateway, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    }
    is_problem(&pay(&gateway, &event("evt_2", 1)).await, 503, "store-unavailable");
    assert_eq!(upstream.count(), 1);
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
    let with_front = turns(&gateway, &first, "with").await;
    front.pause();
    // Were the front waited for each time, 200 calls would take its 10 ms each on top, twice for the new ones.
    let without = turns(&gateway, &first, "without").await;
    assert!(without < 2 * with_front + Duration::from_millis(1500), "{without:?}, with the front {with_front:?}");
    front.kill();
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    is_problem(&pay(&gateway, &event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    assert_eq!(upstream.count(), 201);
}
