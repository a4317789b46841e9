//! `[idempotency]` and `[routes.idempotency]`: the same keys, the route's over the defaults, key by key.

use std::time::Duration;

use figment::value::Value;

use crate::config::fault::Problem;
use crate::config::raw::Table;
use crate::config::values::{self, word};
use crate::idempotency::Policy;
use crate::idempotency::policy::{
    FinalStatuses, InFlight, KeepRequest, OnFailed, OnMissingKey, OnPluginFailure, OnStoreDown, OnUnknown, Replay,
    ReplayBody,
};

/// Reads a policy. Without encryption keys (`encrypted`), no request may be kept.
pub(super) fn policy(table: &mut Table<'_>, encrypted: bool) -> Option<Policy> {
    let window = table.read("window", values::positive);
    let lease = table.read("lease", lease);
    let missing_key = table.read(
        "missing_key",
        word(&[("reject", OnMissingKey::Reject), ("pass", OnMissingKey::Pass), ("hash-body", OnMissingKey::HashBody)]),
    );
    let in_flight = table.sub("in_flight", in_flight);
    let mismatch_status = table.sub("mismatch", |table| table.read("status", values::status(&[409, 422, 202])));
    let unknown = table.read("unknown", word(&[("retry", OnUnknown::Retry), ("hold", OnUnknown::Hold)]));
    let failed = table.read(
        "failed",
        word(&[("retry", OnFailed::Retry), ("replay", OnFailed::Replay), ("dead-letter", OnFailed::DeadLetter)]),
    );
    let max_attempts = table.read("max_attempts", values::count_u32);
    let body_alias = table.read("body_alias", values::flag);
    let failed_window = table.read("failed_window", values::positive);
    let final_statuses = final_statuses(table);
    let store_down =
        table.read("store_down", word(&[("reject", OnStoreDown::Reject), ("forward", OnStoreDown::Forward)]));
    let plugin_failure = table.read(
        "plugin_failure",
        word(&[
            ("reject", OnPluginFailure::Reject),
            ("forward", OnPluginFailure::Forward),
            ("previous", OnPluginFailure::Previous),
        ]),
    );
    let keep_request = keep_request(table, encrypted);
    let replay = table.sub("replay", replay);
    Some(Policy {
        window: window?,
        lease: lease?,
        missing_key: missing_key?,
        in_flight: in_flight?,
        mismatch_status: mismatch_status?,
        unknown: unknown?,
        failed: failed?,
        max_attempts: max_attempts?,
        body_alias: body_alias?,
        failed_window: failed_window?,
        final_statuses: final_statuses?,
        store_down: store_down?,
        plugin_failure: plugin_failure?,
        keep_request: keep_request?,
        replay: replay?,
    })
}

/// An open event is remembered for a day at least (see [`Policy::open_ttl`]): a longer lease could outlive its record, and then a
/// second claim would meet nothing.
fn lease(value: &Value) -> Result<Duration, Problem> {
    match values::positive(value)? {
        lease if lease > Duration::from_hours(24) => Err(Problem::new("is longer than a day").hint("at most \"24h\"")),
        // Renewed every third of it: a shorter one dies with the first slow answer of the store.
        lease if lease < Duration::from_millis(100) => {
            Err(Problem::new("is too short to be renewed").hint("at least \"100ms\""))
        }
        lease => Ok(lease),
    }
}

fn in_flight(table: &mut Table<'_>) -> Option<InFlight> {
    let wait = table.read("wait", values::duration);
    let status = table.read("status", values::status(&[409, 425, 429, 503]));
    Some(InFlight { wait: wait?, status: status? })
}

fn final_statuses(table: &mut Table<'_>) -> Option<FinalStatuses> {
    let rules = table.list("final", |value| {
        let rule = values::text(value)?;
        FinalStatuses::parse([rule.as_str()]).map_err(|fault| Problem::new(fault.to_string()))?;
        Ok(rule)
    })?;
    // Each rule was parsed above.
    FinalStatuses::parse(rules.iter().map(String::as_str)).ok()
}

fn keep_request(table: &mut Table<'_>, encrypted: bool) -> Option<KeepRequest> {
    let item = table.take("keep_request")?;
    let keep = item.read(word(&[("never", KeepRequest::Never), ("attention", KeepRequest::Attention)]))?;
    if keep == KeepRequest::Attention && !encrypted {
        item.fault(Problem::new("requests are kept encrypted only").hint("set store.encryption_keys"));
    }
    Some(keep)
}

fn replay(table: &mut Table<'_>) -> Option<Replay> {
    let body_item = table.take("body");
    let choices = word(&[("full", ReplayBody::Full), ("reference", ReplayBody::Reference), ("none", ReplayBody::None)]);
    let body = body_item.as_ref().and_then(|item| item.read(choices));
    let max_body = table.read("max_body", values::size);
    let drop_headers = table.list("drop_headers", header_name);
    let redact = table.list("redact", values::pointer);
    let resource_item = table.take("resource_id");
    let resource_id = resource_item.as_ref().and_then(|item| {
        item.read(|value| match value.as_str() {
            Some("") => Ok(String::new()),
            _ => values::pointer(value),
        })
    });
    if let (Some(item), Some(ReplayBody::Reference), Some("")) = (&body_item, body, resource_id.as_deref()) {
        item.fault(
            Problem::new("a reference needs to know where the id stands").hint("set resource_id to its JSON pointer"),
        );
    }
    if let (Some(item), Some(redact), Some(resource_id)) = (&resource_item, &redact, &resource_id)
        && redact.iter().any(|pointer| lies_in(resource_id, pointer))
    {
        item.fault(Problem::new("the id would stand in what `redact` removes").hint("point to what may be kept"));
    }
    Some(Replay {
        body: body?,
        max_body: max_body?,
        drop_headers: drop_headers?,
        redact: redact?,
        resource_id: resource_id?,
    })
}

/// Whether a JSON pointer leads to or into what another one names.
fn lies_in(pointer: &str, whole: &str) -> bool {
    pointer.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn header_name(value: &Value) -> Result<String, Problem> {
    let text = values::text(value)?;
    let name = http::HeaderName::try_from(text.as_str());
    name.map(|name| name.as_str().to_owned())
        .map_err(|_| Problem::new(format!("{} is not a header's name", values::quote(&text))))
}
