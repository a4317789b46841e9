//! What is known of one candidate beside one active version: each delivery that both read is compared, and added.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::event::ScopeKey;
use crate::gateway::trail::random_hex;
use crate::plugin::Usage;

use super::memory::{Memory, Name};
use super::report::{Counts, Example, Report};
use super::said::{Difference, NamesDiffer, Said};

/// Two versions of a tenant's plugin, for all routes that name it.
pub struct Comparison {
    name: String,
    inner: Mutex<Inner>,
}

struct Inner {
    report: Report,
    memory: Memory,
}

/// One of the two versions.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// SHA-256 of its code.
    pub digest: String,
    /// The key namespace that it declares.
    pub namespace: String,
}

/// What one version made of a delivery, and what that took.
pub struct Reading {
    /// What it made of it.
    pub said: Said,
    /// What it used.
    pub usage: Usage,
}

impl Comparison {
    /// Nothing is compared yet. `config` names the configuration of the routes: under another one the same code may give other keys.
    pub fn new(active: Side, candidate: Side, config: String) -> Self {
        let counts = Counts {
            active: active.digest,
            candidate: candidate.digest,
            active_namespace: active.namespace,
            candidate_namespace: candidate.namespace,
            config,
            ..Counts::default()
        };
        let inner = Inner { report: Report { counts, ..Report::default() }, memory: Memory::default() };
        Self { name: random_hex::<8>(), inner: Mutex::new(inner) }
    }

    /// Whether it compares these two.
    pub fn is_of(&self, active: &Side, candidate: &Side, config: &str) -> bool {
        let counts = &self.inner().report.counts;
        (counts.active.as_str(), counts.candidate.as_str(), counts.config.as_str())
            == (active.digest.as_str(), candidate.digest.as_str(), config)
    }

    /// What its report is called: no other comparison's has this name, on any replica.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was found so far.
    pub fn report(&self) -> Report {
        self.inner().report.clone()
    }

    /// A delivery that the candidate was not shown.
    pub fn skipped(&self) {
        self.inner().report.counts.skipped += 1;
    }

    /// One delivery that both read. Says in a word what differs most: `failed`, `verdict`, `keys`, `aliases`, `material` or `equal`.
    pub fn compare(&self, route: &str, event: &str, active: &Reading, candidate: &Reading) -> &'static str {
        let difference = active.said.against(&candidate.said);
        let mut inner = self.inner();
        let Inner { report, memory } = &mut *inner;
        report.active_fuel.add(active.usage.fuel.used);
        report.candidate_fuel.add(candidate.usage.fuel.used);
        report.active_us.add(active.usage.wall_us.used);
        report.candidate_us.add(candidate.usage.wall_us.used);
        let mut told = Told { counts: &mut report.counts, route, event };
        told.counts.compared += 1;
        told.names(&difference.pairs, memory);
        told.all(&difference, &active.said, &candidate.said)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Counts and digests only: after a panic elsewhere they are still right.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One delivery being written down.
struct Told<'a> {
    counts: &'a mut Counts,
    route: &'a str,
    event: &'a str,
}

impl Told<'_> {
    fn names(&mut self, pairs: &[(ScopeKey, ScopeKey)], memory: &mut Memory) {
        for (active, candidate) in pairs {
            let met = memory.meet(name(active), name(candidate));
            let names = || NamesDiffer { active: active.readable(), candidate: candidate.readable() };
            if met.collision {
                self.counts.collisions += 1;
                self.example("collision", &names(), &[]);
            }
            if met.split {
                self.counts.splits += 1;
                self.example("split", &names(), &[]);
            }
        }
    }

    fn all(&mut self, difference: &Difference, active: &Said, candidate: &Said) -> &'static str {
        let mut word = "equal";
        let nothing = || NamesDiffer { active: String::new(), candidate: String::new() };
        // The gravest last.
        if !difference.material.is_empty() {
            word = "material";
            self.counts.material += 1;
            self.example(word, &nothing(), &difference.material);
        }
        if let Some(names) = &difference.aliases {
            word = "aliases";
            self.counts.aliases += 1;
            self.example(word, names, &[]);
        }
        if let Some(names) = &difference.keys {
            word = "keys";
            self.counts.keys += 1;
            self.example(word, names, &[]);
        }
        let verdicts = || NamesDiffer { active: active.verdict.clone(), candidate: candidate.verdict.clone() };
        if difference.verdict {
            word = "verdict";
            self.counts.verdicts += 1;
            self.example(word, &verdicts(), &[]);
        }
        if let Some(kind) = difference.failed {
            word = "failed";
            *self.counts.failures.entry(kind.as_str().to_owned()).or_default() += 1;
            self.example(word, &verdicts(), &[]);
        }
        self.counts.equal += u64::from(word == "equal");
        word
    }

    fn example(&mut self, kind: &str, names: &NamesDiffer, fields: &[String]) {
        self.counts.example(Example {
            kind: kind.to_owned(),
            route: self.route.to_owned(),
            event: self.event.to_owned(),
            active: names.active.clone(),
            candidate: names.candidate.clone(),
            fields: fields.to_vec(),
        });
    }
}

/// Enough of a digest to tell keys apart; keys of several routes that share a scope meet.
fn name(key: &ScopeKey) -> Name {
    let digest = key.digest();
    std::array::from_fn(|at| digest.get(at).copied().unwrap_or_default())
}
