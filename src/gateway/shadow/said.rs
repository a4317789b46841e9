//! What a version of a plugin made of a delivery, and how two versions differ in it. Pure.

use crate::config::model;
use crate::event::{Delivery, Event, ScopeKey};
use crate::gateway::deployed::Runner;
use crate::gateway::identity::{Identity, Unidentifiable};
use crate::idempotency::policy::OnMissingKey;
use crate::plugin::{Failure, FailureKind, Inspection};

/// What one version made of a delivery.
pub struct Said {
    /// In a word or two: `events`, `no-key`, `pass`, `respond 202`, `reject 422`, `unverified`, `unsigned`, `stale`, `failed KIND`.
    pub verdict: String,
    /// Of its events.
    pub ids: Vec<Identity>,
    /// The call gave no answer.
    pub failure: Option<FailureKind>,
}

/// Which names of a delivery's events differ.
pub struct NamesDiffer {
    /// The active version's, readable.
    pub active: String,
    /// The candidate's.
    pub candidate: String,
}

/// How a candidate differs from the active version in one delivery.
#[derive(Default)]
pub struct Difference {
    /// The candidate gave no answer.
    pub failed: Option<FailureKind>,
    /// They decided differently.
    pub verdict: bool,
    /// The events have other keys, or would be forwarded without one.
    pub keys: Option<NamesDiffer>,
    /// The events have other aliases.
    pub aliases: Option<NamesDiffer>,
    /// The material fields whose names or values differ.
    pub material: Vec<String>,
    /// Each event's two keys, where it is clear which go together.
    pub pairs: Vec<(ScopeKey, ScopeKey)>,
}

impl Said {
    /// By `runner`, of a delivery of `route`.
    pub fn of(runner: &Runner, route: &model::Route, delivery: &Delivery, told: &Result<Inspection, Failure>) -> Self {
        let verdict = |text: String| Self { verdict: text, ids: Vec::new(), failure: None };
        match told {
            Ok(Inspection::Events(events)) => Self::of_events(runner, route, delivery, events),
            Ok(Inspection::Pass(_)) => verdict("pass".to_owned()),
            Ok(Inspection::Respond(reply)) => verdict(format!("respond {}", reply.status.as_u16())),
            Ok(Inspection::Reject { status, .. }) => verdict(format!("reject {}", status.as_u16())),
            Ok(Inspection::Invalid(_)) => verdict("unverified".to_owned()),
            Ok(Inspection::UnsignedRefused) => verdict("unsigned".to_owned()),
            Ok(Inspection::Stale(_)) => verdict("stale".to_owned()),
            Err(failure) => Self::failed(failure.kind),
        }
    }

    fn of_events(runner: &Runner, route: &model::Route, delivery: &Delivery, events: &[Event]) -> Self {
        let (space, version, policy) = (&runner.space, &runner.version, &route.policy);
        let ids = match Identity::all(space, version, delivery, events, policy.body_alias) {
            Err(Unidentifiable::NoKey) if policy.missing_key == OnMissingKey::HashBody => {
                Identity::of_body(space, version, delivery, events).map(|id| vec![id])
            }
            ids => ids,
        };
        match ids {
            Ok(ids) => Self { verdict: "events".to_owned(), ids, failure: None },
            Err(Unidentifiable::NoKey) => Self { verdict: "no-key".to_owned(), ids: Vec::new(), failure: None },
            Err(Unidentifiable::BadNumber(_)) => Self::failed(FailureKind::Contract),
        }
    }

    fn failed(kind: FailureKind) -> Self {
        Self { verdict: format!("failed {kind}"), ids: Vec::new(), failure: Some(kind) }
    }

    /// Whether a redelivery of an event that was forwarded would be forwarded again, since nothing names it.
    fn forwards_unnamed(&self) -> bool {
        ["pass", "no-key"].contains(&self.verdict.as_str())
    }

    /// How `candidate` differs from this, the active version.
    pub fn against(&self, candidate: &Self) -> Difference {
        if candidate.failure.is_some() {
            return Difference { failed: candidate.failure, ..Difference::default() };
        }
        if self.verdict != candidate.verdict {
            let lost = !self.ids.is_empty() && candidate.forwards_unnamed();
            let keys = lost.then(|| NamesDiffer { active: keys(&self.ids), candidate: candidate.verdict.clone() });
            return Difference { verdict: true, keys, ..Difference::default() };
        }
        let (active, candidate) = paired(&self.ids, &candidate.ids);
        let same_count = active.len() == candidate.len();
        let both = || active.iter().zip(&candidate);
        let keys_differ = !same_count || both().any(|(one, other)| bare(&one.key) != bare(&other.key));
        let aliases_differ = same_count && both().any(|(one, other)| aliases(one) != aliases(other));
        let mut material: Vec<String> =
            if same_count { both().flat_map(|(one, other)| one.differing(other)).collect() } else { Vec::new() };
        material.sort_unstable();
        material.dedup();
        Difference {
            failed: None,
            verdict: false,
            keys: keys_differ.then(|| NamesDiffer { active: keys(&active), candidate: keys(&candidate) }),
            aliases: aliases_differ
                .then(|| NamesDiffer { active: other_names(&active), candidate: other_names(&candidate) }),
            material,
            pairs: if same_count {
                both().map(|(one, other)| (bare(&one.key), bare(&other.key))).collect()
            } else {
                Vec::new()
            },
        }
    }
}

/// The events of both side by side: by their keys where these are the same in another order, else as they came.
fn paired<'a>(active: &'a [Identity], candidate: &'a [Identity]) -> (Vec<&'a Identity>, Vec<&'a Identity>) {
    let by_key = |ids: &'a [Identity]| {
        let mut sorted: Vec<&Identity> = ids.iter().collect();
        sorted.sort_by_cached_key(|id| bare(&id.key));
        sorted
    };
    let (one, other) = (by_key(active), by_key(candidate));
    let same =
        one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| bare(&one.key) == bare(&other.key));
    if same { (one, other) } else { (active.iter().collect(), candidate.iter().collect()) }
}

/// A key without its namespace: a candidate that declares another one is compared all the same.
fn bare(key: &ScopeKey) -> ScopeKey {
    ScopeKey { namespace: String::new(), ..key.clone() }
}

fn aliases(id: &Identity) -> Vec<ScopeKey> {
    let mut names: Vec<ScopeKey> = id.aliases.iter().map(bare).collect();
    names.sort_unstable();
    names
}

fn keys<I: std::borrow::Borrow<Identity>>(ids: &[I]) -> String {
    listed(ids.iter().map(|id| id.borrow().key.readable()))
}

fn other_names(ids: &[&Identity]) -> String {
    listed(ids.iter().flat_map(|id| &id.aliases).map(alias))
}

/// An alias as people can read it: it is no key of an upstream's, so that nothing but blanks and controls has to be hidden.
fn alias(name: &ScopeKey) -> String {
    ScopeKey { kind: crate::event::KeyKind::Key, ..name.clone() }.readable_key()
}

/// Names a few of a batch's events.
const LISTED_MAX: usize = 3;

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 if names.is_empty() => "none".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
