//! The checker itself: a good run passes, and each broken promise is named.

use super::checker::check;
use super::log::{Audited, Delivered, Kind, Logged, Loss, Process, Received, Run, audited};

pub fn delivered(variant: u32, at: u64, status: u16, idempotency: &str, answer: &str) -> Delivered {
    Delivered {
        key: "k".into(),
        variant,
        sent_at: at,
        told_at: at + 5,
        status: Some(status),
        idempotency: idempotency.into(),
        kept: status == 200,
        answer: answer.into(),
        body: format!("body {variant}"),
        event: String::new(),
        canaries: if status == 200 { vec!["k".into()] } else { Vec::new() },
    }
}

pub fn received(at: u64, attempt: u32, fence: u64) -> Received {
    Received {
        key: "k".into(),
        at,
        attempt,
        fence,
        event: format!("e{fence}"),
        body: "body 0".into(),
        processed: true,
        canaries: vec!["k".into()],
        misframed: Vec::new(),
    }
}

pub fn report(kind: Kind, fence: u64) -> Audited {
    Audited { kind, key: "k".into(), event: format!("e{fence}"), fence }
}

/// First answer, one replay, and a mismatch that was refused.
pub fn good() -> Run {
    Run {
        delivered: vec![
            delivered(0, 0, 200, "first", "a"),
            delivered(1, 10, 409, "mismatch", "m"),
            delivered(0, 20, 200, "replay", "a"),
        ],
        received: vec![received(3, 1, 7)],
        ..Run::default()
    }
}

/// The promises that a run breaks.
pub fn broken(run: &Run) -> Vec<&'static str> {
    check(run).1.into_iter().map(|violation| violation.promise).collect()
}

#[test]
fn a_good_run_has_no_violation() {
    let (figures, violations) = check(&good());
    assert_eq!(violations, []);
    assert_eq!((figures.events, figures.deliveries, figures.forwards, figures.lost), (1, 3, 1, 0));
}

#[test]
fn a_second_effect_needs_a_report() {
    let mut run = good();
    run.received.push(received(4, 1, 9));
    assert_eq!(broken(&run), ["I1"]);
    assert_eq!(check(&run).0.unreported_extras, 1);
    run.audited.push(report(Kind::LeaseLost, 9));
    assert_eq!(broken(&run), ["I1"], "no lost lease explains two first attempts");
    run.received[1] = received(4, 2, 9);
    assert_eq!(broken(&run), Vec::<&str>::new(), "the second one says so");
}

#[test]
fn an_emptied_store_is_a_report_for_every_key() {
    let mut run = good();
    run.received.push(received(4, 1, 9));
    run.losses.push(Loss { from: 0, until: 10, emptied: true });
    assert_eq!(broken(&run), ["I12"], "nobody says that it was");
    run.audited.push(Audited { key: String::new(), ..report(Kind::WindowReset, 0) });
    assert_eq!(broken(&run), Vec::<&str>::new());
    run.received.push(received(5, 1, 10));
    assert_eq!(broken(&run), ["I1"], "one effect more for one loss");
}

/// What a failover may lose is what was written while it went on, and nothing from before.
#[test]
fn a_failover_excuses_only_what_it_lost() {
    let mut run = good();
    run.received.push(received(2_000_500, 1, 9));
    run.losses.push(Loss { from: 0, until: 100, emptied: false });
    assert_eq!(broken(&run), Vec::<&str>::new());
    run.losses[0] = Loss { from: 2_000_000, until: 2_000_100, emptied: false };
    assert_eq!(broken(&run), ["I2"], "the success was written long before");
    run.losses[0] = Loss { from: 9_000_000, until: 9_000_100, emptied: false };
    assert_eq!(broken(&run), ["I1", "I2"], "and the second effect came long before");
}

#[test]
fn an_outcome_is_written_once() {
    let mut run = good();
    run.received.push(received(4, 2, 9));
    run.audited.push(report(Kind::SecondForward, 9));
    run.delivered.insert(1, delivered(0, 4, 200, "first", "a"));
    assert_eq!(broken(&run), ["I6"]);
    run.delivered[1].kept = false;
    assert_eq!(broken(&run), Vec::<&str>::new(), "the other one's stands");
}

#[test]
fn a_success_is_kept_or_counted() {
    let mut run = good();
    run.delivered[0] = Delivered { kept: false, event: "e7".into(), ..delivered(0, 0, 200, "first", "a") };
    let line = |state_after: &str| Logged {
        event: "e7".into(),
        key: "k".into(),
        decision: "first".into(),
        state_after: state_after.into(),
        ..Logged::default()
    };
    let written = |state_after: &str| vec![Process { logged: vec![line(state_after)], ..Process::default() }];
    run.processes = written("succeeded");
    assert_eq!(broken(&run), ["I2"]);
    run.processes = written("processing");
    assert_eq!(broken(&run), Vec::<&str>::new(), "it may have been written later");
    run.received.push(received(15, 2, 9));
    run.audited.push(report(Kind::SecondForward, 9));
    assert_eq!(broken(&run), ["I2"], "it was not");
    run.processes[0].killed = true;
    assert_eq!(broken(&run), Vec::<&str>::new(), "it could not");
    run.processes[0].killed = false;
    run.audited.push(report(Kind::FinaliseFailure, 7));
    assert_eq!(broken(&run), Vec::<&str>::new(), "it is counted");
}

#[test]
fn a_success_needs_an_effect_before_it() {
    let mut run = good();
    run.received[0].at = 1_000;
    assert_eq!(broken(&run), ["I2", "I2", "I2"], "either success, and the forward after them");
    let mut run = good();
    run.received[0].body = "another".into();
    assert_eq!(broken(&run), ["I2", "I2", "I8"]);
}

#[test]
fn a_kept_success_is_never_forwarded_again() {
    let mut run = good();
    run.received.push(received(15, 2, 9));
    assert_eq!(broken(&run), ["I1", "I2", "I12"]);
    run.audited.push(report(Kind::SecondForward, 9));
    assert_eq!(broken(&run), ["I2"]);
    run.delivered[0].kept = false;
    assert_eq!(broken(&run), Vec::<&str>::new(), "nobody said that it was kept");
}

#[test]
fn every_event_arrives() {
    let mut run = good();
    run.delivered = vec![delivered(0, 0, 503, "rejected", "")];
    run.received.clear();
    assert_eq!(broken(&run), ["I3", "I9"]);
    assert_eq!(check(&run).0.lost, 1);
}

#[test]
fn replays_are_equal_and_were_given() {
    let mut run = good();
    run.delivered.push(delivered(0, 30, 200, "replay", "b"));
    assert_eq!(broken(&run), ["I4", "I4"]);
    let mut run = good();
    run.delivered[2].answer = "b".into();
    assert_eq!(broken(&run), ["I4"]);
}

#[test]
fn another_event_gets_nothing() {
    let mut run = good();
    run.received.push(Received { body: "body 1".into(), processed: false, ..received(4, 1, 9) });
    assert_eq!(broken(&run), ["I5"]);
    let mut run = good();
    run.delivered[1] = Delivered { body: "body 0".into(), ..delivered(1, 10, 200, "replay", "a") };
    assert_eq!(broken(&run), ["I5"]);
}

#[test]
fn fences_rise_or_are_reported_stale() {
    let mut run = good();
    run.received.push(Received { processed: false, event: "e8".into(), ..received(4, 2, 7) });
    assert_eq!(broken(&run), ["I6"], "equal is not higher");
    run.audited.push(report(Kind::LeaseLost, 8));
    assert_eq!(broken(&run), ["I6"], "another fence's report");
    run.audited.push(report(Kind::LeaseLost, 7));
    assert_eq!(broken(&run), Vec::<&str>::new());
}

#[test]
fn nobody_is_told_to_come_again_for_ever() {
    let mut run = good();
    run.delivered.push(delivered(0, 40, 409, "in-flight", ""));
    assert_eq!(broken(&run), ["I9"]);
}

#[test]
fn a_first_attempt_is_no_second_forward() {
    let mut run = good();
    run.audited.push(report(Kind::SecondForward, 7));
    assert_eq!(broken(&run), ["I12"]);
}

/// Lines as the gateways write them.
#[test]
fn reports_are_read_from_the_log() {
    let log = r#"
{"level":"WARN","target":"onceward::audit","kind":"finalise_failure","idempotency_key":"t:pay:1","event":"e","fence":7}
{"level":"WARN","target":"onceward::audit","kind":"second_forward","idempotency_key":"t:pay:2","event":"e","fence":8}
{"level":"WARN","target":"onceward::audit","kind":"lease_lost","idempotency_key":"t:pay:3","event":"e","fence":9}
no json
{"level":"INFO","message":"something else"}"#;
    let found: Vec<_> = audited(log).into_iter().map(|audited| (audited.kind, audited.key, audited.fence)).collect();
    let expected = [(Kind::FinaliseFailure, "1", 7), (Kind::SecondForward, "2", 8), (Kind::LeaseLost, "3", 9)];
    assert_eq!(found, expected.map(|(kind, key, fence)| (kind, format!("t:pay:{key}"), fence)));
}
