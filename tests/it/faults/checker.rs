//! Whether a run kept its promises: a pure function over its logs, key by key.

use std::collections::{BTreeMap, BTreeSet};

use super::across;
use super::log::{Audited, Delivered, Kind, Logged, Loss, Received, Resources, Run};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub promise: &'static str,
    pub key: String,
    pub what: String,
}

/// What a run was, beside its violations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub events: usize,
    pub deliveries: usize,
    pub forwards: usize,
    /// Effects beyond the first of a key that the gateways reported.
    pub reported_extras: usize,
    /// Effects beyond the first of a key that nobody reported.
    pub unreported_extras: usize,
    /// Events without an effect after all redeliveries.
    pub lost: usize,
    /// The most requests that one event made at the upstream.
    pub amplification: usize,
    /// The most that a process holds beyond what it did when it was warm.
    pub grown_kib: u64,
}

/// Requests that one event may make at the upstream.
const AMPLIFICATION_MAX: usize = 10;

/// The longest that a forward takes, and the latest that its outcome is written behind it, in microseconds.
const FORWARD_MAX: u64 = 2_000_000;

/// All that one key has to do with.
#[derive(Default)]
struct Key<'a> {
    delivered: Vec<&'a Delivered>,
    received: Vec<&'a Received>,
    audited: Vec<&'a Audited>,
    /// Of its deliveries, by event: the line, and whether its process was killed.
    logged: BTreeMap<&'a str, (&'a Logged, bool)>,
    /// Times in which the store lost what it knew of the key.
    losses: Vec<&'a Loss>,
}

/// Checks I1 to I6 and I9 key by key, and I7, I8 and I10 to I12 [`across`] them.
pub fn check(run: &Run) -> (Figures, Vec<Violation>) {
    let mut keys: BTreeMap<&str, Key<'_>> = BTreeMap::new();
    for delivered in &run.delivered {
        keys.entry(&delivered.key).or_default().delivered.push(delivered);
    }
    for received in &run.received {
        keys.entry(&received.key).or_default().received.push(received);
    }
    for audited in &run.audited {
        if let Some(key) = keys.get_mut(audited.key.as_str()) {
            key.audited.push(audited);
        }
    }
    for process in &run.processes {
        for logged in &process.logged {
            if let Some(key) = keys.get_mut(logged.key.as_str()) {
                key.logged.insert(&logged.event, (logged, process.killed));
            }
        }
    }
    for key in keys.values_mut() {
        key.losses = run.losses.iter().filter(|loss| key.is_touched_by(loss)).collect();
    }
    let mut figures = Figures {
        events: keys.len(),
        deliveries: run.delivered.len(),
        forwards: run.received.len(),
        grown_kib: run.processes.iter().filter_map(|process| process.used).map(grown_kib).max().unwrap_or_default(),
        amplification: keys.values().map(|key| key.received.len()).max().unwrap_or_default(),
        ..Figures::default()
    };
    let mut violations = Vec::new();
    for (name, key) in &keys {
        let mut broken = |promise, what: String| violations.push(Violation { promise, key: (*name).to_owned(), what });
        key.side_effects(&mut figures, &mut broken);
        key.acknowledgements(&mut figures, &mut broken);
        key.kept(&mut broken);
        key.counted(&mut broken);
        key.replays(&mut broken);
        key.conflicts(&mut broken);
        key.fences(&mut broken);
        key.liveness(&mut broken);
        key.outcomes(&mut broken);
        key.honesty(&mut broken);
    }
    violations.extend(across::check(run));
    (figures, violations)
}

impl Key<'_> {
    /// Whether the key had a forward while the store lost writes, or knew of one that was to be lost.
    fn is_touched_by(&self, loss: &Loss) -> bool {
        let (from, until) = (loss.from.saturating_sub(FORWARD_MAX), loss.until + FORWARD_MAX);
        self.received.iter().any(|received| (from..=until).contains(&received.at))
    }

    /// A forward by an owner that had lost its lease, and whose gateway says so.
    fn is_stale(&self, received: &Received) -> bool {
        self.audited.iter().any(|audited| audited.kind == Kind::LeaseLost && audited.fence == received.fence)
    }

    /// The gateway counted that this delivery's outcome did not stand.
    fn is_counted(&self, event: &str) -> bool {
        let counts = |kind| matches!(kind, Kind::LeaseLost | Kind::FinaliseFailure);
        self.audited.iter().any(|audited| counts(audited.kind) && audited.event == event)
    }

    /// I1: one effect, and one more for each report. A second one announces itself to the upstream too, by its attempt: an effect
    /// of a first attempt beyond one is only excused by a store that forgot.
    fn side_effects(&self, figures: &mut Figures, broken: &mut impl FnMut(&'static str, String)) {
        let effects = self.received.iter().filter(|received| received.processed).count();
        let extras = effects.saturating_sub(1);
        let announced = self.received.iter().filter(|received| received.processed && received.attempt > 1).count();
        let of = |kind| self.audited.iter().filter(|audited| audited.kind == kind).count();
        let losses = self.losses.len();
        let reports = of(Kind::LeaseLost) + of(Kind::FinaliseFailure) + of(Kind::SecondForward) + losses;
        let unreported = extras.saturating_sub(reports);
        figures.reported_extras += extras - unreported;
        figures.unreported_extras += unreported;
        if unreported > 0 {
            broken("I1", format!("{effects} effects, {reports} reports"));
        } else if effects - announced > 1 + losses {
            broken("I1", format!("{} effects of first attempts", effects - announced));
        }
        if self.received.len() > AMPLIFICATION_MAX {
            broken("I10", format!("forwarded {} times", self.received.len()));
        }
    }

    /// I2: a success that was told has an effect of the same body before it. I3: every event has an effect in the end.
    fn acknowledgements(&self, figures: &mut Figures, broken: &mut impl FnMut(&'static str, String)) {
        for told in self.delivered.iter().filter(|delivered| is_success(delivered)) {
            let backed = self
                .received
                .iter()
                .any(|received| received.processed && received.body == told.body && received.at <= told.told_at);
            if !backed {
                broken("I2", format!("{:?} was told of a success that has no effect before it", told.idempotency));
            }
        }
        if !self.received.iter().any(|received| received.processed) {
            figures.lost += 1;
            broken("I3", "no effect after all redeliveries".to_owned());
        }
    }

    /// I2: a success that was said to be kept is durable: nothing of the key reaches the upstream once its sender has it, but for a
    /// stale owner that says so, and what a store forgot that lost just that write.
    fn kept(&self, broken: &mut impl FnMut(&'static str, String)) {
        let kept = || self.delivered.iter().filter(|told| is_success(told) && told.kept);
        for told in kept() {
            let written = kept().filter(|other| other.answer == told.answer).map(|other| other.told_at).min();
            let is_lost = |received: &Received| {
                self.losses.iter().any(|loss| {
                    written.is_some_and(|at| at >= loss.from) && told.sent_at <= loss.until && received.at >= loss.from
                })
            };
            let later = self.received.iter().filter(|received| received.at > told.told_at);
            let again = later.filter(|received| !self.is_stale(received) && !is_lost(received)).count();
            if again > 0 {
                return broken("I2", format!("forwarded {again} times more after a success that was kept"));
            }
        }
    }

    /// I2: a success that was told and is not kept is counted as such. One that the store had not taken yet when it was told is
    /// taken later, or counted once it is forwarded again, unless its gateway was killed before that.
    fn counted(&self, broken: &mut impl FnMut(&'static str, String)) {
        let first = |told: &&&Delivered| is_success(told) && told.idempotency == "first" && !told.kept;
        for told in self.delivered.iter().filter(first).filter(|told| !self.is_counted(&told.event)) {
            let Some((line, killed)) = self.logged.get(told.event.as_str()) else { continue };
            let again = self.received.iter().any(|received| received.at > told.told_at && !self.is_stale(received));
            if line.state_after != "processing" || (again && !killed && self.losses.is_empty()) {
                broken("I2", format!("{}: a success that was neither kept nor counted", told.event));
            }
        }
    }

    /// I6: an outcome is written once: an older fence's never comes over another one.
    fn outcomes(&self, broken: &mut impl FnMut(&'static str, String)) {
        let written = self.delivered.iter().filter(|told| is_success(told) && told.kept && told.idempotency == "first");
        let written = written.count();
        if written > 1 + self.losses.len() {
            broken("I6", format!("{written} deliveries wrote their outcome as the kept one"));
        }
    }

    /// I4: all successes that were replayed are the first one, byte for byte.
    fn replays(&self, broken: &mut impl FnMut(&'static str, String)) {
        let told = self.delivered.iter().filter(|delivered| delivered.status.is_some_and(|status| status < 300));
        let answers: BTreeSet<_> =
            told.clone().filter(|told| told.idempotency == "replay").map(|told| told.answer.as_str()).collect();
        if answers.len() > 1 + self.losses.len() {
            broken("I4", format!("{} different answers were replayed", answers.len()));
        }
        let given: BTreeSet<_> =
            told.filter(|told| told.idempotency == "first").map(|told| told.answer.as_str()).collect();
        // An answer whose forward's sender never had it may be replayed too: a gateway died, or its lease was lost.
        let excused = !self.audited.is_empty()
            || self.received.iter().any(|received| received.attempt > 1)
            || self.delivered.iter().any(|delivered| delivered.status.is_none());
        if !excused && !given.is_empty() && !answers.is_subset(&given) {
            broken("I4", "what was replayed was never given as the first answer".to_owned());
        }
    }

    /// I5: once an event of the key took effect, another one is neither forwarded nor told of a success.
    fn conflicts(&self, broken: &mut impl FnMut(&'static str, String)) {
        let bodies: BTreeSet<_> = self.received.iter().map(|received| received.body.as_str()).collect();
        if bodies.len() > 1 + self.losses.len() {
            broken("I5", format!("{} different events were forwarded", bodies.len()));
        }
        let successes: BTreeSet<_> =
            self.delivered.iter().filter(|told| is_success(told)).map(|told| told.variant).collect();
        if successes.len() > 1 + self.losses.len() {
            broken("I5", format!("different events were told of a success: {successes:?}"));
        }
    }

    /// I6: fences at the upstream strictly increase, but for a stale owner's that its gateway reported as such.
    fn fences(&self, broken: &mut impl FnMut(&'static str, String)) {
        let mut highest = 0;
        for received in &self.received {
            if received.fence > highest {
                highest = received.fence;
            } else if !self.is_stale(received) {
                broken("I6", format!("fence {} came after {highest}", received.fence));
            }
        }
    }

    /// I9: whoever was still sent at the end had an answer: the last delivery of the event is no "come again".
    fn liveness(&self, broken: &mut impl FnMut(&'static str, String)) {
        let last = self
            .delivered
            .iter()
            .filter(|delivered| delivered.variant == self.winner())
            .max_by_key(|last| last.told_at);
        if let Some(last) = last
            && !is_success(last)
        {
            broken("I9", format!("its last delivery got {:?} {:?}", last.status, last.idempotency));
        }
    }

    /// I12: the gateway says of a forward that it may be a second one only when its attempt is no first one, and always when there
    /// was an effect before it that the store had no word of.
    fn honesty(&self, broken: &mut impl FnMut(&'static str, String)) {
        let second = || self.audited.iter().filter(|audited| audited.kind == Kind::SecondForward);
        for audited in second() {
            let first = self.received.iter().any(|received| received.event == audited.event && received.attempt == 1);
            if first {
                broken("I12", format!("{} was a first attempt, and reported as a second forward", audited.event));
            }
        }
        let mut effects = self.received.iter().filter(|received| received.processed);
        if effects.next().is_none() || !self.losses.is_empty() {
            return;
        }
        for extra in effects.filter(|extra| extra.attempt > 1 && !self.is_stale(extra)) {
            if !second().any(|audited| audited.event == extra.event) {
                broken("I12", format!("{} was a second effect, and not reported as one", extra.event));
            }
        }
    }

    /// The event that came through: the last one, where the store forgot another.
    fn winner(&self) -> u32 {
        let successes = self.delivered.iter().filter(|told| is_success(told));
        successes.max_by_key(|told| told.told_at).map_or(0, |told| told.variant)
    }
}

fn grown_kib((before, after): (Resources, Resources)) -> u64 {
    after.rss_kib.saturating_sub(before.rss_kib)
}

fn is_success(delivered: &Delivered) -> bool {
    delivered.status.is_some_and(|status| (200..300).contains(&status))
}
