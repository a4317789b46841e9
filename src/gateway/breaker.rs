//! When a version of a plugin fails so often that it is better left alone: its previous version serves instead, or nobody does and
//! no time is spent on it.
//!
//! Only deliveries that are known to be genuine count, as successes and as failures. A failure before the version had verified the
//! sender counts when the previous version verifies the same delivery, and else not at all: or anybody who knows the route's path
//! could switch a plugin off with junk.
//!
//! A version that is off is tried again after a while, on one real delivery at a time; where there is a previous version, that one
//! answers what the trial does not. After [`PROBES`] genuine deliveries in a row without a failure it serves again. So a version
//! that failed for a passing reason comes back by itself, and one that does not stays off until another is activated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::event::PluginVersion;

use super::audit;
use super::route::Routes;

/// What is remembered.
const WINDOW: Duration = Duration::from_secs(30);
const WINDOW_SECONDS: usize = 30;

/// The fewest genuine deliveries that say anything.
const CALLS_MIN: u32 = 20;

/// How long a version is left alone before it is tried again.
const OFF_FOR: Duration = Duration::from_secs(30);

/// Successes in a row that bring a version back.
const PROBES: u32 = 5;

/// How soon to come again while a trial runs.
const SOON: Duration = Duration::from_secs(1);

/// The state of one version, as a machine: time is an argument.
#[derive(Debug, Default)]
struct Circuit {
    /// By second, in a ring.
    seconds: [Tally; WINDOW_SECONDS],
    off: Option<Off>,
}

/// One second's genuine deliveries.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    second: u64,
    calls: u32,
    failures: u32,
}

/// Not serving.
#[derive(Debug)]
struct Off {
    /// From when on it is tried.
    until: Duration,
    /// A trial runs.
    probing: bool,
    /// Successes in a row.
    passed: u32,
}

/// Whether a version may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// As ever.
    Run,
    /// To see whether it works again.
    Probe,
    /// Not now.
    Not { after: Duration },
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is left alone from now on.
    Off { calls: u32, failures: u32 },
    /// It serves again.
    On,
}

impl Circuit {
    fn enter(&mut self, now: Duration) -> Leave {
        match &mut self.off {
            None => Leave::Run,
            Some(off) if now < off.until => Leave::Not { after: off.until.saturating_sub(now) },
            Some(off) if off.probing => Leave::Not { after: SOON },
            Some(off) => {
                off.probing = true;
                Leave::Probe
            }
        }
    }

    /// A genuine delivery went so.
    fn record(&mut self, failed: bool, now: Duration) -> Option<Change> {
        // What was begun before it was switched off says nothing new.
        if self.off.is_some() {
            return None;
        }
        let second = now.as_secs();
        if let Some(tally) = self.seconds.get_mut(usize::try_from(second).unwrap_or(0) % WINDOW_SECONDS) {
            if tally.second != second {
                *tally = Tally { second, ..Tally::default() };
            }
            tally.calls = tally.calls.saturating_add(1);
            tally.failures = tally.failures.saturating_add(u32::from(failed));
        }
        if !failed {
            return None;
        }
        let recent = self.seconds.iter().filter(|tally| second.saturating_sub(tally.second) < WINDOW.as_secs());
        let (calls, failures) = recent.fold((0_u32, 0_u32), |(calls, failures), tally| {
            (calls.saturating_add(tally.calls), failures.saturating_add(tally.failures))
        });
        if calls < CALLS_MIN || failures.saturating_mul(2) < calls {
            return None;
        }
        self.off = Some(Off { until: now + OFF_FOR, probing: false, passed: 0 });
        Some(Change::Off { calls, failures })
    }

    /// A trial ended: it failed or not on a genuine delivery, or met none.
    fn probed(&mut self, failed: Option<bool>, now: Duration) -> Option<Change> {
        let off = self.off.as_mut()?;
        off.probing = false;
        match failed {
            None => None,
            Some(true) => {
                *off = Off { until: now + OFF_FOR, probing: false, passed: 0 };
                None
            }
            Some(false) => {
                off.passed += 1;
                (off.passed >= PROBES).then(|| {
                    *self = Self::default();
                    Change::On
                })
            }
        }
    }
}

/// All breakers of a process: one a tenant, plugin and version, however many routes and cores use it.
#[derive(Clone, Default)]
pub struct Breakers(Arc<Mutex<HashMap<Name, Weak<Shared>>>>);

/// Tenant, plugin, version.
type Name = (String, String, String);

/// One version's breaker. Cheap to clone; forgotten with the last clone.
#[derive(Clone)]
pub struct Breaker(Arc<Shared>);

struct Shared {
    name: Name,
    began: Instant,
    circuit: Mutex<Circuit>,
}

impl Breakers {
    /// The breaker of a tenant's plugin in this version.
    pub fn of(&self, tenant: &str, plugin: &PluginVersion) -> Breaker {
        // Pointers only: after a panic elsewhere they are still right.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, breaker| breaker.strong_count() > 0);
        let name = (tenant.to_owned(), plugin.name.clone(), plugin.version.clone());
        if let Some(breaker) = known.get(&name).and_then(Weak::upgrade) {
            return Breaker(breaker);
        }
        let shared = Shared { name: name.clone(), began: Instant::now(), circuit: Mutex::default() };
        let breaker = Arc::new(shared);
        known.insert(name, Arc::downgrade(&breaker));
        Breaker(breaker)
    }
}

impl Breaker {
    /// Leave to run the version on one delivery.
    ///
    /// # Errors
    /// How long it is left alone still.
    pub fn enter(&self) -> Result<Pass, Duration> {
        let leave = self.circuit().enter(self.0.began.elapsed());
        match leave {
            Leave::Not { after } => Err(after),
            leave => Ok(Pass { breaker: self.clone(), is_probe: leave == Leave::Probe, told: false }),
        }
    }

    /// Whether it is left alone or only tried.
    pub fn is_off(&self) -> bool {
        self.circuit().off.is_some()
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        // Numbers only: after a panic elsewhere they are still right.
        self.0.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, change: Option<Change>) {
        if let Some(change) = change {
            let (tenant, plugin, version) = &self.0.name;
            audit::breaker(tenant, plugin, version, change);
        }
    }
}

/// Leave to run a version once. Dropped without a word, it says nothing of the version.
pub struct Pass {
    breaker: Breaker,
    /// Whether the version is on trial.
    pub is_probe: bool,
    told: bool,
}

impl Pass {
    /// The delivery was genuine, and the version failed on it or not.
    pub fn genuine(mut self, failed: bool) {
        self.told = true;
        let now = self.breaker.0.began.elapsed();
        let change = match self.is_probe {
            true => self.breaker.circuit().probed(Some(failed), now),
            false => self.breaker.circuit().record(failed, now),
        };
        self.breaker.changed(change);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_probe && !self.told {
            self.breaker.circuit().probed(None, self.breaker.0.began.elapsed());
        }
    }
}

/// Every active version that is off now, for people.
pub fn reasons(routes: &Routes) -> Vec<String> {
    let mut reasons = Vec::new();
    for route in routes.all() {
        let Some(code) = route.plugin.now().filter(|code| code.active.breaker.is_off()) else { continue };
        let (tenant, plugin, version) = &code.active.breaker.0.name;
        let instead = match code.healthy_previous() {
            Some(previous) => format!("version {} serves instead", previous.plugin.version().version),
            None => "its deliveries are refused".to_owned(),
        };
        let reason = format!("the plugin {plugin} of {tenant} fails in version {version}: {instead}");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// Brings the gauges up to now, for a reader.
pub fn refresh(routes: &Routes) {
    for route in routes.all() {
        let Some(code) = route.plugin.now() else { continue };
        let (tenant, plugin, _) = &code.active.breaker.0.name;
        let gauge = metrics::gauge!("onceward_plugin_breaker", "tenant" => tenant.clone(), "plugin" => plugin.clone());
        gauge.set(if code.active.breaker.is_off() { 1.0 } else { 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// As many calls, so many of which fail, at one moment.
    fn calls(circuit: &mut Circuit, calls: u32, failures: u32, now: Duration) -> Option<Change> {
        // The successes first, so that the share is what it is only at the end.
        (0..calls).map(|at| circuit.record(at >= calls - failures, now)).find(Option::is_some).flatten()
    }

    #[test]
    fn it_takes_twenty_calls_and_half_of_them() {
        let mut circuit = Circuit::default();
        assert_eq!(calls(&mut circuit, 19, 19, s(1)), None);
        assert_eq!(circuit.record(true, s(2)), Some(Change::Off { calls: 20, failures: 20 }));

        let mut circuit = Circuit::default();
        assert_eq!(calls(&mut circuit, 100, 49, s(1)), None);
        assert_eq!(circuit.enter(s(1)), Leave::Run);
        assert_eq!(calls(&mut circuit, 2, 2, s(30)), Some(Change::Off { calls: 102, failures: 51 }));
    }

    /// What is older than the window is forgotten, also where its place in the ring was not used again.
    #[test]
    fn old_failures_are_forgotten() {
        let mut circuit = Circuit::default();
        assert_eq!(calls(&mut circuit, 19, 19, s(5)), None);
        assert_eq!(circuit.record(true, s(35)), None, "thirty seconds later there is one call");
        assert_eq!(calls(&mut circuit, 18, 18, s(64)), None);
        assert_eq!(circuit.record(true, s(64)), Some(Change::Off { calls: 20, failures: 20 }));
    }

    fn off() -> Circuit {
        let mut circuit = Circuit::default();
        assert!(calls(&mut circuit, 20, 20, s(1)).is_some());
        circuit
    }

    /// Nothing runs for a while; then one trial at a time, until enough have passed.
    #[test]
    fn trials_bring_it_back() {
        let mut circuit = off();
        assert_eq!(circuit.enter(s(11)), Leave::Not { after: s(20) });
        for passed in 1..=PROBES {
            assert_eq!(circuit.enter(s(31)), Leave::Probe);
            assert_eq!(circuit.enter(s(31)), Leave::Not { after: SOON }, "one at a time");
            assert_eq!(circuit.record(true, s(31)), None, "begun before");
            let change = circuit.probed(Some(false), s(31));
            assert_eq!(change, (passed == PROBES).then_some(Change::On));
        }
        assert_eq!(circuit.enter(s(31)), Leave::Run);
        assert_eq!(calls(&mut circuit, 19, 19, s(31)), None, "with a clean slate");
    }

    /// A trial that fails is the end of them for a while; junk neither brings a version back nor keeps it off.
    #[test]
    fn a_trial_that_fails_or_says_nothing() {
        let mut circuit = off();
        for _ in 0..PROBES - 1 {
            assert_eq!(circuit.enter(s(31)), Leave::Probe);
            assert_eq!(circuit.probed(Some(false), s(31)), None);
        }
        for _ in 0..100 {
            assert_eq!(circuit.enter(s(31)), Leave::Probe);
            assert_eq!(circuit.probed(None, s(31)), None);
        }
        assert_eq!(circuit.enter(s(31)), Leave::Probe);
        assert_eq!(circuit.probed(Some(true), s(32)), None);
        assert_eq!(circuit.enter(s(61)), Leave::Not { after: s(1) });
        assert_eq!(circuit.enter(s(62)), Leave::Probe);
        assert_eq!(circuit.probed(Some(false), s(62)), None, "all over again");
    }

    /// One breaker a version, whoever asks; none is kept for a version that nobody holds.
    #[test]
    fn a_version_has_one_breaker() {
        let breakers = Breakers::default();
        let version = |name: &str| PluginVersion { name: "p".to_owned(), version: name.to_owned() };
        let one = breakers.of("t", &version("1"));
        let (same, other) = (breakers.of("t", &version("1")), breakers.of("u", &version("1")));
        (0..20).for_each(|_| one.enter().unwrap().genuine(true));
        assert!(same.is_off() && same.enter().is_err() && !other.is_off());
        drop((one, same));
        assert!(!breakers.of("t", &version("1")).is_off());
        assert_eq!(breakers.0.lock().unwrap().len(), 2);
    }
}
