//! What an operator may do with an event, as pure functions like those of the machine.

use crate::event::{StoredResponse, Timestamp};

use super::history::{self, Attempt, Step, Verb};
use super::machine::Plan;
use super::policy::Policy;
use super::record::{Draft, Expect, FailureClass, Fence, Lease, Record, State, Ttl};

/// Why an operator's wish is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its answer is being replayed: nothing may change that.
    #[error("the event has succeeded; its answer stands until the window ends")]
    Succeeded,
    /// A forward may be under way.
    #[error("the event is being forwarded now; wait for the end of its lease")]
    Running {
        /// When the lease ends.
        until: Timestamp,
    },
    /// There is nothing to send again.
    #[error("no request was kept for the event; release it, then let the sender resend")]
    NoRequest,
    /// An alias, or a quarantined mismatch.
    #[error("this is no event of its own")]
    NotAnEvent,
}

/// The next delivery may claim, whatever it holds; attempt and fence go on.
///
/// # Errors
/// [`Refusal`] when the event succeeded or runs.
pub fn release(record: &Record, by: &str, now: Timestamp, policy: &Policy) -> Result<(Expect, Draft), Refusal> {
    let expect = expect(record, now)?;
    let state = match &record.state {
        failed @ State::Failed { .. } => failed.clone(),
        _ => State::Failed { class: FailureClass::Transient, response: None },
    };
    let draft = Draft {
        released: true,
        ambiguous: record.ambiguous || !matches!(record.state, State::Failed { .. }),
        ..draft(record, state, Verb::Release, by, now, Ttl::AtLeast(policy.open_ttl()))
    };
    Ok((expect, draft))
}

/// The event counts as done: `response` is what redeliveries get.
///
/// # Errors
/// [`Refusal`] when the event succeeded already or runs.
pub fn succeed(
    record: &Record,
    response: StoredResponse,
    by: &str,
    now: Timestamp,
    policy: &Policy,
) -> Result<(Expect, Draft), Refusal> {
    let expect = expect(record, now)?;
    let state = State::Succeeded { response };
    let draft = draft(record, state, Verb::Succeed, by, now, Ttl::Exactly(policy.window));
    Ok((expect, Draft { request: None, ..draft }))
}

/// A further attempt with the kept request.
///
/// # Errors
/// [`Refusal`], also when no request was kept.
pub fn redeliver(record: &Record, by: &str, now: Timestamp) -> Result<Plan, Refusal> {
    let expect = expect(record, now)?;
    if record.request.is_none() {
        return Err(Refusal::NoRequest);
    }
    let unsent = matches!(record.state, State::Failed { class: FailureClass::Unsent, .. });
    Ok(Plan {
        expect,
        attempt: if unsent { record.attempt } else { record.attempt.saturating_add(1) },
        ambiguous: record.ambiguous || !matches!(record.state, State::Failed { .. }),
        history: told(record, Verb::Redeliver, by, now),
    })
}

fn expect(record: &Record, now: Timestamp) -> Result<Expect, Refusal> {
    let lease = match &record.state {
        State::Succeeded { .. } => return Err(Refusal::Succeeded),
        State::Alias { .. } | State::Mismatch { .. } => return Err(Refusal::NotAnEvent),
        State::Processing if now < record.lease_until => return Err(Refusal::Running { until: record.lease_until }),
        State::Processing => Lease::Over,
        State::Failed { .. } | State::Unknown { .. } => Lease::Any,
    };
    Ok(Expect::At { revision: record.revision(), lease })
}

fn draft(record: &Record, state: State, verb: Verb, by: &str, now: Timestamp, ttl: Ttl) -> Draft {
    Draft {
        state,
        fingerprint: record.fingerprint.clone(),
        owner: record.owner.clone(),
        fence: Fence::Keep,
        attempt: record.attempt,
        lease: None,
        ttl,
        released: false,
        ambiguous: record.ambiguous,
        error: record.error.clone(),
        plugin: record.plugin.clone(),
        route: record.route.clone(),
        history: told(record, verb, by, now),
        request: record.request.clone(),
    }
}

/// The record's history with its own attempt, unless that stands there already, and what the operator does now.
fn told(record: &Record, verb: Verb, by: &str, at: Timestamp) -> Vec<Step> {
    let mut steps = record.history.clone();
    if !record.released {
        steps = history::with(&steps, Step::Attempt(Attempt::of(record)));
    }
    history::with(&steps, Step::Operator { verb, by: by.to_owned(), at })
}

#[cfg(test)]
mod tests;
