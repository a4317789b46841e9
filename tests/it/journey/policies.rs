//! What a route may choose: §2's `[idempotency]`, each value once.

use std::time::{Duration, Instant};

use super::rig::{Rig, bad_once, event, forwards, is_first, is_problem, is_replay, pay, retry_after, second_attempt};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::Gateway;
use crate::support::upstream::{Act, Upstream, answer, later};

/// A slow upstream, to meet an event in flight.
async fn slow(millis: u64) -> Upstream {
    Upstream::start(move |_, at| later(millis, answer(200, &[], format!("call {at}").as_bytes()))).await
}

/// One that answers the first so many calls with a status, and then well.
async fn failing(times: usize, status: u16) -> Upstream {
    Upstream::start(move |_, at| {
        let status = if at < times { status } else { 200 };
        answer(status, &[("x-call", &at.to_string())], format!("call {at}").as_bytes())
    })
    .await
}

/// `in_flight.status`, always with Retry-After, which is no longer than the rest of the lease; nothing is forwarded.
#[tokio::test]
async fn in_flight_status() {
    for status in [409, 425, 429, 503] {
        let policy = format!("in_flight = {{ wait = \"0s\", status = {status} }}\nlease = \"20s\"");
        let rig = Rig::with(slow(1500).await, &policy);
        let owner = rig.under_way(&event("evt_1", 1)).await;
        let duplicate = rig.pay(&event("evt_1", 1)).await;
        is_problem(&duplicate, status, "in-flight");
        assert_eq!(duplicate.idempotency(), "in-flight");
        assert!((1..=20).contains(&retry_after(&duplicate)), "{duplicate:?}");
        is_first(&owner.await.unwrap().unwrap(), "call 0");
        assert_eq!(rig.upstream.count(), 1);
    }
}

/// `in_flight.wait`: a duplicate gets the stored answer if the event ends within it.
#[tokio::test]
async fn in_flight_wait_ends_with_the_answer() {
    let rig = Rig::with(slow(800).await, r#"in_flight = { wait = "15s" }"#);
    let owner = rig.under_way(&event("evt_1", 1)).await;
    let asked = Instant::now();
    let duplicate = rig.pay(&event("evt_1", 1)).await;
    assert!(asked.elapsed() < Duration::from_secs(10), "woken by the answer, not by the clock: {:?}", asked.elapsed());
    let first = owner.await.unwrap().unwrap();
    is_first(&first, "call 0");
    is_replay(&duplicate, &first);
    assert_eq!(rig.upstream.count(), 1);
}

/// `in_flight.wait`: no longer than that; a waiter never claims.
#[tokio::test]
async fn in_flight_wait_is_an_upper_bound() {
    let rig = Rig::with(slow(5000).await, r#"in_flight = { wait = "400ms" }"#);
    let owner = rig.under_way(&event("evt_1", 1)).await;
    let asked = Instant::now();
    is_problem(&rig.pay(&event("evt_1", 1)).await, 409, "in-flight");
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(400) && waited < Duration::from_secs(3), "{waited:?}");
    is_first(&owner.await.unwrap().unwrap(), "call 0");
    assert_eq!(rig.upstream.count(), 1);
}

/// `mismatch.status`: nothing is forwarded, whatever is said; the kept answer stays.
#[tokio::test]
async fn mismatch_status() {
    for status in [409, 422, 202] {
        let rig = Rig::start(&format!("mismatch = {{ status = {status} }}")).await;
        let first = rig.pay(&event("evt_1", 1)).await;
        for _ in 0..2 {
            let conflict = rig.pay(&event("evt_1", 2)).await;
            assert_eq!((conflict.status, conflict.idempotency()), (status, "mismatch"), "{conflict:?}");
            assert_eq!(conflict.code(), "fingerprint-mismatch");
        }
        is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
        assert_eq!(rig.upstream.count(), 1);
    }
}

/// `failed = "retry"`, the default: a failure is relayed untouched, not kept, and the next delivery is a new attempt of the same key.
#[tokio::test]
async fn failed_retry() {
    let rig = Rig::with(bad_once(status_of_id).await, "");
    for status in [500, 503, 429, 408, 425, 404, 302] {
        let (id, body) = (format!("evt_{status}"), event(&format!("evt_{status}"), 1));
        let failed = rig.pay(&body).await;
        assert_eq!((failed.status, failed.idempotency()), (status, "first"), "{failed:?}");
        assert_eq!((failed.body.as_slice(), failed.header("x-call")), (&b"call 0"[..], Some("0")));
        assert_eq!(failed.header("idempotency-expires"), None, "not kept: {failed:?}");
        let first = rig.pay(&body).await;
        is_first(&first, "call 1");
        is_replay(&rig.pay(&body).await, &first);
        second_attempt(&forwards(&rig.upstream, &id));
    }
}

/// `evt_404` is answered 404.
fn status_of_id(id: &str) -> Act {
    answer(id["evt_".len()..].parse().unwrap(), &[("x-call", "0")], b"call 0")
}

/// A failed event still knows its material: another one is a conflict, not a retry.
#[tokio::test]
async fn failed_knows_its_material() {
    let rig = Rig::with(failing(1, 500).await, "");
    assert_eq!(rig.pay(&event("evt_1", 1)).await.status, 500);
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 1");
}

/// `failed = "replay"`: that failure again, without a call.
#[tokio::test]
async fn failed_replay() {
    let rig = Rig::with(failing(1, 422).await, r#"failed = "replay""#);
    let failed = rig.pay(&event("evt_1", 1)).await;
    assert_eq!((failed.status, failed.idempotency()), (422, "first"), "{failed:?}");
    for _ in 0..2 {
        is_replay(&rig.pay(&event("evt_1", 1)).await, &failed);
    }
    assert_eq!(rig.upstream.count(), 1);
}

/// `failed_window`: after it a failure is forgotten, and the event is forwarded again.
#[tokio::test]
async fn failed_window() {
    let rig = Rig::with(failing(1, 422).await, "failed = \"replay\"\nfailed_window = \"1s\"");
    let failed = rig.pay(&event("evt_1", 1)).await;
    assert_eq!(failed.status, 422);
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let again = rig.pay(&event("evt_1", 1)).await;
        if again.idempotency() == "first" {
            return is_first(&again, "call 1");
        }
        is_replay(&again, &failed);
        assert!(Instant::now() < until, "a failure is remembered for longer than its window");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// `failed = "dead-letter"`: `max_attempts` forwards, then held for a person.
#[tokio::test]
async fn failed_dead_letter() {
    let rig = Rig::with(failing(100, 500).await, "failed = \"dead-letter\"\nmax_attempts = 3");
    for _ in 0..3 {
        assert_eq!(rig.pay(&event("evt_1", 1)).await.status, 500);
    }
    for _ in 0..2 {
        let held = rig.pay(&event("evt_1", 1)).await;
        is_problem(&held, 409, "held");
        assert_eq!(held.idempotency(), "held");
    }
    let attempts: Vec<_> =
        rig.upstream.hits().iter().map(|hit| hit.header("onceward-attempt").unwrap().to_owned()).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    assert_eq!(rig.pay(&event("evt_2", 1)).await.status, 500, "other events go on");
}

/// `final`: which statuses are kept, with exceptions.
#[tokio::test]
async fn final_rules() {
    let rig = Rig::with(bad_once(status_of_id).await, r#"final = ["2xx", "302", "4xx except 408 425 429"]"#);
    let rows = [(201, true), (302, true), (404, true), (422, true)];
    let not_kept = [(303, false), (408, false), (425, false), (429, false), (500, false), (503, false)];
    for (status, kept) in rows.into_iter().chain(not_kept) {
        let body = event(&format!("evt_{status}"), 1);
        let first = rig.pay(&body).await;
        assert_eq!((first.status, first.idempotency()), (status, "first"), "{first:?}");
        assert_eq!(first.header("idempotency-expires").is_some(), kept, "{first:?}");
        let second = rig.pay(&body).await;
        if kept {
            is_replay(&second, &first);
        } else {
            is_first(&second, "call 1");
        }
    }
}

/// `unknown = "retry"`, the default: in flight until the lease ends, then one more attempt of the same key.
#[tokio::test]
async fn unknown_retry() {
    let script = |at: usize| if at == 0 { Act::Silence } else { answer(200, &[], b"at last") };
    let upstream = Upstream::start(move |_, at| script(at)).await;
    let rig = Rig::patient(upstream, "300ms", "lease = \"2s\"\nin_flight = { wait = \"0s\" }");
    let broken = rig.pay(&event("evt_1", 1)).await;
    is_problem(&broken, 504, "upstream-timeout");
    assert_eq!(broken.idempotency(), "first");
    is_problem(&rig.pay(&event("evt_1", 1)).await, 409, "in-flight");
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    let first = rig.settle(&event("evt_1", 1)).await;
    is_first(&first, "at last");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    second_attempt(&rig.upstream.hits());
}

/// `unknown = "hold"`: never sent again by itself, also after the lease.
#[tokio::test]
async fn unknown_hold() {
    let upstream = Upstream::start(|_, at| if at == 0 { Act::Reset } else { answer(200, &[], b"") }).await;
    let rig = Rig::with(upstream, "unknown = \"hold\"\nlease = \"500ms\"\nin_flight = { wait = \"0s\" }");
    is_problem(&rig.pay(&event("evt_1", 1)).await, 502, "upstream-failed");
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let held = rig.pay(&event("evt_1", 1)).await;
        is_problem(&held, 409, "held");
        assert_eq!(held.idempotency(), "held");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    assert_eq!(rig.upstream.count(), 1);
}

/// `mode = "observe"`: everything is decided and everything is forwarded.
#[tokio::test]
async fn mode_observe() {
    let upstream = Upstream::counting().await;
    let text = config(SQLITE, upstream.address, "").replace("upstream = \"u\"", "upstream = \"u\"\nmode = \"observe\"");
    let gateway = Gateway::start(&text);
    for (call, amount) in [1, 1, 2].into_iter().enumerate() {
        let answer = pay(&gateway, &event("evt_1", amount)).await;
        assert_eq!((answer.status, answer.body), (200, format!("call {call}").into_bytes()));
    }
    assert_eq!(upstream.count(), 3);
}
