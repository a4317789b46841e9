//! What an auditor must be able to find: each such event is one line of the target `onceward::audit`, with a `kind` that stays,
//! and one count. Both are made here, so that they cannot differ.

use metrics::counter;

use crate::event::ScopeKey;
use crate::idempotency::Claim;
use crate::idempotency::history::Verb;
use crate::idempotency::record::UnknownReason;

use super::breaker::Change;
use super::dedupe::Held;

/// The counters of this file that have a tenant and a route.
pub const COUNTERS: [&str; 3] =
    ["onceward_lease_lost_total", "onceward_unknown_outcomes_total", "onceward_finalise_failures_total"];

/// Writes a line about a claim.
macro_rules! about {
    ($level:ident, $kind:literal, $held:expr, $text:literal $(, $name:ident = $value:expr)*) => {
        tracing::$level!(
            target: "onceward::audit",
            kind = $kind,
            tenant = $held.key.tenant,
            route = $held.claim.route,
            idempotency_key = %$held.key,
            event = %$held.claim.owner,
            fence = $held.claim.fence,
            attempt = $held.claim.attempt,
            $($name = $value,)*
            $text
        )
    };
}

fn count(name: &'static str, held: &Held) {
    counter!(name, "tenant" => held.key.tenant.clone(), "route" => held.claim.route.clone()).increment(1);
}

/// This claim forwards, although an earlier attempt may have reached the upstream.
pub fn second_forward(held: &Held) {
    about!(warn, "second_forward", held, "an earlier attempt may have reached the upstream: this is a further one");
}

/// Another owner took the event over before this claim's outcome was written.
pub fn lease_lost(held: &Held, by: Option<u64>) {
    count("onceward_lease_lost_total", held);
    about!(warn, "lease_lost", held, "another owner has the event", by = by);
}

/// A version of a plugin is left alone, or serves again.
pub(super) fn breaker(tenant: &str, plugin: &str, version: &str, change: Change) {
    const NAME: &str = "onceward_plugin_breaker_transitions_total";
    let to = if change == Change::On { "on" } else { "off" };
    counter!(NAME, "tenant" => tenant.to_owned(), "plugin" => plugin.to_owned(), "to" => to).increment(1);
    match change {
        Change::Off { calls, failures } => tracing::error!(
            target: "onceward::audit", kind = "breaker_off", tenant, plugin, version, calls, failures,
            "the plugin fails too often: its previous version serves if there is one, else its deliveries are refused"
        ),
        Change::On => tracing::warn!(
            target: "onceward::audit", kind = "breaker_on", tenant, plugin, version, "the plugin serves again"
        ),
    }
}

/// Nobody knows whether an attempt took effect.
pub fn unknown_outcome(held: &Held, reason: UnknownReason) {
    count("onceward_unknown_outcomes_total", held);
    about!(warn, "unknown_outcome", held, "nobody knows whether the attempt took effect", reason = reason.as_str());
}

/// The store did not take an outcome while the lease ran.
pub fn finalise_failure(held: &Held) {
    count("onceward_finalise_failures_total", held);
    about!(
        error,
        "finalise_failure",
        held,
        "the outcome was not written while the lease ran: a redelivery may be forwarded again"
    );
}

/// Another event came under a known key.
pub fn mismatch(tenant: &str, route: &str, event: &str, idempotency_key: &str, fields: &str) {
    // Somebody should look: a correction under an old key is lost as long as nobody does.
    tracing::warn!(
        target: "onceward::audit",
        kind = "mismatch",
        tenant,
        route,
        event,
        idempotency_key,
        fields,
        "another event came under a known key"
    );
}

/// The store has forgotten everything: what was known is first-seen again.
pub fn window_reset(before: &str, now: &str) {
    counter!("onceward_window_resets_total").increment(1);
    tracing::error!(
        target: "onceward::audit",
        kind = "window_reset",
        epoch_before = before,
        epoch = now,
        "the store was emptied: events from before are first-seen again, and may be forwarded a second time"
    );
}

/// What an operator did, or was refused.
pub fn operator(by: &str, key: &ScopeKey, verb: Verb, result: &str, claim: Option<&Claim>) {
    tracing::info!(
        target: "onceward::audit",
        kind = "operator",
        by,
        tenant = key.tenant,
        scope = key.scope,
        route = claim.map(|claim| claim.route.as_str()),
        idempotency_key = %key,
        event = claim.map(|claim| claim.owner.0.as_str()),
        fence = claim.map(|claim| claim.fence),
        attempt = claim.map(|claim| claim.attempt),
        verb = verb.as_str(),
        result,
        "an operator's verb"
    );
}

/// An operator deleted what a route had captured on this machine.
pub fn captures_erased(by: &str, tenant: &str, route: &str, erased: usize) {
    tracing::info!(
        target: "onceward::audit",
        kind = "operator",
        by,
        tenant,
        route,
        verb = "erase-captures",
        erased,
        "captured requests were deleted"
    );
}

/// What somebody did with a tenant's plugin, or was refused. `plugin` is `TENANT/NAME`.
pub fn plugin(by: &str, plugin: &str, verb: &str, result: &str, digest: Option<&str>, generation: Option<u64>) {
    tracing::info!(
        target: "onceward::audit",
        kind = "operator",
        by,
        tenant = plugin.split('/').next(),
        plugin,
        digest,
        generation,
        verb,
        result,
        "an operator's verb"
    );
}
