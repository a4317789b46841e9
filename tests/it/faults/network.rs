//! Faults on the way to the store and to the upstream.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::journey::rig::{deliver, event, fence, is_first, is_problem, is_replay, pay, second_attempt, settle};
use crate::support::config::{SQLITE, config, config_with};
use crate::support::eventually;
use crate::support::gateway::Gateway;
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer, later};

/// A Redis behind a relay.
struct Store {
    redis: RedisServer,
    proxy: Proxy,
}

impl Store {
    async fn start() -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::before(address(&redis)).await;
        Self { redis, proxy }
    }

    fn url(&self) -> String {
        format!("redis://{}/", self.proxy.address)
    }
}

fn address(redis: &RedisServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], redis.port()))
}

/// What a claim's write holds, and a finalise does not.
const CLAIM: &[u8] = b"processing";

/// Scenario 21: 2 s on every call: refused in time, nothing forwarded; served again when it is over.
#[tokio::test]
async fn s21_two_seconds_of_latency() {
    let store = Store::start().await;
    let upstream = Upstream::counting().await;
    let text = config(&store.url(), upstream.address, "lease = \"60s\"\nin_flight = { wait = \"0s\" }");
    let gateway = Gateway::start(&text);
    is_first(&pay(&gateway, &event("evt_1", 1)).await, "call 0");
    store.proxy.set(Mode::Delay(Duration::from_secs(2)));
    let asked = Instant::now();
    let answers =
        futures::future::join_all((0..20).map(|at| deliver(&gateway, &event(&format!("slow_{at}"), 1)))).await;
    for answer in answers {
        is_problem(&answer.unwrap().unwrap(), 503, "store-unavailable");
    }
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(upstream.count(), 1, "nothing is forwarded over a claim that was not answered");
    store.proxy.set(Mode::Pass);
    for at in 0..20 {
        let body = event(&format!("slow_{at}"), 1);
        eventually("served, long before the lease ends", || async { pay(&gateway, &body).await.status == 200 }).await;
    }
    assert_eq!(upstream.count(), 21);
}

/// Scenario 21: latency below the store's deadline costs no lease, however long the forward takes.
#[tokio::test]
async fn s21_slow_renewals_keep_the_lease() {
    let store = Store::start().await;
    let upstream = Upstream::start(|_, at| later(2500, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let policy = "lease = \"1s\"\nin_flight = { wait = \"0s\" }";
    let gateway = Gateway::start(&config(&store.url(), upstream.address, policy));
    store.proxy.set(Mode::Delay(Duration::from_millis(100)));
    let running = deliver(&gateway, &event("evt_1", 1));
    upstream.arrived(1).await;
    while !running.is_finished() {
        let twin = pay(&gateway, &event("evt_1", 1)).await;
        assert!(["in-flight", "replay"].contains(&twin.idempotency()), "{twin:?}");
    }
    is_first(&running.await.unwrap().unwrap(), "call 0");
    assert_eq!(upstream.count(), 1);
    assert!(!gateway.log().contains("lease_lost"), "{}", gateway.log());
}

/// Scenario 22: the claim was written and its reply lost. The same owner asks again, finds its own claim and forwards: no refusal,
/// and no wait for the end of the lease. On the first connection of a core too, which is not made anew at once.
#[tokio::test]
async fn s22_reply_to_the_claim_lost() {
    // Which core of a gateway takes a delivery is chance, so several are tried.
    for turn in 0..6 {
        let store = Store::start().await;
        let upstream = Upstream::counting().await;
        let policy = "lease = \"60s\"\nin_flight = { wait = \"0s\" }";
        let gateway = Gateway::start(&config(&store.url(), upstream.address, policy));
        is_first(&pay(&gateway, &event("evt_0", 1)).await, "call 0");
        store.proxy.set(Mode::DropReplyTo(CLAIM.to_vec(), Box::new(Mode::Pass)));
        let first = pay(&gateway, &event("evt_1", 1)).await;
        assert_eq!(store.proxy.mode(), Mode::Pass, "a reply was dropped, turn {turn}");
        is_first(&first, "call 1");
        is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
        assert_eq!(upstream.hits()[1].header("onceward-attempt"), Some("1"));
        assert_eq!(upstream.count(), 2);
    }
}

/// Scenario 22: the claim was written, its reply lost, and the store is gone after that: the ghost of the claim is given back long
/// before its lease ends.
#[tokio::test]
async fn s22_ghost_claim_is_given_back() {
    let store = Store::start().await;
    let upstream = Upstream::counting().await;
    let gateway =
        Gateway::start(&config(&store.url(), upstream.address, "lease = \"60s\"\nin_flight = { wait = \"0s\" }"));
    is_first(&pay(&gateway, &event("evt_0", 1)).await, "call 0");
    store.proxy.set(Mode::DropReplyTo(CLAIM.to_vec(), Box::new(Mode::Refuse)));
    is_problem(&pay(&gateway, &event("evt_1", 1)).await, 503, "store-unavailable");
    assert_eq!(store.proxy.mode(), Mode::Refuse, "a reply was dropped");
    let records = store.redis.cli(&["--scan", "--pattern", "onceward:rec:*"]);
    assert_eq!(records.lines().count(), 2, "the claim stands: {records}");
    store.proxy.set(Mode::Pass);
    let healed = Instant::now();
    eventually("the event is served", || async { pay(&gateway, &event("evt_1", 1)).await.status == 200 }).await;
    assert!(healed.elapsed() < Duration::from_secs(15), "parked by its own ghost: {:?}", healed.elapsed());
    assert_eq!(upstream.hits()[1].header("onceward-attempt"), Some("1"), "nothing was sent before");
    assert_eq!(upstream.count(), 2);
}

/// Scenario 17: a failover that loses the claim: a second forward with the same key and a higher fence; the late outcome of the
/// first does not overwrite the second's.
#[tokio::test]
async fn s17_failover_loses_the_claim() {
    let store = Store::start().await;
    let successor = RedisServer::start();
    let upstream = Upstream::start(|_, at| {
        let answer = answer(200, &[], format!("call {at}").as_bytes());
        if at == 0 { later(2000, answer) } else { answer }
    })
    .await;
    let policy = "lease = \"20s\"\nin_flight = { wait = \"0s\" }";
    let text = config(&store.url(), upstream.address, policy);
    let (first, second) = (Gateway::start(&text), Gateway::start(&text));
    let running = deliver(&first, &event("evt_1", 1));
    upstream.arrived(1).await;
    store.proxy.switch_to(address(&successor));
    let body = event("evt_1", 1);
    let mut winner = pay(&second, &body).await;
    eventually("the successor serves", || {
        let (second, body) = (&second, &body);
        let again = winner.status != 200;
        async move { !again || pay(second, body).await.status == 200 }
    })
    .await;
    if winner.status != 200 {
        winner = pay(&second, &body).await;
    }
    assert_eq!(winner.body, b"call 1", "{winner:?}");
    let late = running.await.unwrap().unwrap();
    assert_eq!((late.status, late.body.as_slice()), (200, &b"call 1"[..]), "the winner's answer: {late:?}");
    for gateway in [&first, &second] {
        let replay = pay(gateway, &body).await;
        assert_eq!((replay.idempotency(), replay.body.as_slice()), ("replay", &b"call 1"[..]), "{replay:?}");
    }
    let hits = upstream.hits();
    assert_eq!(hits.len(), 2);
    assert_eq!(hits[0].header("idempotency-key"), hits[1].header("idempotency-key"));
    assert!(fence(&hits[1]) > fence(&hits[0]), "{hits:?}");
    assert!(first.log().contains("lease_lost"), "{}", first.log());
}

/// Scenario 42: the upstream falls silent in the middle of a connection: 504 in time, and another attempt after the lease.
#[tokio::test]
async fn s42_half_open_upstream() {
    let upstream = Upstream::counting().await;
    let proxy = Proxy::before(upstream.address).await;
    let policy = "lease = \"500ms\"\nin_flight = { wait = \"0s\" }";
    let gateway = Gateway::start(&config_with(SQLITE, proxy.address, "timeout = \"1s\"", policy));
    is_first(&pay(&gateway, &event("evt_0", 1)).await, "call 0");
    proxy.set(Mode::BlackHole);
    is_problem(&pay(&gateway, &event("evt_1", 1)).await, 504, "upstream-timeout");
    proxy.set(Mode::Pass);
    proxy.cut();
    let given = settle(&gateway, &event("evt_1", 1)).await;
    assert_eq!((given.status, given.idempotency()), (200, "first"), "{given:?}");
    let last = upstream.hits().pop().unwrap();
    assert_eq!(last.header("onceward-attempt"), Some("2"));
}

/// Scenarios 42 and 43: the exchange breaks after any number of bytes of the answer: never a success, and a second attempt.
#[tokio::test]
async fn s43_answer_cut_anywhere() {
    let upstream = Upstream::counting().await;
    let proxy = Proxy::before(upstream.address).await;
    let policy = "lease = \"300ms\"\nin_flight = { wait = \"0s\" }";
    let gateway = Gateway::start(&config(SQLITE, proxy.address, policy));
    let whole = "HTTP/1.1 200 Whatever\r\ncontent-length: 6\r\nx-call: 0\r\n\r\ncall 0".len();
    for cut in [0, 1, 20, whole - 7, whole - 1] {
        let body = event(&format!("evt_{cut}"), 1);
        // On a connection of its own: the cut counts a connection's bytes.
        proxy.cut();
        proxy.set(Mode::CutRepliesAfter(cut));
        let before = upstream.count();
        let broken = pay(&gateway, &body).await;
        is_problem(&broken, 502, "upstream-failed");
        proxy.set(Mode::Pass);
        let given = settle(&gateway, &body).await;
        assert_eq!((given.status, given.idempotency()), (200, "first"), "{given:?}");
        second_attempt(&upstream.hits()[before..]);
    }
}

/// The request itself is cut: what arrived is no request, and what nobody knows is flagged all the same.
#[tokio::test]
async fn s42_request_cut() {
    let upstream = Upstream::counting().await;
    let proxy = Proxy::before(upstream.address).await;
    let policy = "lease = \"300ms\"\nin_flight = { wait = \"0s\" }";
    let gateway = Gateway::start(&config(SQLITE, proxy.address, policy));
    proxy.set(Mode::CutRequestsAfter(60));
    is_problem(&pay(&gateway, &event("evt_1", 1)).await, 502, "upstream-failed");
    assert_eq!(upstream.count(), 0);
    proxy.set(Mode::Pass);
    is_first(&settle(&gateway, &event("evt_1", 1)).await, "call 0");
    assert_eq!(upstream.hits()[0].header("onceward-attempt"), Some("2"));
}
