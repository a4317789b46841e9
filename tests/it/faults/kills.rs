//! kill -9 at each gap of the journey, on every store; then a restart, and redelivery until there is an answer.

use super::stores;
use crate::journey::rig::{deliver, event, fence, is_first, pay, second_attempt, settle};
use crate::support::config::config;
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::{Hit, Upstream, answer};

/// `max_body` is small, so that the answers of [`large`] pass through.
const POLICY: &str = "lease = \"500ms\"\nin_flight = { wait = \"0s\" }\nreplay = { max_body = \"1KiB\" }";

const FAILPOINTS: &str = "ONCEWARD_FAILPOINTS";

/// An answer that is larger than the route keeps.
fn large() -> &'static [u8] {
    &[b'x'; 200_000]
}

/// What a kill at one point leaves.
struct Left {
    point: &'static str,
    /// Requests at the upstream when the process was dead.
    sent: usize,
    /// And when its successor had answered.
    in_all: usize,
    /// What the successor's answer is.
    redelivered: &'static str,
    /// It is flagged as a possible second forward.
    flagged: bool,
}

/// Kills at the third delivery that passes the point, so that the store holds finished events too.
async fn killed_at(left: Left) {
    for store in stores::all() {
        let upstream = Upstream::start(move |_, at| match left.point {
            "reply.mid" => answer(200, &[], large()),
            _ => answer(200, &[], format!("call {at}").as_bytes()),
        })
        .await;
        let home = Home::new(&config(&store.url, upstream.address, POLICY));
        let gateway = home.start_with(&[(FAILPOINTS, &format!("{}=kill@3", left.point))]);
        for id in ["evt_1", "evt_2"] {
            assert_eq!(pay(&gateway, &event(id, 1)).await.status, 200, "{}", store.name);
        }
        let cut = deliver(&gateway, &event("evt_3", 1)).await.unwrap();
        assert!(cut.is_err(), "{} on {}: a whole answer: {cut:?}", left.point, store.name);
        let gateway = gateway.killed().start();
        let of_third = || upstream.hits().into_iter().filter(|hit| is_of(hit, "evt_3")).collect::<Vec<_>>();
        assert_eq!(of_third().len(), left.sent, "{} on {}", left.point, store.name);
        let given = settle(&gateway, &event("evt_3", 1)).await;
        assert_eq!((given.status, given.idempotency()), (200, left.redelivered), "{} on {}", left.point, store.name);
        assert_eq!(of_third().len(), left.in_all, "{} on {}", left.point, store.name);
        if left.in_all == 2 {
            second_attempt(&of_third());
        }
        assert_eq!(is_flagged(&gateway), left.flagged, "{} on {}: {}", left.point, store.name, gateway.log());
        for id in ["evt_1", "evt_2", "evt_3"] {
            assert_eq!(pay(&gateway, &event(id, 1)).await.idempotency(), "replay", "{id} on {}", store.name);
        }
        assert_eq!(upstream.count(), 2 + left.in_all, "{} on {}", left.point, store.name);
    }
}

fn is_of(hit: &Hit, id: &str) -> bool {
    hit.header("idempotency-key") == Some(&format!("t:pay:{id}"))
}

/// The log says that a forward may have been a second one.
fn is_flagged(gateway: &Gateway) -> bool {
    gateway.log().contains("second forward") || gateway.log().contains("second_forward")
}

/// Scenario 1: nothing is left; the redelivery is the first.
#[tokio::test]
async fn s01_at_claim_before() {
    killed_at(Left { point: "claim.before", sent: 0, in_all: 1, redelivered: "first", flagged: false }).await;
}

/// Scenario 2: nothing was sent, and nobody can know that: in flight until the lease ends, then one forward, flagged.
#[tokio::test]
async fn s02_at_claim_after() {
    killed_at(Left { point: "claim.after", sent: 0, in_all: 1, redelivered: "first", flagged: true }).await;
}

/// Scenario 2: that one forward is the second attempt.
#[tokio::test]
async fn s02_counts_as_an_attempt() {
    let upstream = Upstream::counting().await;
    let home = Home::new(&config(&stores::sqlite().url, upstream.address, POLICY));
    let gateway = home.start_with(&[(FAILPOINTS, "claim.after=kill")]);
    assert!(deliver(&gateway, &event("evt_1", 1)).await.unwrap().is_err());
    let gateway = gateway.killed().start();
    is_first(&settle(&gateway, &event("evt_1", 1)).await, "call 0");
    let hits = upstream.hits();
    assert_eq!((hits.len(), hits[0].header("onceward-attempt")), (1, Some("2")));
    assert!(fence(&hits[0]) > 0);
}

/// Scenario 3: the request is at the upstream: a second forward with the same key, attempt 2 and a higher fence.
#[tokio::test]
async fn s03_at_forward_sent() {
    killed_at(Left { point: "forward.sent", sent: 1, in_all: 2, redelivered: "first", flagged: true }).await;
}

/// Scenario 4: the upstream has answered, and only the dead process knew.
#[tokio::test]
async fn s04_at_forward_answered() {
    killed_at(Left { point: "forward.answered", sent: 1, in_all: 2, redelivered: "first", flagged: true }).await;
}

/// Scenario 5: the outcome is written: the redelivery replays it.
#[tokio::test]
async fn s05_at_finalise_after() {
    killed_at(Left { point: "finalise.after", sent: 1, in_all: 1, redelivered: "replay", flagged: false }).await;
}

/// Scenario 6: the sender has all but the end, and sees that.
#[tokio::test]
async fn s06_at_reply_mid() {
    killed_at(Left { point: "reply.mid", sent: 1, in_all: 1, redelivered: "replay", flagged: false }).await;
}

/// A point that does not exist is no silent nothing.
#[tokio::test]
async fn an_action_that_does_not_exist_is_refused() {
    let home = Home::new(&config(&stores::sqlite().url, "127.0.0.1:9".parse().unwrap(), ""));
    assert!(
        home.refuses_with(&[(FAILPOINTS, "claim.after=explode")])
            .contains("the actions are kill, stop and dial:ADDRESS")
    );
}
