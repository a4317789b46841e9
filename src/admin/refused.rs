//! What the desk for plugins refuses, as problem documents.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::deploy::evidence::Evidence;
use crate::deploy::gate::Unfit;

use super::replays::ReplayView;
use crate::deploy::{NotNow, Refused};

/// Status, code, title and detail.
pub(super) fn words(why: &Refused) -> (StatusCode, &'static str, &'static str, String) {
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let (status, code, title) = match why {
        Refused::Absent(_) => (StatusCode::NOT_FOUND, "not-found", "Nothing here"),
        Refused::NotNow(_) => (StatusCode::TOO_MANY_REQUESTS, "rate-limited", "Too many uploads"),
        Refused::Unfit(Unfit::TooLarge(_)) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The plugin is too large")
        }
        Refused::Unfit(Unfit::NoPlugin(_)) => {
            (unprocessable, "plugin-refused", "The upload is no plugin for this gateway")
        }
        Refused::Unfit(Unfit::Cases { .. }) => (unprocessable, "cases-failed", "The plugin fails its own cases"),
        Refused::Unfit(Unfit::Host(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, "compiler-unavailable", "The plugin could not be compiled now")
        }
        Refused::Quota { .. } => (unprocessable, "quota-exceeded", "The tenant's code is as large as it may be"),
        Refused::Routes(_) => (unprocessable, "config-refused", "The version does not fit the configuration"),
        Refused::Unprepared(_) => (unprocessable, "version-unusable", "The version cannot be used"),
        Refused::Case(_) => (unprocessable, "case-refused", "The request cannot be run"),
        Refused::Keys(_) => (StatusCode::CONFLICT, "keys-differ", "The version gives other keys"),
        Refused::Conflict(_) => (StatusCode::CONFLICT, "conflict", "Not as things are"),
        Refused::Registry(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "registry-unavailable", "The plugin registry cannot answer")
        }
    };
    let detail = match why {
        Refused::Routes(faults) => {
            let faults: Vec<String> = faults.iter().map(|(path, problem)| format!("{path}: {problem}")).collect();
            format!("{why}: {}", faults.join("; "))
        }
        Refused::Unfit(Unfit::Cases { failed, .. }) => {
            let failed: Vec<String> =
                failed.iter().map(|one| format!("{}: {}", one.name, one.faults.join("; "))).collect();
            format!("{why}. {}", failed.join(". "))
        }
        Refused::Registry(_) => format!("{why}. Nothing is known to have changed. Look at the plugin, then try again."),
        _ => why.to_string(),
    };
    (status, code, title, detail)
}

/// What the document has beside the usual members.
pub(super) fn members(why: &Refused) -> Map<String, Value> {
    let (name, list): (&str, Vec<Value>) = match why {
        Refused::Routes(faults) => {
            ("faults", faults.iter().map(|(path, problem)| json!({ "path": path, "problem": problem })).collect())
        }
        Refused::Unfit(Unfit::Cases { failed, .. }) => {
            ("cases", failed.iter().map(|one| json!({ "name": one.name, "faults": one.faults })).collect())
        }
        Refused::Keys(evidence) => return of_evidence(evidence),
        _ => return Map::new(),
    };
    Map::from_iter([(name.to_owned(), Value::Array(list))])
}

/// When to try again, in whole seconds.
pub(super) fn retry_after_seconds(why: &Refused) -> Option<u64> {
    match why {
        Refused::NotNow(NotNow::Busy) => Some(1),
        Refused::NotNow(NotNow::Rate { after, .. }) => Some(after.as_secs() + 1),
        Refused::Registry(_) | Refused::Unfit(Unfit::Host(_)) => Some(2),
        _ => None,
    }
}

fn of_evidence(evidence: &Evidence) -> Map<String, Value> {
    let live = evidence.live.as_ref().map(|report| ("shadow".to_owned(), json!(report.summary())));
    let replay = evidence.replay.as_ref().map(|found| ("replay".to_owned(), json!(ReplayView::of(found))));
    live.into_iter().chain(replay).collect()
}
