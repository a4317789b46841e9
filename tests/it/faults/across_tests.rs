//! The rules across keys: each is broken in a log that is good otherwise, and named.

use super::checker_tests::{broken, good, received};
use super::log::{Delivered, Logged, Process, Received, Resources, Run, counted, counters};

/// The good run with its deliveries' ids, and the lines and counters of its one process.
fn logged() -> Run {
    let mut run = good();
    let line = |event: &str, decision: &str, fingerprint: &str| Logged {
        event: event.into(),
        key: "k".into(),
        decision: decision.into(),
        fingerprint: fingerprint.into(),
        state_after: "succeeded".into(),
    };
    for (told, event) in run.delivered.iter_mut().zip(["e7", "d2", "d3"]) {
        told.event = event.into();
    }
    run.processes.push(Process {
        logged: vec![line("e7", "first", "f"), line("d2", "fingerprint-mismatch", "g"), line("d3", "replay", "f")],
        lines: [("n".to_owned(), 3)].into(),
        counters: [("n".to_owned(), 3)].into(),
        ..Process::default()
    });
    run
}

fn promises(change: impl FnOnce(&mut Run)) -> Vec<&'static str> {
    let mut run = logged();
    change(&mut run);
    broken(&run)
}

#[test]
fn a_good_run_with_lines_passes() {
    assert_eq!(promises(|_| {}), Vec::<&str>::new());
}

#[test]
fn no_tenants_canary_gets_to_another() {
    let both = || vec!["k".to_owned(), "u".to_owned()];
    assert_eq!(promises(|run| run.delivered[0].canaries = both()), ["I7"]);
    assert_eq!(promises(|run| run.delivered[1].canaries = vec!["u".into()]), ["I7"], "a refusal too");
    assert_eq!(promises(|run| run.delivered[2].canaries.clear()), ["I7"], "a success without any was not searched");
    assert_eq!(promises(|run| run.received[0].canaries = both()), ["I7"]);
    assert_eq!(promises(|run| run.processes[0].canaries = vec!["k".into()]), ["I7"], "not even its own, in a log");
}

#[test]
fn a_delivery_is_one_plain_request_of_its_bytes() {
    assert_eq!(promises(|run| run.received[0].misframed.push("two lengths".into())), ["I8"]);
    let again = |run: &mut Run| {
        run.received.push(Received { event: "e7".into(), processed: false, ..received(4, 2, 9) });
    };
    assert_eq!(promises(again), ["I8"]);
    assert_eq!(promises(|run| run.received[0].event = "d2".into()), ["I8"], "d2 had another body");
    let other_key =
        |run: &mut Run| run.received.push(Received { processed: false, key: "k2".into(), ..received(4, 1, 9) });
    assert!(promises(other_key).contains(&"I8"), "nobody sent that key");
}

#[test]
fn what_is_used_comes_back() {
    let warm = Resources { rss_kib: 100 << 10, fds: 50, threads: 10, processing: 0, ready: true };
    let used = |after: Resources| promises(|run| run.processes[0].used = Some((warm, after)));
    assert_eq!(used(warm), Vec::<&str>::new());
    assert_eq!(used(Resources { rss_kib: 160 << 10, ..warm }), ["I10"]);
    assert_eq!(used(Resources { fds: 90, ..warm }), ["I10"]);
    assert_eq!(used(Resources { threads: 30, ..warm }), ["I10"]);
    assert_eq!(used(Resources { processing: 1, ..warm }), ["I9"]);
    assert_eq!(used(Resources { ready: false, ..warm }), ["I9"]);
    let amplified = |run: &mut Run| {
        run.received.extend((10..20).map(|at| Received { processed: false, ..received(4, 2, at) }));
    };
    assert_eq!(promises(amplified), ["I10"]);
}

#[test]
fn the_same_bytes_are_read_the_same() {
    assert_eq!(promises(|run| run.processes[0].logged[2].fingerprint = "g".into()), ["I11"]);
    let elsewhere = |run: &mut Run| run.processes[0].logged[2].key = "k2".into();
    assert_eq!(promises(elsewhere), ["I11"]);
    let unread = |run: &mut Run| run.processes[0].logged[2].fingerprint.clear();
    assert_eq!(promises(unread), Vec::<&str>::new(), "a line without one says nothing of it");
}

#[test]
fn each_answer_has_its_line() {
    assert_eq!(promises(|run| drop(run.processes[0].logged.pop())), ["I12"]);
    assert_eq!(promises(|run| run.processes[0].logged[2].decision = "first".into()), ["I12"]);
    let twice = |run: &mut Run| {
        let line = run.processes[0].logged[2].clone();
        run.processes[0].logged.push(line);
    };
    assert_eq!(promises(twice), ["I12"]);
    let refused = |run: &mut Run| {
        run.delivered
            .insert(1, Delivered { event: "d4".into(), ..super::checker_tests::delivered(0, 8, 503, "first", "") });
        run.processes[0].logged.push(Logged {
            event: "d4".into(),
            decision: "upstream-failed".into(),
            ..Logged::default()
        });
    };
    assert_eq!(promises(refused), Vec::<&str>::new());
}

#[test]
fn counters_are_the_lines() {
    let counter = |value: u64, killed: bool| {
        promises(|run| {
            run.processes[0].killed = killed;
            run.processes[0].counters.insert("n".into(), value);
        })
    };
    assert_eq!(counter(4, false), ["I12"]);
    assert_eq!(counter(2, false), ["I12"]);
    assert_eq!(counter(4, true), ["I12"], "what is counted has a line");
    assert_eq!(counter(2, true), Vec::<&str>::new(), "it went on counting until it was killed");
    let unsaid = |run: &mut Run| run.processes[0].counters.extend([("onceward_lease_lost_total".into(), 1)]);
    assert_eq!(promises(unsaid), ["I12"]);
}

/// Lines and a page as a gateway writes them.
#[test]
fn lines_and_pages_are_counted_alike() {
    let log = r#"
{"tenant":"t","route":"pay","decision":"replay","target":"onceward::event"}
{"tenant":"t","route":"pay","decision":"in-flight","target":"onceward::event"}
{"kind":"lease_lost","tenant":"t","route":"pay","target":"onceward::audit"}
{"kind":"window_reset","target":"onceward::audit"}
{"kind":"operator","target":"onceward::audit"}"#;
    let page = r#"
# TYPE onceward_requests_total counter
onceward_requests_total{tenant="t",route="pay",outcome="replay"} 1
onceward_requests_total{tenant="t",route="pay",outcome="in-flight"} 1
onceward_replays_total{tenant="t",route="pay"} 1
onceward_in_flight_conflicts_total{tenant="t",route="pay"} 1
onceward_lease_lost_total{tenant="t",route="pay"} 1
onceward_finalise_failures_total{tenant="t",route="pay"} 0
onceward_window_resets_total 1
onceward_takeovers_total{tenant="t",route="pay"} 5"#;
    assert_eq!(counted(log), counters(page));
    assert_eq!(counted(log).len(), 6);
}
