//! Cases through a plugin: what it decides, compared with what each case expects, and with itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::case::{Beside, Case, CaseFault, Expect};
use crate::event::{Delivery, Event};
use crate::gateway::identity::same_event;
use crate::plugin::{Budget, FailureKind, Inspected, Inspection, Plugin, PluginFault, Usage};

/// What came of one case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case's name.
    pub name: String,
    /// How it differs from what it expects; empty when it does not.
    pub faults: Vec<String>,
    /// What its call used; none when the case could not be run.
    pub usage: Option<Usage>,
}

/// Runs every case twice, each time in a fresh instance, and compares: with what it expects, and the second time with the first, since
/// a plugin that answers differently to the same bytes would make one event two.
pub async fn trial(plugin: &Plugin, cases: &[Case], budget: Budget) -> Vec<Outcome> {
    let mut runs = Vec::new();
    for case in cases {
        runs.push((case, Run::of(plugin, case, budget).await));
    }
    let by_name: BTreeMap<&str, &Run> =
        runs.iter().filter_map(|(case, run)| Some((case.name.as_str(), run.as_ref().ok()?))).collect();
    let outcome = |(case, run): &(&Case, Result<Run, CaseFault>)| match run {
        Ok(run) => Outcome {
            name: case.name.clone(),
            faults: run.faults(&case.expect, &by_name),
            usage: Some(run.inspected.usage),
        },
        Err(fault) => Outcome { name: case.name.clone(), faults: vec![fault.to_string()], usage: None },
    };
    runs.iter().map(outcome).collect()
}

/// What a case came to.
struct Run {
    inspected: Inspected,
    /// How the second run differed from the first.
    unsteady: Option<String>,
    delivery: Arc<Delivery>,
}

impl Run {
    async fn of(plugin: &Plugin, case: &Case, budget: Budget) -> Result<Self, CaseFault> {
        let prepared = case.prepare(plugin, budget).await?;
        let (inspected, again) = (prepared.run(plugin).await, prepared.run(plugin).await);
        Ok(Self { unsteady: difference(&inspected, &again), inspected, delivery: prepared.delivery })
    }

    fn events(&self) -> &[Event] {
        match &self.inspected.result {
            Ok(Inspection::Events(events)) => events,
            _ => &[],
        }
    }

    /// How it differs from what was expected.
    fn faults(&self, expect: &Expect, others: &BTreeMap<&str, &Self>) -> Vec<String> {
        if expect.reject_ok && self.is_clean_refusal() {
            return self.unsteady.iter().cloned().collect();
        }
        let mut faults: Vec<String> = self.unsteady.iter().cloned().collect();
        faults.extend(self.verdict_fault(expect).into_iter().chain(self.kind_fault(expect)));

        let keys: Vec<&[String]> = self.events().iter().map(|event| event.key.as_slice()).collect();
        let expected: Vec<&[String]> = expect.items.iter().map(|item| item.key_parts.as_slice()).collect();
        if keys != expected {
            faults.push(format!("keys {keys:?}, expected {expected:?}"));
        }

        for versus in &expect.vs {
            let Some(other) = others.get(versus.case.as_str()) else {
                faults.push(format!("`vs` names {}, which is not among the cases", versus.case));
                continue;
            };
            let outcomes: Vec<_> = self.events().iter().map(|event| self.beside(event, other, same_key)).collect();
            if outcomes != versus.outcomes {
                faults.push(format!("after {}: {outcomes:?}, expected {:?}", versus.case, versus.outcomes));
            }
        }
        for (name, expected) in &expect.alias_vs {
            let Some(other) = others.get(name.as_str()) else {
                faults.push(format!("`alias_vs` names {name}, which is not among the cases"));
                continue;
            };
            let outcomes: Vec<_> = self.events().iter().map(|event| self.beside(event, other, share_alias)).collect();
            if outcomes.is_empty() || outcomes.iter().any(|outcome| outcome != expected) {
                faults.push(format!("by alias after {name}: {outcomes:?}, expected {expected:?}"));
            }
        }
        faults
    }

    fn verdict_fault(&self, expect: &Expect) -> Option<String> {
        if expect.kind.as_deref() == Some("handshake") {
            return None;
        }
        let expired = expect.reason == "expired";
        let stale = matches!(self.inspected.result, Ok(Inspection::Stale(_)));
        if self.inspected.verified == expect.verified && stale == expired && !self.is_broken() {
            return None;
        }
        let told = match &self.inspected.result {
            Ok(Inspection::Invalid(refusal)) => format!("invalid ({}: {})", refusal.reason.as_str(), refusal.detail),
            Ok(Inspection::Stale(seconds)) => format!("stale by {seconds} s"),
            Ok(_) if self.inspected.verified => "verified".into(),
            Ok(_) => "not verified".into(),
            Err(failure) => failure.to_string(),
        };
        Some(format!("{told}, expected {}", if expect.verified { "verified" } else { expect.reason.as_str() }))
    }

    fn kind_fault(&self, expect: &Expect) -> Option<String> {
        match (expect.kind.as_deref(), &self.inspected.result) {
            (Some("handshake"), Ok(Inspection::Respond(reply))) => {
                let status = reply.status.as_u16();
                let exact = expect.respond.status.is_none_or(|expected| expected == status);
                let class = expect.respond.success.as_deref().and_then(|class| class.strip_suffix("xx"));
                let fits = class.is_none_or(|class| class == (status / 100).to_string());
                (!exact || !fits).then(|| format!("answers {status}"))
            }
            (Some("handshake"), _) => Some("a handshake that is not answered".into()),
            // An operator may allow such pings, or not: they are refused, answered or passed on, but never an event.
            (Some("thin-ping"), Ok(Inspection::Events(events))) if !events.is_empty() => {
                Some("a thin ping became an event".into())
            }
            (None, Ok(Inspection::Respond(_) | Inspection::Pass(_))) => Some("an event was taken for none".into()),
            _ => None,
        }
    }

    /// What an event of this run is where only `other` came before.
    fn beside(&self, event: &Event, other: &Self, same: fn(&Event, &Event) -> bool) -> Beside {
        match other.events().iter().find(|earlier| same(event, earlier)) {
            None => Beside::New,
            Some(earlier) if same_event((&self.delivery, event), (&other.delivery, earlier)) => Beside::Duplicate,
            Some(_) => Beside::Conflict,
        }
    }

    /// A 4xx of which nothing is kept.
    fn is_clean_refusal(&self) -> bool {
        match &self.inspected.result {
            Ok(Inspection::Invalid(_) | Inspection::Stale(_) | Inspection::Reject { .. }) => true,
            Err(failure) => failure.kind == FailureKind::PluginError(PluginFault::Malformed),
            Ok(_) => false,
        }
    }

    /// A sender's nonsense may be called malformed; any other failure is the plugin's.
    fn is_broken(&self) -> bool {
        self.inspected.result.is_err() && !self.is_clean_refusal()
    }
}

/// How a second run of the same request differs.
fn difference(first: &Inspected, again: &Inspected) -> Option<String> {
    let same = match (&first.result, &again.result) {
        (Ok(one), Ok(two)) => one == two,
        (Err(one), Err(two)) => one.kind == two.kind,
        _ => false,
    };
    if !same || first.verified != again.verified {
        return Some("a second run of the same request decided otherwise".to_owned());
    }
    let (one, two) = (first.usage.fuel.used, again.usage.fuel.used);
    (one != two).then(|| format!("a second run of the same request used {two} fuel, the first one {one}"))
}

/// By the key alone; no key is equal to none.
fn same_key(one: &Event, two: &Event) -> bool {
    !one.key.is_empty() && one.key == two.key
}

/// By the aliases alone.
fn share_alias(one: &Event, two: &Event) -> bool {
    one.aliases.iter().any(|alias| two.aliases.contains(alias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Used;

    fn inspected(why: &str, verified: bool, fuel: u64) -> Inspected {
        let usage = Usage { fuel: Used { used: fuel, limit: 9 }, ..Usage::default() };
        Inspected {
            result: Ok(Inspection::Pass(why.to_owned())),
            verified,
            usage,
            log: Vec::new(),
            teardown: std::time::Duration::ZERO,
        }
    }

    /// No guest can do this as long as it has neither clock nor chance; the gate looks all the same.
    #[test]
    fn a_second_run_must_decide_and_cost_the_same() {
        let first = inspected("a", true, 5);
        assert_eq!(difference(&first, &inspected("a", true, 5)), None);
        for (again, said) in [
            (inspected("b", true, 5), "decided otherwise"),
            (inspected("a", false, 5), "decided otherwise"),
            (inspected("a", true, 6), "used 6 fuel, the first one 5"),
        ] {
            let told = difference(&first, &again).unwrap();
            assert!(told.contains(said), "{told}");
        }
    }
}
