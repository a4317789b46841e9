//! The columns that hold more than one value, as JSON: a key, an event's history, a quarantine.

use serde::{Deserialize, Serialize};

use crate::event::{KeyKind, ScopeKey, Timestamp};
use crate::idempotency::history::{Attempt, Step, Verb};
use crate::idempotency::record::{FailureClass, Status, UnknownReason};

/// A key whole, so that it can be read back where a store names records by a digest.
#[derive(Serialize, Deserialize)]
struct Key {
    tenant: String,
    scope: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    kind: String,
    key: Vec<String>,
}

pub(in crate::store) fn key(key: &ScopeKey) -> String {
    super::json(&Key {
        tenant: key.tenant.clone(),
        scope: key.scope.clone(),
        namespace: key.namespace.clone(),
        kind: key.kind.as_str().to_owned(),
        key: key.parts.clone(),
    })
}

pub(in crate::store) fn parse_key(text: &str) -> Option<ScopeKey> {
    let key: Key = serde_json::from_str(text).ok()?;
    let kind = KeyKind::parse(&key.kind)?;
    Some(ScopeKey { tenant: key.tenant, scope: key.scope, namespace: key.namespace, kind, parts: key.key })
}

#[derive(Serialize, Deserialize)]
struct Mismatch {
    fields: Vec<String>,
    count: u64,
    first_at: u64,
}

pub(super) fn mismatch(fields: &[String], count: u64, first_at: Timestamp) -> String {
    super::json(&Mismatch { fields: fields.to_vec(), count, first_at: first_at.as_micros() })
}

pub(super) fn parse_mismatch(text: &str) -> Option<(Vec<String>, u64, Timestamp)> {
    let mismatch: Mismatch = serde_json::from_str(text).ok()?;
    Some((mismatch.fields, mismatch.count, Timestamp::from_micros(mismatch.first_at)))
}

/// One step. An operator's has `verb`, an attempt's `attempt`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Note {
    Operator {
        verb: String,
        by: String,
        at: u64,
    },
    Attempt {
        attempt: u32,
        fence: u64,
        event: String,
        started_at: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        finished_at: Option<u64>,
        status: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status_code: Option<u16>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

pub(super) fn history(steps: &[Step]) -> String {
    super::json(&steps.iter().map(note).collect::<Vec<_>>())
}

fn note(step: &Step) -> Note {
    match step {
        Step::Operator { verb, by, at } => {
            Note::Operator { verb: verb.as_str().to_owned(), by: by.clone(), at: at.as_micros() }
        }
        Step::Attempt(attempt) => Note::Attempt {
            attempt: attempt.attempt,
            fence: attempt.fence,
            event: attempt.event.clone(),
            started_at: attempt.started_at.as_micros(),
            finished_at: attempt.finished_at.map(Timestamp::as_micros),
            status: attempt.status.as_str().to_owned(),
            class: attempt.class.map(|class| class.as_str().to_owned()),
            reason: attempt.reason.map(|reason| reason.as_str().to_owned()),
            status_code: attempt.upstream_status,
            error: attempt.error.clone(),
        },
    }
}

pub(super) fn parse_history(text: &str) -> Option<Vec<Step>> {
    let notes: Vec<Note> = serde_json::from_str(text).ok()?;
    notes.into_iter().map(step).collect()
}

fn step(note: Note) -> Option<Step> {
    Some(match note {
        Note::Operator { verb, by, at } => {
            Step::Operator { verb: Verb::parse(&verb)?, by, at: Timestamp::from_micros(at) }
        }
        Note::Attempt { attempt, fence, event, started_at, finished_at, status, class, reason, status_code, error } => {
            Step::Attempt(Attempt {
                attempt,
                fence,
                event,
                started_at: Timestamp::from_micros(started_at),
                finished_at: finished_at.map(Timestamp::from_micros),
                status: Status::parse(&status)?,
                class: parsed(class, FailureClass::parse)?,
                reason: parsed(reason, UnknownReason::parse)?,
                upstream_status: status_code,
                error,
            })
        }
    })
}

/// None when there is a word and it is none that is known.
fn parsed<T>(word: Option<String>, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match word {
        Some(word) => parse(&word).map(Some),
        None => Some(None),
    }
}
