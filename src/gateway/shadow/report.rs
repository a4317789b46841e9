//! What a candidate was found to do differently: plain data that replicas write down, add up, and show.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::times::{Quantiles, Sizes};

/// Examples shown of each kind of difference.
pub(super) const EXAMPLES_MAX: usize = 5;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// SHA-256 of the active version.
    pub active: String,
    /// SHA-256 of the candidate.
    pub candidate: String,
    /// The key namespace that the active version declares, mostly empty.
    pub active_namespace: String,
    /// The candidate's.
    pub candidate_namespace: String,
    /// Digest of the configuration of the routes that name the plugin, under which this was found.
    pub config: String,
    /// Deliveries that both versions read.
    pub compared: u64,
    /// Of these, those in which nothing differs.
    pub equal: u64,
    /// Deliveries that the candidate was not shown, since it was busy.
    pub skipped: u64,
    /// The candidate decided differently: refused, passed or answered what the active version did not, or the other way round.
    pub verdicts: u64,
    /// The candidate gave other keys, without regard to the namespace, or would forward again what was forwarded under a key.
    pub keys: u64,
    /// Events to which the candidate gave a key that another event has: they would be taken for one.
    pub collisions: u64,
    /// Events to which the candidate gave another key than before: a redelivery would be taken for a new event.
    pub splits: u64,
    /// The candidate gave other aliases.
    pub aliases: u64,
    /// The candidate named other material, or read other values.
    pub material: u64,
    /// Calls in which the candidate gave no answer, by kind.
    pub failures: BTreeMap<String, u64>,
    /// The first few of each kind.
    pub examples: Vec<Example>,
}

/// One delivery in which the versions differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Example {
    /// `verdict`, `keys`, `collision`, `split`, `aliases`, `material` or `failed`.
    pub kind: String,
    /// The route's name.
    pub route: String,
    /// The delivery: the `Onceward-Event` of its answer.
    pub event: String,
    /// What the active version said: a key, aliases, a verdict.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub active: String,
    /// What the candidate said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub candidate: String,
    /// The material fields that differ. Their values are never kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// Counts, with what the calls used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What was counted.
    pub counts: Counts,
    /// Fuel of the active version's calls.
    pub active_fuel: Sizes,
    /// Of the candidate's.
    pub candidate_fuel: Sizes,
    /// Microseconds in the active version's calls.
    pub active_us: Sizes,
    /// In the candidate's.
    pub candidate_us: Sizes,
}

/// A report as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Fuel of the active version's calls.
    pub active_fuel: Quantiles,
    /// Of the candidate's.
    pub candidate_fuel: Quantiles,
    /// Microseconds in the active version's calls.
    pub active_us: Quantiles,
    /// In the candidate's. Those beside live traffic run when the machine has time, so that their caches are colder.
    pub candidate_us: Quantiles,
}

impl Counts {
    /// Whether the candidate may not follow the active version: it names known events differently, and says of neither that it
    /// means other keys.
    pub fn blocks(&self) -> bool {
        (self.keys > 0 || self.collisions > 0 || self.splits > 0) && self.active_namespace == self.candidate_namespace
    }

    /// An example of a kind, while there are few.
    pub(super) fn example(&mut self, example: Example) {
        if self.examples.iter().filter(|known| known.kind == example.kind).count() < EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

impl Report {
    /// Adds what another replica found, of the same two versions.
    pub fn merge(&mut self, other: &Self) {
        let (into, from) = (&mut self.counts, &other.counts);
        for (into, from) in [
            (&mut into.compared, from.compared),
            (&mut into.equal, from.equal),
            (&mut into.skipped, from.skipped),
            (&mut into.verdicts, from.verdicts),
            (&mut into.keys, from.keys),
            (&mut into.collisions, from.collisions),
            (&mut into.splits, from.splits),
            (&mut into.aliases, from.aliases),
            (&mut into.material, from.material),
        ] {
            *into = into.saturating_add(from);
        }
        for (kind, count) in &from.failures {
            *into.failures.entry(kind.clone()).or_default() += count;
        }
        from.examples.iter().for_each(|example| into.example(example.clone()));
        self.active_fuel.merge(&other.active_fuel);
        self.candidate_fuel.merge(&other.candidate_fuel);
        self.active_us.merge(&other.active_us);
        self.candidate_us.merge(&other.candidate_us);
    }

    /// For people.
    pub fn summary(&self) -> Summary {
        Summary {
            counts: self.counts.clone(),
            active_fuel: self.active_fuel.quantiles(),
            candidate_fuel: self.candidate_fuel.quantiles(),
            active_us: self.active_us.quantiles(),
            candidate_us: self.candidate_us.quantiles(),
        }
    }
}
