//! Clocks that step and clocks that differ: the store's decides leases, a gateway's own never does.

use std::time::Duration;

use crate::journey::rig::{
    deliver, event, fence, forwards, is_first, is_problem, pay, retry_after, second_attempt, settle,
};
use crate::support::config::config;
use crate::support::faketime;
use crate::support::gateway::Home;
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer, later};

const POLICY: &str = "lease = \"20s\"\nin_flight = { wait = \"0s\" }";

/// Scenario 27, forward: the store's clock jumps an hour while a forward runs. Its lease is over then, the redelivery is forwarded
/// too, and that is reported; the fences keep the first one from writing, and both senders get the answer that stands.
#[tokio::test]
async fn s27_the_stores_clock_steps_forward() {
    let redis = RedisServer::start_with_clock();
    let upstream = Upstream::start(|_, at| match at {
        0 => later(1500, answer(200, &[], b"call 0")),
        _ => answer(200, &[], format!("call {at}").as_bytes()),
    })
    .await;
    let gateway = Home::new(&config(&redis.url(), upstream.address, POLICY)).start();
    let first = deliver(&gateway, &event("evt_1", 1));
    upstream.arrived(1).await;
    is_problem(&pay(&gateway, &event("evt_1", 1)).await, 409, "in-flight");
    redis.set_clock("+3600");
    let second = pay(&gateway, &event("evt_1", 1)).await;
    is_first(&second, "call 1");
    second_attempt(&forwards(&upstream, "evt_1"));
    let first = first.await.unwrap().unwrap();
    assert_eq!((first.status, first.body.as_slice()), (200, &b"call 1"[..]), "{first:?}");
    assert_eq!(pay(&gateway, &event("evt_1", 1)).await.body, b"call 1");
    let log = gateway.log();
    for kind in ["second_forward", "lease_lost"] {
        assert_eq!(log.matches(&format!("\"kind\":\"{kind}\"")).count(), 1, "{kind}: {log}");
    }
    assert_eq!(upstream.count(), 2);
}

/// Scenario 27, back: leases last an hour longer by the store's clock. A sender is told to come again within a lease all the same, a
/// running forward ends as ever, and the next claim's fence is still the higher one.
#[tokio::test]
async fn s27_the_stores_clock_steps_back() {
    let redis = RedisServer::start_with_clock();
    let upstream = Upstream::start(|_, at| match at {
        0 => later(1000, answer(500, &[], b"busy")),
        _ => answer(200, &[], format!("call {at}").as_bytes()),
    })
    .await;
    let gateway = Home::new(&config(&redis.url(), upstream.address, POLICY)).start();
    let first = deliver(&gateway, &event("evt_1", 1));
    upstream.arrived(1).await;
    redis.set_clock("-3600");
    let busy = pay(&gateway, &event("evt_1", 1)).await;
    is_problem(&busy, 409, "in-flight");
    assert!(retry_after(&busy) <= 20, "{busy:?}");
    assert_eq!(first.await.unwrap().unwrap().status, 500);
    is_first(&pay(&gateway, &event("evt_1", 1)).await, "call 1");
    let hits = forwards(&upstream, "evt_1");
    assert!(hits.len() == 2 && fence(&hits[1]) > fence(&hits[0]), "{hits:?}");
}

/// Scenario 41: two gateways whose clocks are ten minutes apart share their claims, leases and answers as if they were not.
#[tokio::test]
async fn s41_gateways_with_different_clocks() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, at| later(300, answer(200, &[], format!("call {at}").as_bytes()))).await;
    let text = config(&redis.url(), upstream.address, "lease = \"600ms\"\nin_flight = { wait = \"0s\" }");
    let right = Home::new(&text).start();
    let ahead = faketime::by("+600");
    let ahead: Vec<_> = ahead.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let ahead = Home::new(&text).start_with(&ahead);
    for (turn, (one, other)) in [(&right, &ahead), (&ahead, &right)].into_iter().enumerate() {
        let id = format!("evt_{turn}");
        let running = deliver(one, &event(&id, 1));
        upstream.arrived(2 * turn + 1).await;
        is_problem(&pay(other, &event(&id, 1)).await, 409, "in-flight");
        let first = running.await.unwrap().unwrap();
        assert_eq!(pay(other, &event(&id, 1)).await.repeated(), first.repeated());
        is_problem(&pay(other, &event(&id, 2)).await, 409, "fingerprint-mismatch");
        // A further one, so that each clock has written last.
        assert_eq!(settle(other, &event(&format!("more_{turn}"), 1)).await.status, 200);
    }
    assert_eq!(upstream.count(), 4);
    let date =
        |answer: crate::support::client::Answer| httpdate::parse_http_date(answer.header("date").unwrap()).unwrap();
    let (right, ahead) = (date(pay(&right, "{}").await), date(pay(&ahead, "{}").await));
    assert!(ahead.duration_since(right).unwrap() > Duration::from_secs(500), "the clocks do differ");
}
