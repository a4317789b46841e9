//! What is allowed and probably a mistake.

mod sender;

use std::time::Duration;

pub use self::sender::span;
use super::fault::Notice;
use super::model::{Config, PluginRef, Route, StoreUrl, Unsigned};
use super::senders;
use crate::idempotency::policy::OnStoreDown;

/// Payment providers redeliver for up to three days.
const WINDOW_MIN: Duration = Duration::from_hours(3 * 24);
/// Senders give up on an answer after some ten seconds, and a waiter then only costs.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A common server closes its idle connections about then: the gateway would send into a closing one.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Each setting that deserves a second look.
pub fn lint(config: &Config) -> Vec<Notice> {
    let mut warnings = Vec::new();
    let mut warn = |path: String, text: &str| warnings.push(Notice::new(path, text));
    if config.routes.is_empty() {
        warn("routes".to_owned(), "there is no route: every request is answered 404");
    }
    if config.store.url == StoreUrl::Memory {
        warn(
            "store.url".to_owned(),
            "memory: is for development only; a restart forgets every event, and duplicates are forwarded again",
        );
    }
    for path in &config.inline_secrets {
        warn(path.clone(), "the secret stands in the configuration itself; use env or file outside of tests");
    }
    for (name, upstream) in &config.upstreams {
        if upstream.idle_timeout >= IDLE_MAX {
            let text = "60 s or more is longer than most servers keep an idle connection, and a forward into a closing one has an unknown outcome";
            warn(format!("upstreams.{name}.idle_timeout"), text);
        }
    }
    for (at, route) in config.routes.iter().enumerate() {
        of_route(config, route, |key, text| warn(format!("routes[{at}].{key}"), text));
    }
    warnings
}

fn of_route(config: &Config, route: &Route, mut warn: impl FnMut(&str, &str)) {
    let policy = &route.policy;
    let json_unverified = route.plugin == PluginRef::Bundled("json".to_owned())
        && route.plugin_config.get("verify").is_none_or(serde_json::Value::is_null);
    match route.unsigned {
        Some(Unsigned::Reject) if json_unverified => {
            warn("unsigned", "without `verify` in plugin_config nothing is signed, so this refuses every delivery");
        }
        _ if json_unverified => {
            warn(
                "plugin_config",
                "without `verify` the sender is not authenticated: anyone can send events to this route",
            );
        }
        _ => {}
    }
    let sender = match &route.plugin {
        PluginRef::Bundled(name) => senders::sender(name),
        PluginRef::Uploaded { .. } | PluginRef::File(_) => None,
    };
    if let Some(sender) = sender {
        sender::of_sender(config, route, sender, &mut warn);
    }
    // What is known of the sender itself is better than what most of them do.
    if policy.window < WINDOW_MIN && sender.is_none_or(|sender| sender.retries_for.is_none()) {
        warn(
            "idempotency.window",
            "shorter than 3 days; a later redelivery counts as a new event, and payment providers retry for days",
        );
    }
    if policy.in_flight.wait > WAIT_MAX && sender.is_none_or(|sender| sender.waits.is_none()) {
        warn("idempotency.in_flight.wait", "longer than 10 s, when most senders have given up already");
    }
    if policy.store_down == OnStoreDown::Forward {
        warn(
            "idempotency.store_down",
            "forwards without deduplication while the store is down: the upstream gets duplicates then",
        );
    }
    if policy.lease < config.store.timeout * 3 {
        warn(
            "idempotency.lease",
            "shorter than three times store.timeout: one slow answer of the store loses a claim that works",
        );
    }
    if config.upstreams.get(&route.upstream).is_some_and(|upstream| policy.lease < upstream.connect_timeout) {
        warn(
            "idempotency.lease",
            "shorter than the upstream's connect_timeout; a gateway that stalls once while it connects loses its claim",
        );
    }
}
