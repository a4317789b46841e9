//! A gateway that dies, stops or stalls: nothing acknowledged is lost, nothing unreported is done twice.

use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::rig::{
    Rig, deliver, event, fence, is_first, is_problem, is_replay, pay, pay_request, second_attempt, settle,
};
use crate::support::client::read_answer;
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream, answer, later};

const SHORT: &str = "lease = \"1s\"\nin_flight = { wait = \"0s\" }";

/// An upstream that never answers the first call.
async fn stuck_once() -> Upstream {
    Upstream::start(|_, at| if at == 0 { Act::Silence } else { answer(200, &[], format!("call {at}").as_bytes()) })
        .await
}

/// Scenario 1: kill -9 before the claim leaves nothing; the redelivery is first-seen.
#[tokio::test]
async fn s01_kill_before_the_claim() {
    let rig = Rig::start("").await;
    let bytes = pay_request(rig.gateway.ingest, &event("evt_1", 1));
    let mut half = TcpStream::connect(rig.gateway.ingest).await.unwrap();
    half.write_all(&bytes[..bytes.len() - 5]).await.unwrap();
    assert_eq!(pay(&rig.gateway, "not an event").await.status, 400, "the gateway is at work");
    let rig = rig.crash();
    assert_eq!(rig.upstream.count(), 0);
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    assert_eq!(rig.upstream.hits()[0].header("onceward-attempt"), Some("1"));
}

/// Scenario 3 on the embedded store.
#[tokio::test]
async fn s03_kill_after_send_on_sqlite() {
    kill_after_send(SQLITE).await;
}

/// Scenario 3 on Redis.
#[tokio::test]
async fn s03_kill_after_send_on_redis() {
    let redis = RedisServer::start();
    kill_after_send(&redis.url()).await;
}

/// Scenario 3: in flight until the lease ends, then one more forward with attempt 2 and a higher fence.
async fn kill_after_send(store: &str) {
    let rig = Rig::over(store, stuck_once().await, SHORT);
    let cut = rig.under_way(&event("evt_1", 1)).await;
    let rig = rig.crash();
    assert!(cut.await.unwrap().is_err(), "no answer was given");
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    let first = rig.settle(&event("evt_1", 1)).await;
    is_first(&first, "call 1");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    second_attempt(&rig.upstream.hits());
}

/// Scenario 3 under `hold`: after a crash in the middle nothing is sent again.
#[tokio::test]
async fn s03_kill_after_send_under_hold() {
    let rig = Rig::with(stuck_once().await, &format!("{SHORT}\nunknown = \"hold\""));
    rig.under_way(&event("evt_1", 1)).await;
    let rig = rig.crash();
    let held = rig.settle(&event("evt_1", 1)).await;
    is_problem(&held, 409, "held");
    is_problem(&rig.pay(&event("evt_1", 1)).await, 409, "held");
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 5 on the embedded store.
#[tokio::test]
async fn s05_kill_after_finalise_on_sqlite() {
    kill_after_finalise(SQLITE).await;
}

/// Scenario 5 on Redis.
#[tokio::test]
async fn s05_kill_after_finalise_on_redis() {
    let redis = RedisServer::start();
    kill_after_finalise(&redis.url()).await;
}

/// Scenario 5, I2: an answer that was given is durable; after kill -9 the redelivery replays it.
async fn kill_after_finalise(store: &str) {
    let mut rig = Rig::over(store, Upstream::counting().await, "");
    for at in 0..3 {
        let body = event(&format!("evt_{at}"), 1);
        let first = rig.pay(&body).await;
        rig = rig.crash();
        is_first(&first, &format!("call {at}"));
        is_replay(&rig.pay(&body).await, &first);
        is_problem(&rig.pay(&event(&format!("evt_{at}"), 2)).await, 409, "fingerprint-mismatch");
    }
    assert_eq!(rig.upstream.count(), 3);
}

/// Scenario 6: kill -9 in the middle of a reply: the client sees that it was cut; the redelivery replays it whole.
#[tokio::test]
async fn s06_kill_mid_reply() {
    let body: &'static [u8] = vec![b'x'; 12 << 20].leak();
    let upstream = Upstream::start(move |_, _| answer(200, &[], body)).await;
    let policy = "lease = \"1s\"\nreplay = { max_body = \"64MiB\" }\nin_flight = { wait = \"0s\" }";
    // So much takes longer to write than the store's default timeout on a busy machine, and then the reply would not wait.
    let text = config(SQLITE, upstream.address, policy).replace("[store]", "[store]\ntimeout = \"20s\"");
    let rig = Rig { gateway: Gateway::start(&text), upstream };
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut client = socket.connect(rig.gateway.ingest).await.unwrap();
    client.write_all(&pay_request(rig.gateway.ingest, &event("evt_1", 1))).await.unwrap();
    client.read_exact(&mut [0; 1000]).await.unwrap();
    let rig = rig.crash();
    assert!(read_answer(&mut client).await.is_err(), "a cut reply must not look whole");
    let replay = rig.settle(&event("evt_1", 1)).await;
    assert_eq!((replay.status, replay.idempotency(), replay.body.len()), (200, "replay", body.len()));
    assert_eq!(rig.upstream.count(), 1);
}

/// Scenario 7: a gateway that was stopped past its lease does not overwrite its successor; its client gets the kept answer.
#[tokio::test]
async fn s07_stopped_past_the_lease() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, at| {
        let answer = answer(200, &[], format!("call {at}").as_bytes());
        if at == 0 { later(3000, answer) } else { answer }
    })
    .await;
    let text = config(&redis.url(), upstream.address, SHORT);
    let (stale, live) = (Gateway::start(&text), Gateway::start(&text));
    let delivery = deliver(&stale, &event("evt_1", 1));
    upstream.arrived(1).await;
    stale.signal(Signal::STOP);
    let first = settle(&live, &event("evt_1", 1)).await;
    is_first(&first, "call 1");
    second_attempt(&upstream.hits());
    // The upstream has answered the stopped one too by now.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    stale.signal(Signal::CONT);
    let late = delivery.await.unwrap().unwrap();
    is_replay(&late, &first);
    for gateway in [&stale, &live] {
        is_replay(&pay(gateway, &event("evt_1", 1)).await, &first);
    }
    assert_eq!(upstream.count(), 2);
}

/// Scenario 50: a client that leaves in the middle of its body leaves nothing behind.
#[tokio::test]
async fn s50_gone_mid_body() {
    let redis = RedisServer::start();
    let rig = Rig::over(&redis.url(), Upstream::counting().await, "");
    let bytes = pay_request(rig.gateway.ingest, &event("evt_1", 1));
    for keep in [bytes.len() - 1, bytes.len() - 10, 30] {
        let mut client = TcpStream::connect(rig.gateway.ingest).await.unwrap();
        client.write_all(&bytes[..keep]).await.unwrap();
        drop(client);
    }
    // Another event, whole way: by then the gateway has seen the others go.
    is_first(&rig.pay(&event("evt_2", 1)).await, "call 0");
    assert_eq!(redis.cli(&["--scan", "--pattern", "onceward:rec:*"]).lines().count(), 1);
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 1");
    assert_eq!(rig.upstream.hits()[1].header("onceward-attempt"), Some("1"));
}

/// Scenario 51, D7: a client that leaves after its body changes nothing: the event is forwarded, kept, and replayed.
#[tokio::test]
async fn s51_gone_before_the_reply() {
    let upstream = Upstream::start(|_, at| later(700, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let rig = Rig::with(upstream, "");
    let mut client = TcpStream::connect(rig.gateway.ingest).await.unwrap();
    client.write_all(&pay_request(rig.gateway.ingest, &event("evt_1", 1))).await.unwrap();
    rig.upstream.arrived(1).await;
    drop(client);
    eventually("the event is kept", || async { rig.pay(&event("evt_1", 1)).await.idempotency() == "replay" }).await;
    assert_eq!(rig.upstream.count(), 1);
}

/// An unfinished claim survives a second crash too: attempts and fences go on.
#[tokio::test]
async fn attempts_go_on_over_crashes() {
    let upstream =
        Upstream::start(|_, at| if at < 2 { Act::Silence } else { answer(200, &[], format!("call {at}").as_bytes()) });
    let mut rig = Rig::with(upstream.await, SHORT);
    for attempt in 1..=2 {
        let body = event("evt_1", 1);
        let until = rig.upstream.count() + 1;
        eventually("the next attempt", || async {
            drop(deliver(&rig.gateway, &body));
            tokio::time::sleep(Duration::from_millis(100)).await;
            rig.upstream.count() >= until
        })
        .await;
        assert_eq!(rig.upstream.count(), attempt);
        rig = rig.crash();
    }
    is_first(&rig.settle(&event("evt_1", 1)).await, "call 2");
    let hits = rig.upstream.hits();
    let attempts: Vec<_> = hits.iter().map(|hit| hit.header("onceward-attempt").unwrap()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    assert!(hits.windows(2).all(|two| fence(&two[0]) < fence(&two[1])), "{hits:?}");
}
