//! What of a run is no matter of one key: tenants, framing, resources, determinism, and that counters, log and audit agree.

use std::collections::{BTreeMap, BTreeSet};

use super::checker::Violation;
use super::log::{Kind, Process, Resources, Run};

/// How far above its warm baseline a process may stay, in hundredths, and what it may hold besides: connections that idle, and what
/// the allocator and the store's client keep for the next burst.
const ABOVE_PERCENT: u64 = 5;
const RSS_KIB_MORE: u64 = 8 << 10;
const FDS_MORE: u64 = 16;
const THREADS_MORE: u64 = 8;

/// Checks I7, I8 and I10 to I12, and of I9 that nothing is left at work.
pub fn check(run: &Run) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut broken =
        |promise, key: &str, what: String| violations.push(Violation { promise, key: key.to_owned(), what });
    isolation(run, &mut broken);
    framing(run, &mut broken);
    determinism(run, &mut broken);
    lines(run, &mut broken);
    for (at, process) in run.processes.iter().enumerate() {
        counters(at, process, &mut broken);
        if let Some((before, after)) = process.used {
            resources(at, before, after, &mut broken);
        }
    }
    resets(run, &mut broken);
    violations
}

fn tenant(key: &str) -> &str {
    key.split(':').next().unwrap_or_default()
}

/// I7: what a tenant is told and what is forwarded for it carries its canary and no other; logs and metrics carry none.
fn isolation(run: &Run, broken: &mut impl FnMut(&'static str, &str, String)) {
    let mut only = |key: &str, what: &str, canaries: &[String]| {
        if canaries != [tenant(key)] {
            broken("I7", key, format!("{what} carries the canaries of {canaries:?}"));
        }
    };
    for told in &run.delivered {
        let is_success = told.status.is_some_and(|status| (200..300).contains(&status));
        if is_success || !told.canaries.is_empty() {
            only(&told.key, "an answer", &told.canaries);
        }
    }
    for received in &run.received {
        only(&received.key, "a request at the upstream", &received.canaries);
    }
    for (at, process) in run.processes.iter().enumerate().filter(|(_, process)| !process.canaries.is_empty()) {
        broken(
            "I7",
            "",
            format!("the log or the metrics of process {at} carry the canaries of {:?}", process.canaries),
        );
    }
}

/// I8: each request at the upstream is written the one plain way, is the only one of its delivery, and has a body that was sent
/// under its key; where the delivery is known, the very body of it.
fn framing(run: &Run, broken: &mut impl FnMut(&'static str, &str, String)) {
    let mut sent: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut by_event = BTreeMap::new();
    for told in &run.delivered {
        sent.entry(&told.key).or_default().insert(&told.body);
        if !told.event.is_empty() {
            by_event.insert(told.event.as_str(), told);
        }
    }
    let mut events = BTreeSet::new();
    for received in &run.received {
        if !received.misframed.is_empty() {
            broken("I8", &received.key, format!("{}: {:?}", received.event, received.misframed));
        }
        if !events.insert(received.event.as_str()) {
            broken("I8", &received.key, format!("{} reached the upstream twice", received.event));
        }
        let told = by_event.get(received.event.as_str());
        let is_its = told.is_none_or(|told| told.key == received.key && told.body == received.body);
        let was_sent = sent.get(received.key.as_str()).is_some_and(|bodies| bodies.contains(received.body.as_str()));
        if !is_its || !was_sent {
            broken("I8", &received.key, format!("{} is not what was sent", received.event));
        }
    }
}

/// Whether a process uses no more than it did when it was warm, and is done.
pub fn is_back(before: Resources, after: Resources) -> bool {
    let mut back = true;
    resources(0, before, after, &mut |_, _, _| back = false);
    back
}

/// I10: what a process uses comes back to what it used when it was warm. I9: nothing is at work any more, and it may get traffic.
fn resources(at: usize, before: Resources, after: Resources, broken: &mut impl FnMut(&'static str, &str, String)) {
    for (what, before, after, more) in [
        ("KiB of memory", before.rss_kib, after.rss_kib, RSS_KIB_MORE),
        ("open files", before.fds, after.fds, FDS_MORE),
        ("threads", before.threads, after.threads, THREADS_MORE),
    ] {
        if after > before + before * ABOVE_PERCENT / 100 + more {
            broken("I10", "", format!("process {at}: {after} {what}, {before} before"));
        }
    }
    if after.processing > 0 || !after.ready {
        broken("I9", "", format!("process {at}: {} claims at work, ready: {}", after.processing, after.ready));
    }
}

/// I11: the same bytes of a tenant have the same key and the same fingerprint, whichever process read them.
fn determinism(run: &Run, broken: &mut impl FnMut(&'static str, &str, String)) {
    let lines: BTreeMap<&str, _> =
        run.processes.iter().flat_map(|process| &process.logged).map(|line| (line.event.as_str(), line)).collect();
    let mut read: BTreeMap<(&str, &str), BTreeSet<(&str, &str)>> = BTreeMap::new();
    for told in &run.delivered {
        if let Some(line) = lines.get(told.event.as_str()).filter(|line| !line.fingerprint.is_empty()) {
            read.entry((&told.key, &told.body)).or_default().insert((&line.key, &line.fingerprint));
        }
    }
    for ((key, _), names) in read {
        if names.len() != 1 || names.iter().any(|(name, _)| *name != key) {
            broken("I11", key, format!("the same bytes were read as {names:?}"));
        }
    }
}

/// I12: each delivery that was answered has one line, which says what its sender was told.
fn lines(run: &Run, broken: &mut impl FnMut(&'static str, &str, String)) {
    let mut said: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in run.processes.iter().flat_map(|process| &process.logged) {
        said.entry(&line.event).or_default().push(&line.decision);
    }
    for told in run.delivered.iter().filter(|told| !told.event.is_empty()) {
        let decisions = said.get(told.event.as_str()).map(Vec::as_slice).unwrap_or_default();
        let agrees = match decisions {
            [decision] => match told.idempotency.as_str() {
                "first" => *decision == "first" || decision.starts_with("upstream-"),
                "mismatch" => *decision == "fingerprint-mismatch",
                "rejected" => !["first", "replay"].contains(decision),
                word => *decision == word,
            },
            _ => false,
        };
        if !agrees {
            broken(
                "I12",
                &told.key,
                format!("{} was told {:?}, and logged as {decisions:?}", told.event, told.idempotency),
            );
        }
    }
}

/// I12: a process counted what its log says. One that was killed counted no more than that when it was last asked.
fn counters(at: usize, process: &Process, broken: &mut impl FnMut(&'static str, &str, String)) {
    let names: BTreeSet<&String> = process.counters.keys().chain(process.lines.keys()).collect();
    for name in names {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        let (counted, lines) = (of(&process.counters), of(&process.lines));
        if counted > lines || (!process.killed && counted < lines) {
            broken("I12", "", format!("process {at}: {name} is {counted}, and there are {lines} lines"));
        }
    }
}

/// I12: a store that was emptied is reported, and nobody reports one that was not.
fn resets(run: &Run, broken: &mut impl FnMut(&'static str, &str, String)) {
    let emptied = run.losses.iter().filter(|loss| loss.emptied).count();
    let reported = run.audited.iter().filter(|audited| audited.kind == Kind::WindowReset).count();
    if (emptied == 0) != (reported == 0) {
        broken("I12", "", format!("emptied {emptied} times, and reported {reported} times"));
    }
}
