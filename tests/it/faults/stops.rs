//! SIGSTOP at each gap of the journey for more than two leases, then SIGCONT: a stale owner overwrites nothing and says so.

use std::time::Duration;

use rustix::process::Signal;

use super::stores::{self, TestStore};
use crate::journey::rig::{deliver, event, fence, is_first, is_replay, pay, settle};
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::{Upstream, answer, later};

const LEASE: Duration = Duration::from_millis(600);
const POLICY: &str = "lease = \"600ms\"\nin_flight = { wait = \"0s\" }";

/// What a stop at one point leaves, seen over a store that a second gateway shares.
struct Left {
    point: &'static str,
    /// Requests at the upstream while it is stopped and the other gateway has answered.
    meanwhile: usize,
    /// And after it went on.
    in_all: usize,
    /// What the other gateway's sender got.
    other: &'static str,
    /// What its own sender gets in the end.
    own: &'static str,
    /// The stopped one finds out that it lost the lease.
    lost: bool,
}

/// On each store that several gateways may share.
async fn stopped_everywhere_at(left: Left) {
    for store in stores::all().into_iter().filter(|store| store.shared) {
        stopped_over(&store, &left).await;
    }
}

async fn stopped_at(left: Left) {
    stopped_over(&stores::redis(), &left).await;
}

async fn stopped_over(store: &TestStore, left: &Left) {
    let upstream = Upstream::counting().await;
    let text = config(&store.url, upstream.address, POLICY);
    let stale = Home::new(&text).start_with(&[("ONCEWARD_FAILPOINTS", &format!("{}=stop", left.point))]);
    let live = Gateway::start(&text);
    let delivery = deliver(&stale, &event("evt_1", 1));
    eventually("the gateway stops", || async { stale.is_stopped() }).await;
    // The stop is what takes time here: there is nothing to poll for.
    tokio::time::sleep(2 * LEASE).await;
    let other = settle(&live, &event("evt_1", 1)).await;
    assert_eq!((other.status, other.idempotency()), (200, left.other), "on {}: {other:?}", store.name);
    assert_eq!(upstream.count(), left.meanwhile);
    stale.signal(Signal::CONT);
    let own = delivery.await.unwrap().expect("a whole answer");
    assert_eq!((own.status, own.idempotency()), (200, left.own), "on {}: {own:?}", store.name);
    assert_eq!(own.repeated(), other.repeated(), "both senders got the same answer");
    assert_eq!(upstream.count(), left.in_all);
    assert_eq!(stale.log().matches("lease_lost").count(), usize::from(left.lost), "{}", stale.log());
    for gateway in [&stale, &live] {
        is_replay(&pay(gateway, &event("evt_1", 1)).await, &other);
    }
    assert_eq!(upstream.count(), left.in_all);
}

#[tokio::test]
async fn s07_at_claim_before() {
    stopped_at(Left { point: "claim.before", meanwhile: 1, in_all: 1, other: "first", own: "replay", lost: false })
        .await;
}

/// Nothing was sent yet, and by the steady clock the lease is over: nothing is sent under the old fence.
#[tokio::test]
async fn s07_at_claim_after() {
    stopped_everywhere_at(Left {
        point: "claim.after",
        meanwhile: 1,
        in_all: 1,
        other: "first",
        own: "replay",
        lost: true,
    })
    .await;
}

#[tokio::test]
async fn s07_at_forward_sent() {
    stopped_at(Left { point: "forward.sent", meanwhile: 2, in_all: 2, other: "first", own: "replay", lost: true })
        .await;
}

#[tokio::test]
async fn s07_at_forward_answered() {
    stopped_everywhere_at(Left {
        point: "forward.answered",
        meanwhile: 2,
        in_all: 2,
        other: "first",
        own: "replay",
        lost: true,
    })
    .await;
}

#[tokio::test]
async fn s07_at_finalise_after() {
    stopped_at(Left { point: "finalise.after", meanwhile: 1, in_all: 1, other: "replay", own: "first", lost: false })
        .await;
}

/// Alone over a store, a stopped gateway goes on where it was: nobody took its claim.
#[tokio::test]
async fn s07_alone() {
    for store in stores::all() {
        for point in ["claim.before", "claim.after", "forward.sent", "forward.answered", "finalise.after"] {
            let upstream = Upstream::counting().await;
            let home = Home::new(&config(&store.url, upstream.address, POLICY));
            let gateway = home.start_with(&[("ONCEWARD_FAILPOINTS", &format!("{point}=stop"))]);
            let delivery = deliver(&gateway, &event(point, 1));
            eventually("the gateway stops", || async { gateway.is_stopped() }).await;
            tokio::time::sleep(2 * LEASE).await;
            gateway.signal(Signal::CONT);
            let first = delivery.await.unwrap().expect("a whole answer");
            is_first(&first, "call 0");
            is_replay(&pay(&gateway, &event(point, 1)).await, &first);
            assert_eq!(upstream.count(), 1, "{point} on {}", store.name);
            assert!(fence(&upstream.hits()[0]) > 0);
        }
    }
}

/// The stale owner writes its outcome while its successor still forwards: only the fence tells them apart.
#[tokio::test]
async fn s07_the_successor_still_forwards() {
    for store in stores::all().into_iter().filter(|store| store.shared) {
        successor_forwards_over(&store).await;
    }
}

async fn successor_forwards_over(store: &TestStore) {
    let upstream = Upstream::start(|_, at| {
        let answer = answer(200, &[], format!("call {at}").as_bytes());
        if at == 1 { later(2500, answer) } else { answer }
    })
    .await;
    let text = config(&store.url, upstream.address, POLICY);
    let stale = Home::new(&text).start_with(&[("ONCEWARD_FAILPOINTS", "forward.answered=stop")]);
    let live = Gateway::start(&text);
    let delivery = deliver(&stale, &event("evt_1", 1));
    eventually("the gateway stops", || async { stale.is_stopped() }).await;
    eventually("the lease ends and another gateway forwards", || async {
        drop(deliver(&live, &event("evt_1", 1)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        upstream.count() == 2
    })
    .await;
    stale.signal(Signal::CONT);
    assert_eq!(delivery.await.unwrap().expect("a whole answer").status, 200);
    assert_eq!(pay(&live, &event("evt_1", 1)).await.idempotency(), "in-flight", "the successor's claim stands");
    let kept = settle(&live, &event("evt_1", 1)).await;
    assert_eq!((kept.idempotency(), kept.body.as_slice()), ("replay", &b"call 1"[..]), "{kept:?}");
    is_replay(&pay(&stale, &event("evt_1", 1)).await, &kept);
    assert!(stale.log().contains("lease_lost"), "{}", stale.log());
    assert_eq!(upstream.count(), 2);
}
