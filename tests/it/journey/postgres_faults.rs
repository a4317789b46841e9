//! A PostgreSQL that is down, restarted, locked, or whose reply is lost; a gateway over it that dies.

use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::rig::{Rig, deliver, event, is_first, is_problem, is_replay, pay};
use crate::support::client::get;
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::postgres::{Database, PostgresServer};
use crate::support::relay::Relay;
use crate::support::upstream::{Upstream, answer, later};

/// First, replay, mismatch; then kill -9 of the gateway, a restart of the server, and the answer is still known (I2).
#[tokio::test]
async fn s05_answers_outlive_gateway_and_server() {
    let mut server = PostgresServer::start();
    let rig = Rig::over(&server.url("postgres"), Upstream::counting().await, "");
    eventually("ready", || async { get(rig.gateway.admin, "/readyz").await.status == 200 }).await;
    let first = rig.pay(&event("evt_1", 1)).await;
    is_first(&first, "call 0");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    let rig = rig.crash();
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    server.restart();
    eventually("served", || async { rig.pay(&event("evt_2", 1)).await.status == 200 }).await;
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 2);
    assert!(!rig.gateway.log().contains("postgres://"), "no address in the log");
}

/// Scenario 13: down at the start: alive, not ready, nothing forwarded; connects later without a restart.
#[tokio::test]
async fn s13_postgres_down_at_the_start() {
    let mut server = PostgresServer::stopped();
    let rig = Rig::over(&server.url("postgres"), Upstream::counting().await, "");
    assert_eq!(get(rig.gateway.admin, "/healthz").await.status, 200);
    assert_eq!(get(rig.gateway.admin, "/readyz").await.status, 503);
    is_problem(&rig.pay(&event("evt_1", 1)).await, 503, "store-unavailable");
    assert_eq!(rig.upstream.count(), 0);
    server.restart();
    eventually("ready", || async { get(rig.gateway.admin, "/readyz").await.status == 200 }).await;
    eventually("served", || async { rig.pay(&event("evt_1", 1)).await.status == 200 }).await;
    assert_eq!(rig.pay(&event("evt_1", 1)).await.idempotency(), "replay");
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 28: the claim is committed and the reply lost: it is read again by its owner, and the event goes on, once.
#[tokio::test]
async fn s28_a_claim_whose_reply_is_lost() {
    lost_reply(0).await;
}

/// Scenario 28: the same of the outcome's write: the answer is kept, and nothing is sent twice.
#[tokio::test]
async fn s28_an_outcome_whose_reply_is_lost() {
    lost_reply(1).await;
}

async fn lost_reply(passes: usize) {
    let server = PostgresServer::start();
    let relay = Relay::to(server.port()).await;
    let url = server.url("postgres").replace(&server.port().to_string(), &relay.port().to_string());
    let rig = Rig::over(&url, Upstream::counting().await, "");
    is_first(&rig.pay(&event("evt_0", 1)).await, "call 0");
    relay.lose_a_reply("[\"evt_1\"]", passes);
    let first = rig.pay(&event("evt_1", 1)).await;
    assert!(relay.lost());
    is_first(&first, "call 1");
    let same = || async { rig.pay(&event("evt_1", 1)).await.idempotency() == "replay" };
    eventually("the outcome is kept", same).await;
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    assert_eq!(rig.upstream.count(), 2);
}

/// Scenario 29: two gateways, one event, fifty deliveries at once: one forward, and no one gets an error.
#[tokio::test]
async fn s29_fifty_deliveries_at_two_gateways() {
    let database = Database::new();
    let upstream = Upstream::start(|_, at| later(300, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let text = config(&database.url(), upstream.address, "in_flight = { wait = \"0s\" }")
        .replace("[store]", "[store]\ntimeout = \"10s\"");
    let gateways = [Gateway::start(&text), Gateway::start(&text)];
    let deliveries = (0..50).map(|at| deliver(&gateways[at % 2], &event("evt_1", 1))).collect::<Vec<_>>();
    let mut firsts = 0;
    for delivery in deliveries {
        let answer = delivery.await.unwrap().unwrap();
        match answer.idempotency() {
            "first" => firsts += 1,
            "in-flight" => assert_eq!(answer.status, 409, "{answer:?}"),
            other => assert_eq!((other, answer.status), ("replay", 200), "{answer:?}"),
        }
    }
    assert_eq!((firsts, upstream.count()), (1, 1));
}

/// Scenario 30: a backup holds the table: refused within the deadline, with nothing forwarded, and served again when it ends.
#[tokio::test]
async fn s30_a_locked_table() {
    let database = Database::new();
    let rig = Rig::over(&database.url(), Upstream::counting().await, "");
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    let options: PgConnectOptions = database.url().parse().unwrap();
    let mut backup = options.connect().await.unwrap();
    let mut held = backup.begin().await.unwrap();
    sqlx::query("LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let asked = Instant::now();
    is_problem(&rig.pay(&event("evt_2", 1)).await, 503, "store-unavailable");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    held.rollback().await.unwrap();
    eventually("served", || async { pay(&rig.gateway, &event("evt_2", 1)).await.status == 200 }).await;
    assert_eq!(rig.upstream.count(), 2);
}
