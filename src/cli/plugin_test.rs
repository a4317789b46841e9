//! `onceward plugin test`: runs case files through a plugin and compares the decisions.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::case::{Bench, Case, Expect, Outcome};
use crate::event::{Delivery, Event};
use crate::gateway::identity::same_event;
use crate::plugin::{FailureKind, Inspected, Inspection, PluginFault};

/// Runs every case in `cases`, prints a line for each and the sum; gives the exit status: 0, or 1 if any failed.
///
/// # Errors
/// When the plugin or the cases cannot be read, or `out` cannot be written.
pub fn test(plugin: &str, cases: &Path, out: &mut impl Write) -> anyhow::Result<u8> {
    let cases = Case::read_all(cases)?;
    let bench = Bench::new(plugin)?;
    let runs: Vec<(&Case, Result<Run, String>)> = cases.iter().map(|case| (case, Run::of(&bench, case))).collect();
    let by_name: BTreeMap<&str, &Run> =
        runs.iter().filter_map(|(case, run)| Some((case.name.as_str(), run.as_ref().ok()?))).collect();

    let mut failed = 0;
    for (case, run) in &runs {
        let faults = match run {
            Ok(run) => run.faults(&case.expect, &by_name),
            Err(fault) => vec![fault.clone()],
        };
        if faults.is_empty() {
            writeln!(out, "ok    {}", case.name)?;
        } else {
            failed += 1;
            writeln!(out, "FAIL  {}: {}", case.name, faults.join("; "))?;
        }
    }
    writeln!(out, "{} passed, {failed} failed", runs.len() - failed)?;
    Ok(u8::from(failed > 0))
}

/// What a case came to.
struct Run {
    inspected: Inspected,
    delivery: Arc<Delivery>,
}

impl Run {
    fn of(bench: &Bench, case: &Case) -> Result<Self, String> {
        let prepared = bench.prepare(case).map_err(|error| format!("{error:#}"))?;
        Ok(Self { inspected: bench.run(&prepared), delivery: prepared.delivery })
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
            return Vec::new();
        }
        let mut faults: Vec<String> = self.verdict_fault(expect).into_iter().chain(self.kind_fault(expect)).collect();

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
    fn beside(&self, event: &Event, other: &Self, same: fn(&Event, &Event) -> bool) -> Outcome {
        match other.events().iter().find(|earlier| same(event, earlier)) {
            None => Outcome::New,
            Some(earlier) if same_event((&self.delivery, event), (&other.delivery, earlier)) => Outcome::Duplicate,
            Some(_) => Outcome::Conflict,
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

/// By the key alone; no key is equal to none.
fn same_key(one: &Event, two: &Event) -> bool {
    !one.key.is_empty() && one.key == two.key
}

/// By the aliases alone.
fn share_alias(one: &Event, two: &Event) -> bool {
    one.aliases.iter().any(|alias| two.aliases.contains(alias))
}
