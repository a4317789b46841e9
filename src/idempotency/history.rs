//! What happened to an event before its present attempt, kept with its record for people.

use crate::event::Timestamp;

use super::record::{FailureClass, Record, State, Status, UnknownReason};

/// The most steps that are kept; the oldest go first.
pub const STEPS_MAX: usize = 20;

/// One thing that happened to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt that is over.
    Attempt(Attempt),
    /// An operator's doing.
    Operator {
        /// What was done.
        verb: Verb,
        /// The name of the operator's token.
        by: String,
        /// When, on the store's clock.
        at: Timestamp,
    },
}

/// An attempt that is over, without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
    /// The delivery that made it.
    pub event: String,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When its outcome was written; none: its owner vanished.
    pub finished_at: Option<Timestamp>,
    /// What it left.
    pub status: Status,
    /// How it failed.
    pub class: Option<FailureClass>,
    /// Why nobody knows.
    pub reason: Option<UnknownReason>,
    /// What the upstream answered.
    pub upstream_status: Option<u16>,
    /// For people.
    pub error: Option<String>,
}

/// What an operator may do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// The next delivery may claim.
    Release,
    /// It counts as done.
    Succeed,
    /// The kept request is sent again.
    Redeliver,
}

impl Verb {
    /// The word that stores, logs and the API use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Succeed => "succeed",
            Self::Redeliver => "redeliver",
        }
    }

    /// The verb of a word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Release, Self::Succeed, Self::Redeliver].into_iter().find(|verb| verb.as_str() == word)
    }
}

impl Attempt {
    /// The attempt that a record tells of.
    pub fn of(record: &Record) -> Self {
        let (class, reason, response) = match &record.state {
            State::Failed { class, response } => (Some(*class), None, response.as_ref()),
            State::Unknown { reason } => (None, Some(*reason), None),
            State::Succeeded { response } => (None, None, Some(response)),
            State::Processing | State::Alias { .. } | State::Mismatch { .. } => (None, None, None),
        };
        Self {
            attempt: record.attempt,
            fence: record.fence,
            event: record.owner.0.clone(),
            started_at: record.started_at,
            finished_at: record.finished_at,
            status: record.state.status(),
            class,
            reason,
            upstream_status: response.map(|response| response.status),
            error: record.error.clone(),
        }
    }
}

/// A record's history with one more step.
pub fn with(history: &[Step], step: Step) -> Vec<Step> {
    let kept = history.iter().skip((history.len() + 1).saturating_sub(STEPS_MAX));
    kept.cloned().chain([step]).collect()
}
