//! A route held against what its sender is known to do. The texts name the number on both sides and what to set.

use std::time::Duration;

use crate::config::model::{Config, Route};
use crate::config::senders::{Lasting, Sender};

/// Each setting with which this sender's deliveries would go wrong.
pub fn of_sender(config: &Config, route: &Route, sender: &Sender, mut warn: impl FnMut(&str, &str)) {
    let policy = &route.policy;
    let name = sender.plugin;
    if let Some(retries_for) = sender.retries_for.filter(|horizon| policy.window < *horizon) {
        let (window, horizon) = (span(policy.window), span(retries_for));
        let text = format!(
            "{window} is shorter than the {horizon} for which {name} sends an event again: a late redelivery would be forwarded as new; set {horizon} or more"
        );
        warn("idempotency.window", &text);
    }
    if let Some(waits) = sender.waits {
        if policy.in_flight.wait >= waits {
            let (wait, waits) = (span(policy.in_flight.wait), span(waits));
            let text = format!(
                "{name} gives up on an answer after {waits}, so a redelivery that waits {wait} is never answered; set less than {waits}"
            );
            warn("idempotency.in_flight.wait", &text);
        }
        let upstream = config.upstreams.get(&route.upstream);
        if let Some(timeout) = upstream.map(|upstream| upstream.timeout).filter(|timeout| *timeout > waits) {
            let (timeout, waits, upstream) = (span(timeout), span(waits), &route.upstream);
            let text = format!(
                "{name} gives up on an answer after {waits} and counts a failure, while upstreams.{upstream}.timeout lets a forward take {timeout}; set {waits} or less there, or let the upstream answer first and work later"
            );
            warn("upstream", &text);
        }
    }
    of_statuses(route, sender, warn);
}

fn of_statuses(route: &Route, sender: &Sender, mut warn: impl FnMut(&str, &str)) {
    let (name, mismatch) = (sender.plugin, route.policy.mismatch_status);
    let advice = if sender.success.counts(202) {
        "set 202, which accepts it, sets it aside and is reported"
    } else {
        "no status of a mismatch counts for it, so look into mismatches before it comes to that"
    };
    match sender.lasting {
        _ if sender.success.counts(mismatch) => {}
        Lasting::Harms(harm) => {
            let text = format!("a mismatch is answered {mismatch} on every attempt, and {name} {harm}; {advice}");
            warn("idempotency.mismatch.status", &text);
        }
        // Somebody who sets 202 wants the retries to end.
        Lasting::GivesUp | Lasting::EndsAt(_) if mismatch < 300 => {
            let text = format!("{name} does not count {mismatch} as success and sends a mismatch again all the same");
            warn("idempotency.mismatch.status", &text);
        }
        Lasting::GivesUp | Lasting::EndsAt(_) => {}
    }
    if sender.lasting == Lasting::EndsAt(route.refuse_status) {
        let status = route.refuse_status;
        let text = format!("{status} ends the subscription at {name}: one wrong secret would cost it; set 401");
        warn("refuse_status", &text);
    }
}

/// As a config file spells it.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds, time.subsec_millis()) {
        (_, millis @ 1..) => format!("{}ms", seconds.saturating_mul(1000).saturating_add(millis.into())),
        (0, 0) => "0s".to_owned(),
        (days, _) if days % 86_400 == 0 => format!("{}d", days / 86_400),
        (hours, _) if hours % 3600 == 0 => format!("{}h", hours / 3600),
        (minutes, _) if minutes % 60 == 0 => format!("{}m", minutes / 60),
        _ => format!("{seconds}s"),
    }
}
