//! The machine against its table, then random histories of one key against the promises that hold over all of them.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::machine::Me;
use super::policy::{
    FinalStatuses, InFlight, KeepRequest, OnFailed, OnMissingKey, OnPluginFailure, OnStoreDown, OnUnknown, Replay,
    ReplayBody,
};
use super::record::{FailureClass, Status, UnknownReason};
use super::*;
use crate::event::{Fingerprint, PluginVersion, StoredBody, StoredResponse, Timestamp};

const LEASE: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_hours(720);

fn policy() -> Policy {
    Policy {
        window: WINDOW,
        lease: LEASE,
        missing_key: OnMissingKey::Reject,
        in_flight: InFlight { wait: Duration::from_secs(2), status: 409 },
        mismatch_status: 409,
        unknown: OnUnknown::Retry,
        failed: OnFailed::Retry,
        max_attempts: 3,
        body_alias: false,
        failed_window: Duration::from_mins(30),
        final_statuses: FinalStatuses::parse(["2xx"]).unwrap(),
        store_down: OnStoreDown::Reject,
        plugin_failure: OnPluginFailure::Reject,
        keep_request: KeepRequest::Never,
        replay: Replay {
            body: ReplayBody::Full,
            max_body: 1024,
            drop_headers: vec![],
            redact: vec![],
            resource_id: String::new(),
        },
    }
}

fn plugin(version: &str) -> PluginVersion {
    PluginVersion { name: "json".into(), version: version.into() }
}

/// A fingerprint over one field, whose digest is `of` everywhere.
fn fingerprint(fields: &[(&str, u8)]) -> Fingerprint {
    let mut digest = [0; 32];
    for (at, (_, of)) in fields.iter().enumerate() {
        digest[at] = *of;
    }
    let fields = fields.iter().map(|(name, of)| ((*name).to_owned(), [*of; 16])).collect();
    Fingerprint { key_id: "k1".into(), digest, fields }
}

fn answer(status: u16) -> StoredResponse {
    StoredResponse { status, headers: vec![], body: StoredBody::Full(Bytes::from_static(b"done")) }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_790_000_000_000_000 + seconds * 1_000_000)
}

/// A record that was claimed at 0 by `first` with the fingerprint 1.
fn record(state: State) -> Record {
    Record {
        state,
        fingerprint: fingerprint(&[("/amount", 1)]),
        owner: Owner("first".into()),
        fence: 7,
        attempt: 1,
        started_at: at(0),
        finished_at: None,
        lease_until: at(30),
        expires_at: at(1_000_000),
        released: false,
        ambiguous: false,
        error: None,
        plugin: plugin("1"),
        route: "stripe".into(),
        history: Vec::new(),
        request: None,
    }
}

fn failed(class: FailureClass, response: Option<StoredResponse>) -> State {
    State::Failed { class, response }
}

/// What a delivery with this amount gets at this second.
fn decide(seen: &Record, amount: u8, second: u64, policy: &Policy) -> Decision {
    let (owner, print, plugin) = (Owner("second".into()), fingerprint(&[("/amount", amount)]), plugin("1"));
    on_request(
        Some(seen),
        &Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "stripe" },
        at(second),
        policy,
    )
}

fn claims(decision: &Decision) -> Option<(u32, bool)> {
    if let Decision::Claim(plan) = decision { Some((plan.attempt, plan.ambiguous)) } else { None }
}

fn is_mismatch(decision: &Decision) -> bool {
    matches!(decision, Decision::Mismatch { fields } if fields == &["/amount"])
}

#[test]
fn nothing_there_is_claimed_as_the_first_attempt() {
    let (owner, print, plugin) = (Owner("o".into()), fingerprint(&[]), plugin("1"));
    let decision = on_request(
        None,
        &Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "stripe" },
        at(0),
        &policy(),
    );
    assert_eq!(
        decision,
        Decision::Claim(Plan { expect: Expect::Absent, attempt: 1, ambiguous: false, history: Vec::new() })
    );
}

#[test]
fn a_running_event_is_busy_until_its_lease_ends_and_then_unknown() {
    let seen = record(State::Processing);
    assert_eq!(decide(&seen, 1, 29, &policy()), Decision::Busy { until: at(30) });
    assert!(is_mismatch(&decide(&seen, 2, 29, &policy())), "at once, without waiting");
    assert_eq!(claims(&decide(&seen, 1, 30, &policy())), Some((2, true)));
    assert!(is_mismatch(&decide(&seen, 2, 30, &policy())));
    let hold = Policy { unknown: OnUnknown::Hold, ..policy() };
    assert_eq!(decide(&seen, 1, 30, &hold), Decision::Held { reason: UnknownReason::LeaseOver });
}

#[test]
fn a_takeover_needs_the_lease_to_be_over_still() {
    let Decision::Claim(plan) = decide(&record(State::Processing), 1, 30, &policy()) else { panic!() };
    let mut renewed = record(State::Processing);
    assert!(plan.expect.holds(Some(&renewed), at(30)));
    renewed.lease_until = at(60);
    assert!(!plan.expect.holds(Some(&renewed), at(30)), "the owner renewed it a moment ago");
}

#[test]
fn a_success_is_replayed_to_its_twins_and_never_to_others() {
    let seen = record(State::Succeeded { response: answer(201) });
    let replay = Decision::Replay { response: answer(201), expires_at: at(1_000_000), compared: true };
    assert_eq!(decide(&seen, 1, 900_000, &policy()), replay);
    assert!(is_mismatch(&decide(&seen, 2, 1, &policy())));
}

#[test]
fn a_failure_is_tried_again_or_replayed_as_the_route_says() {
    let seen = record(failed(FailureClass::Transient, Some(answer(503))));
    assert_eq!(claims(&decide(&seen, 1, 1, &policy())), Some((2, false)));
    assert!(is_mismatch(&decide(&seen, 2, 1, &policy())));
    let replay = Policy { failed: OnFailed::Replay, ..policy() };
    assert!(matches!(decide(&seen, 1, 1, &replay), Decision::Replay { response, .. } if response.status == 503));
    let dead_letter = Policy { failed: OnFailed::DeadLetter, ..policy() };
    assert_eq!(claims(&decide(&seen, 1, 1, &dead_letter)), Some((2, false)));
    let last = Record { attempt: 3, ..seen };
    assert_eq!(decide(&last, 1, 1, &dead_letter), Decision::Held { reason: UnknownReason::Exhausted });
}

#[test]
fn what_was_never_sent_binds_nobody_and_counts_no_attempt() {
    let unsent = record(failed(FailureClass::Unsent, None));
    assert_eq!(claims(&decide(&unsent, 2, 1, &policy())), Some((1, false)), "whatever the fingerprint");
    let second = Record { attempt: 2, ..unsent.clone() };
    assert!(is_mismatch(&decide(&second, 2, 1, &policy())), "the first attempt was sent and answered");
    assert_eq!(claims(&decide(&second, 1, 1, &policy())), Some((2, false)));
    let ambiguous = Record { ambiguous: true, attempt: 2, ..unsent.clone() };
    assert!(is_mismatch(&decide(&ambiguous, 2, 1, &policy())), "an earlier attempt may have reached the upstream");
    assert_eq!(claims(&decide(&ambiguous, 1, 1, &policy())), Some((2, true)));
    let released = Record { released: true, ..ambiguous };
    assert_eq!(claims(&decide(&released, 2, 1, &policy())), Some((2, true)), "the operator gave it free");
}

#[test]
fn an_unknown_outcome_waits_for_its_lease_or_for_a_person() {
    let seen = record(State::Unknown { reason: UnknownReason::Timeout });
    assert_eq!(decide(&seen, 1, 29, &policy()), Decision::Busy { until: at(30) });
    assert_eq!(claims(&decide(&seen, 1, 30, &policy())), Some((2, true)));
    assert!(is_mismatch(&decide(&seen, 2, 30, &policy())));
    let hold = Policy { unknown: OnUnknown::Hold, ..policy() };
    assert_eq!(decide(&seen, 1, 1_000, &hold), Decision::Held { reason: UnknownReason::Timeout });
    let exhausted = record(State::Unknown { reason: UnknownReason::Exhausted });
    assert_eq!(decide(&exhausted, 1, 1_000, &policy()), Decision::Held { reason: UnknownReason::Exhausted });
}

#[test]
fn an_own_claim_whose_reply_was_lost_is_found_again() {
    let seen = record(State::Processing);
    let (owner, print, plugin) = (seen.owner.clone(), fingerprint(&[("/amount", 1)]), plugin("1"));
    let me = Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "stripe" };
    assert_eq!(on_request(Some(&seen), &me, at(1), &policy()), Decision::Own);
}

#[test]
fn another_version_of_the_plugin_compares_only_what_both_name() {
    let seen = record(State::Succeeded { response: answer(200) });
    let decide = |fields: &[(&str, u8)]| {
        let (owner, print, plugin) = (Owner("second".into()), fingerprint(fields), plugin("2"));
        on_request(
            Some(&seen),
            &Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "stripe" },
            at(1),
            &policy(),
        )
    };
    assert!(matches!(decide(&[("/amount", 1), ("/currency", 9)]), Decision::Replay { compared: true, .. }));
    assert!(is_mismatch(&decide(&[("/amount", 2), ("/currency", 9)])));
    assert!(matches!(decide(&[("/total", 2)]), Decision::Replay { compared: false, .. }), "nothing in common: flagged");
}

#[test]
fn outcomes_leave_what_the_table_says() {
    let claim = Claim::of(&record(State::Processing));
    let draft = |outcome, policy: &Policy| on_outcome(&claim, outcome, policy);
    let ok = draft(Outcome::Answered(answer(200)), &policy());
    assert_eq!((ok.state.status(), ok.ttl), (Status::Succeeded, Ttl::Exactly(WINDOW)));
    let refused = draft(Outcome::Answered(answer(422)), &policy());
    assert_eq!(refused.state, failed(FailureClass::Terminal, Some(answer(422))));
    assert_eq!(refused.ttl, Ttl::Exactly(Duration::from_mins(30)));
    for status in [408, 425, 429, 500, 503] {
        let draft = draft(Outcome::Answered(answer(status)), &policy());
        assert_eq!(draft.state, failed(FailureClass::Transient, Some(answer(status))), "never kept as a success");
    }
    let unsent = draft(Outcome::Unsent { error: "refused".into() }, &policy());
    assert_eq!(unsent.state, failed(FailureClass::Unsent, None));
    let ambiguous = draft(Outcome::Ambiguous { reason: UnknownReason::Broken, error: "reset".into() }, &policy());
    assert_eq!((ambiguous.state.status(), ambiguous.ambiguous, ambiguous.lease), (Status::Unknown, true, None));
    assert_eq!(ambiguous.ttl, Ttl::AtLeast(WINDOW));
    let last = Claim { attempt: 3, ..claim.clone() };
    let dead_letter = Policy { failed: OnFailed::DeadLetter, ..policy() };
    let exhausted = on_outcome(&last, Outcome::Answered(answer(500)), &dead_letter);
    assert_eq!(exhausted.state, State::Unknown { reason: UnknownReason::Exhausted });
}

/// One step of a history: somebody does something, some seconds later.
#[derive(Clone, Debug)]
enum Step {
    Deliver { who: u8, amount: u8 },
    Heartbeat { claim: usize },
    Finish { claim: usize, outcome: Outcome },
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let outcome = prop_oneof![
        prop::sample::select(vec![200, 201, 404, 429, 500]).prop_map(|status| Outcome::Answered(answer(status))),
        Just(Outcome::Unsent { error: String::new() }),
        Just(Outcome::Ambiguous { reason: UnknownReason::Timeout, error: String::new() }),
    ];
    let step = prop_oneof![
        3 => (any::<u8>(), 1..3_u8).prop_map(|(who, amount)| Step::Deliver { who, amount }),
        1 => (0..8_usize).prop_map(|claim| Step::Heartbeat { claim }),
        2 => (0..8_usize, outcome).prop_map(|(claim, outcome)| Step::Finish { claim, outcome }),
    ];
    prop::collection::vec((0..40_u64, step), 1..60)
}

/// One key in a store that keeps its promises, and the claims that were ever won on it.
#[derive(Default)]
struct Key {
    standing: Option<Record>,
    now: u64,
    claims: Vec<Claim>,
}

impl Key {
    fn swap(&mut self, expect: Expect, draft: &Draft) -> bool {
        let now = at(self.now);
        let holds = expect.holds(self.standing.as_ref(), now);
        if holds {
            self.standing = Some(draft.stamp(now, self.standing.as_ref()));
        }
        holds
    }
}

proptest! {
    /// Whatever happens to one key: fences only grow, a kept answer never changes, a second forward begins only after the first
    /// one's lease ended or its failure was written, no delivery gets another event's answer, and a stale owner writes nothing.
    #[test]
    fn no_history_breaks_a_promise(history in steps(), hold in any::<bool>(), failed in 0..3_u8) {
        let policy = Policy {
            unknown: if hold { OnUnknown::Hold } else { OnUnknown::Retry },
            failed: [OnFailed::Retry, OnFailed::Replay, OnFailed::DeadLetter][usize::from(failed)],
            ..policy()
        };
        let plugin = plugin("1");
        let mut key = Key::default();
        for (seconds, step) in history {
            key.now += seconds;
            let before = key.standing.clone();
            match step {
                Step::Deliver { who, amount } => {
                    let (owner, print) = (Owner(format!("{who}-{}", key.now)), fingerprint(&[("/amount", amount)]));
                    let me = Me { owner: &owner, fingerprint: &print, plugin: &plugin, route: "stripe" };
                    match on_request(before.as_ref(), &me, at(key.now), &policy) {
                        Decision::Claim(plan) => {
                            if let Some(seen) = &before {
                                prop_assert!(!matches!(seen.state, State::Succeeded { .. }), "a success is never claimed again");
                                let live = seen.state == State::Processing && at(key.now) < seen.lease_until;
                                prop_assert!(!live, "two live claims");
                                prop_assert!(!hold || !matches!(seen.state, State::Processing | State::Unknown { .. }), "held means held");
                            }
                            prop_assert!(key.swap(plan.expect, &plan.draft(&me, 0, &policy)), "nobody came between");
                            let record = key.standing.clone().unwrap();
                            prop_assert!(key.claims.iter().all(|claim| claim.fence < record.fence), "fences grow");
                            key.claims.push(Claim::of(&record));
                        }
                        Decision::Replay { .. } => {
                            prop_assert_eq!(&before.as_ref().unwrap().fingerprint, &print, "another event's answer");
                        }
                        Decision::Mismatch { .. } => prop_assert_ne!(&before.as_ref().unwrap().fingerprint, &print),
                        Decision::Busy { .. } | Decision::Held { .. } | Decision::Own => {}
                    }
                }
                Step::Heartbeat { claim } => {
                    if let Some(claim) = key.claims.get(claim).cloned() {
                        let beat = claim.heartbeat(&policy);
                        if key.swap(claim.expect(Status::Processing, Lease::Live), &beat) {
                            prop_assert_eq!(before.as_ref().unwrap().fence, claim.fence);
                            prop_assert_eq!(key.standing.as_ref().unwrap().revision(), before.as_ref().unwrap().revision());
                        }
                    }
                }
                Step::Finish { claim, outcome } => {
                    if let Some(claim) = key.claims.get(claim).cloned() {
                        let draft = on_outcome(&claim, outcome, &policy);
                        if key.swap(claim.expect(Status::Processing, Lease::Any), &draft) {
                            prop_assert_eq!(before.as_ref().unwrap().fence, claim.fence, "a stale owner wrote");
                        }
                    }
                }
            }
            if let (Some(Record { state: State::Succeeded { response }, expires_at, .. }), Some(after)) = (&before, &key.standing) {
                prop_assert_eq!(&after.state, &State::Succeeded { response: response.clone() }, "a kept answer changed");
                prop_assert_eq!(*expires_at, after.expires_at, "the window moved");
            }
        }
    }

    #[test]
    fn final_statuses_are_what_the_entries_say(status in 200..600_u16) {
        let finals = FinalStatuses::parse(["2xx", "4xx except 408 425 429", "599"]).unwrap();
        let expect = (200..300).contains(&status)
            || ((400..500).contains(&status) && ![408, 425, 429].contains(&status))
            || status == 599;
        prop_assert_eq!(finals.contains(status), expect);
    }
}

#[test]
fn an_entry_that_says_nothing_is_refused() {
    for entry in ["", "2x", "1xx", "6xx", "abc", "4xx except", "4xx except 500", "4xx except x", "99", "2xx,3xx"] {
        let parsed = FinalStatuses::parse([entry]);
        assert!(parsed.is_err(), "{entry:?}");
    }
}
