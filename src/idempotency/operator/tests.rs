use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::event::{Fingerprint, PluginVersion};
use crate::idempotency::machine::{Decision, Me, on_request};
use crate::idempotency::record::{Owner, UnknownReason};
use crate::idempotency::tests::{answer, at, decide, failed, policy, record};

/// What stands once an operator's draft is written a second after `second`.
fn written(record: &Record, (expect, draft): (Expect, Draft), second: u64) -> Record {
    assert!(expect.holds(Some(record), at(second)), "{expect:?}");
    draft.stamp(at(second), Some(record))
}

fn unknown() -> Record {
    let state = State::Unknown { reason: UnknownReason::Timeout };
    Record { finished_at: Some(at(5)), ambiguous: true, error: Some("late".into()), ..record(state) }
}

#[test]
fn a_released_event_is_claimed_by_the_next_delivery_whatever_it_holds() {
    let held = Record { attempt: 3, request: Some(Bytes::from_static(b"kept")), ..unknown() };
    let after = written(&held, release(&held, "ops", at(9), &policy()).expect("not running"), 9);
    assert_eq!((after.fence, after.attempt, after.released, after.ambiguous), (held.fence, 3, true, true));
    assert_eq!(after.request, held.request, "it may still be sent again");
    for amount in [1, 2] {
        let Decision::Claim(plan) = decide(&after, amount, 10, &policy()) else { panic!("not claimed") };
        assert_eq!((plan.attempt, plan.ambiguous), (4, true), "attempt and doubt go on");
        assert_eq!(plan.history, after.history, "the attempt stands in the history once");
    }
    let [Step::Attempt(attempt), Step::Operator { verb: Verb::Release, by, at: when }] = after.history.as_slice()
    else {
        panic!("{:?}", after.history)
    };
    assert_eq!((attempt.attempt, attempt.reason, by.as_str(), *when), (3, Some(UnknownReason::Timeout), "ops", at(9)));
}

#[test]
fn a_release_outlives_the_short_memory_of_a_failure() {
    let brief = Record { expires_at: at(60), ..record(failed(FailureClass::Terminal, Some(answer(422)))) };
    let after = written(&brief, release(&brief, "ops", at(9), &policy()).expect("not running"), 9);
    assert_eq!(after.expires_at, at(9).plus(policy().open_ttl()));
    assert!(!after.ambiguous, "a definite failure stays one");
}

#[test]
fn what_an_operator_calls_done_is_replayed() {
    let held = Record { request: Some(Bytes::from_static(b"kept")), ..unknown() };
    let after = written(&held, succeed(&held, answer(201), "ops", at(9), &policy()).expect("not running"), 9);
    assert_eq!((after.expires_at, after.request.is_none()), (at(9).plus(policy().window), true));
    assert!(matches!(decide(&after, 1, 10, &policy()), Decision::Replay { response, .. } if response == answer(201)));
    assert!(matches!(decide(&after, 2, 10, &policy()), Decision::Mismatch { .. }));
}

#[test]
fn a_redelivery_needs_a_kept_request_and_is_a_further_attempt() {
    let held = unknown();
    assert_eq!(redeliver(&held, "ops", at(9)), Err(Refusal::NoRequest));
    let held = Record { request: Some(Bytes::from_static(b"kept")), ..held };
    let plan = redeliver(&held, "ops", at(9)).expect("a kept request");
    assert_eq!((plan.attempt, plan.ambiguous, plan.history.len()), (2, true, 2));
    assert!(plan.expect.holds(Some(&held), at(9)));

    let unsent = Record { state: failed(FailureClass::Unsent, None), ambiguous: false, ..held };
    let plan = redeliver(&unsent, "ops", at(9)).expect("a kept request");
    assert_eq!((plan.attempt, plan.ambiguous), (1, false), "what was never sent is no attempt");
}

#[test]
fn nothing_is_done_to_a_success_or_to_a_forward_under_way() {
    let done = record(State::Succeeded { response: answer(200) });
    let runs = Record { request: Some(Bytes::from_static(b"kept")), ..record(State::Processing) };
    let refusals = |record: &Record, second| {
        [
            release(record, "ops", at(second), &policy()).err(),
            succeed(record, answer(200), "ops", at(second), &policy()).err(),
            redeliver(record, "ops", at(second)).err(),
        ]
    };
    assert_eq!(refusals(&done, 9), [Some(Refusal::Succeeded); 3]);
    assert_eq!(refusals(&runs, 29), [Some(Refusal::Running { until: at(30) }); 3]);
    assert_eq!(refusals(&runs, 30), [None; 3], "its owner has vanished");
    let (expect, _) = release(&runs, "ops", at(30), &policy()).expect("the lease is over");
    assert!(!expect.holds(Some(&runs), at(29)), "a lease renewed a moment ago is not overrun");
}

/// Releasing again and again keeps a bounded history, the newest steps of it.
#[test]
fn a_history_is_bounded() {
    let mut held = unknown();
    for turn in 0..50 {
        let owner = Owner(format!("delivery-{turn}"));
        held = written(&held, release(&held, "ops", at(turn), &policy()).expect("not running"), turn);
        let print: Fingerprint = held.fingerprint.clone();
        let plugin = PluginVersion::default();
        let me = Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "stripe" };
        let Decision::Claim(plan) = on_request(Some(&held), &me, at(turn), &policy()) else { panic!("not claimed") };
        let claimed = plan.draft(&me, 0, &policy()).stamp(at(turn), Some(&held));
        held = Record { state: unknown().state, lease_until: at(turn), finished_at: Some(at(turn)), ..claimed };
    }
    assert_eq!(held.history.len(), history::STEPS_MAX);
    assert_eq!(held.history.last(), Some(&Step::Operator { verb: Verb::Release, by: "ops".into(), at: at(49) }));
    assert_eq!(held.started_at.since(at(0)), Duration::from_secs(49));
}
