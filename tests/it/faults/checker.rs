//! Whether a run kept its promises: a pure function over its logs, key by key.

use std::collections::{BTreeMap, BTreeSet};

use super::log::{Audited, Delivered, Kind, Received, Run};

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
}

/// All that one key has to do with.
#[derive(Default)]
struct Key<'a> {
    delivered: Vec<&'a Delivered>,
    received: Vec<&'a Received>,
    audited: Vec<&'a Audited>,
}

/// Checks I1 to I6, I9 and, as far as the logs show it, I12.
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
    let resets = run.audited.iter().filter(|audited| audited.kind == Kind::WindowReset).count();
    let mut figures = Figures {
        events: keys.len(),
        deliveries: run.delivered.len(),
        forwards: run.received.len(),
        ..Figures::default()
    };
    let mut violations = Vec::new();
    for (name, key) in &keys {
        let mut broken = |promise, what: String| violations.push(Violation { promise, key: (*name).to_owned(), what });
        key.side_effects(resets, &mut figures, &mut broken);
        key.acknowledgements(&mut figures, &mut broken);
        key.kept(resets, &mut broken);
        key.replays(&mut broken);
        key.conflicts(resets, &mut broken);
        key.fences(&mut broken);
        key.liveness(&mut broken);
        key.honesty(&mut broken);
    }
    (figures, violations)
}

impl Key<'_> {
    /// I1: one effect, and one more for each report. A second one announces itself to the upstream too, by its attempt: an effect
    /// of a first attempt beyond one is only excused by a store that forgot.
    fn side_effects(&self, resets: usize, figures: &mut Figures, broken: &mut impl FnMut(&'static str, String)) {
        let effects = self.received.iter().filter(|received| received.processed).count();
        let extras = effects.saturating_sub(1);
        let announced = self.received.iter().filter(|received| received.processed && received.attempt > 1).count();
        let of = |kind| self.audited.iter().filter(|audited| audited.kind == kind).count();
        let reports = of(Kind::LeaseLost) + of(Kind::FinaliseFailure) + of(Kind::SecondForward) + resets;
        let unreported = extras.saturating_sub(reports);
        figures.reported_extras += extras - unreported;
        figures.unreported_extras += unreported;
        if unreported > 0 {
            broken("I1", format!("{effects} effects, {reports} reports"));
        } else if effects - announced > 1 + resets {
            broken("I1", format!("{} effects of first attempts", effects - announced));
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
    /// stale owner that says so.
    fn kept(&self, resets: usize, broken: &mut impl FnMut(&'static str, String)) {
        let Some(told_at) =
            self.delivered.iter().filter(|told| is_success(told) && told.kept).map(|told| told.told_at).min()
        else {
            return;
        };
        let stale = |received: &Received| {
            self.audited.iter().any(|audited| audited.kind == Kind::LeaseLost && audited.fence == received.fence)
        };
        let again = self.received.iter().filter(|received| received.at > told_at && !stale(received)).count();
        if again > 0 && resets == 0 {
            broken("I2", format!("forwarded {again} times more after a success that was kept"));
        }
    }

    /// I4: all successes that were replayed are the first one, byte for byte.
    fn replays(&self, broken: &mut impl FnMut(&'static str, String)) {
        let told = self.delivered.iter().filter(|delivered| delivered.status.is_some_and(|status| status < 300));
        let answers: BTreeSet<_> =
            told.clone().filter(|told| told.idempotency == "replay").map(|told| told.answer.as_str()).collect();
        if answers.len() > 1 {
            broken("I4", format!("{} different answers were replayed", answers.len()));
        }
        let given: BTreeSet<_> =
            told.filter(|told| told.idempotency == "first").map(|told| told.answer.as_str()).collect();
        // An answer whose forward's sender never had it may be replayed too: a gateway died, or its lease was lost.
        let excused = self.audited.iter().any(|audited| audited.kind != Kind::WindowReset)
            || self.received.iter().any(|received| received.attempt > 1)
            || self.delivered.iter().any(|delivered| delivered.status.is_none());
        if !excused && !given.is_empty() && !answers.is_subset(&given) {
            broken("I4", "what was replayed was never given as the first answer".to_owned());
        }
    }

    /// I5: once an event of the key took effect, another one is neither forwarded nor told of a success.
    fn conflicts(&self, resets: usize, broken: &mut impl FnMut(&'static str, String)) {
        if resets > 0 {
            return;
        }
        let bodies: BTreeSet<_> = self.received.iter().map(|received| received.body.as_str()).collect();
        if bodies.len() > 1 {
            broken("I5", format!("{} different events were forwarded", bodies.len()));
        }
        let successes: BTreeSet<_> =
            self.delivered.iter().filter(|told| is_success(told)).map(|told| told.variant).collect();
        if successes.len() > 1 {
            broken("I5", format!("different events were told of a success: {successes:?}"));
        }
    }

    /// I6: fences at the upstream strictly increase, but for a stale owner's that its gateway reported as such.
    fn fences(&self, broken: &mut impl FnMut(&'static str, String)) {
        let mut highest = 0;
        for received in &self.received {
            let stale = |audited: &&Audited| audited.kind == Kind::LeaseLost && audited.fence == received.fence;
            if received.fence > highest {
                highest = received.fence;
            } else if !self.audited.iter().copied().any(|audited| stale(&audited)) {
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

    /// I12: the gateway says of a forward that it may be a second one exactly when its attempt is no first one, unless the attempt
    /// before it was answered.
    fn honesty(&self, broken: &mut impl FnMut(&'static str, String)) {
        for audited in self.audited.iter().filter(|audited| audited.kind == Kind::SecondForward) {
            let first = self.received.iter().any(|received| received.event == audited.event && received.attempt == 1);
            if first {
                broken("I12", format!("{} was a first attempt, and reported as a second forward", audited.event));
            }
        }
    }

    /// The event that came through.
    fn winner(&self) -> u32 {
        self.delivered.iter().find(|told| is_success(told)).map_or(0, |told| told.variant)
    }
}

fn is_success(delivered: &Delivered) -> bool {
    delivered.status.is_some_and(|status| (200..300).contains(&status))
}
