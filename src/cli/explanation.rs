//! What is known of an event, as text for people: `explain` and `events show` print the same.

use std::fmt::Write as _;

use crate::event::Timestamp;
use crate::gateway::explain::{AttemptView, EventView, Explanation};
use crate::gateway::rfc3339::{read, span};

/// The whole page.
pub fn render(told: &Explanation) -> String {
    let mut text = String::new();
    page(&mut text, told);
    for other in &told.also {
        let _ = writeln!(text, "\nThe same key in another key namespace:\n");
        page(&mut text, other);
    }
    text
}

// Writing to a string cannot fail.
fn page(text: &mut String, told: &Explanation) {
    let event = &told.event;
    let now = read(&told.now).unwrap_or_default();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line("key", clean(&event.idempotency_key));
    line("state", state(event, now));
    line("route", format!("{}/{}", event.tenant, clean(&event.route)));
    line("event", clean(&event.event));
    line("fence", event.fence.to_string());
    line("plugin", format!("{} {}", clean(&told.plugin), clean(&told.plugin_version)));
    line("compared", told.fields.iter().map(|field| clean(field)).collect::<Vec<_>>().join(", "));
    line("lease", when(&event.lease_until, now));
    line(if event.state == "succeeded" { "window ends" } else { "forgotten" }, when(&event.expires_at, now));
    if let Some(status) = event.upstream_status {
        let body = told.kept_body.as_deref().map_or(String::new(), |body| format!(", its body kept: {body}"));
        line("answer", format!("{status}{body}"));
    }
    if event.request_kept {
        line("request", "kept: it can be redelivered".to_owned());
    }
    if let Some(mismatch) = &event.mismatch {
        let fields = mismatch.fields.iter().map(|field| clean(field)).collect::<Vec<_>>().join(", ");
        line(
            "quarantine",
            format!("{} other events came under this key; the last one differed in {fields}", mismatch.count),
        );
        line("", format!("first {}, last {}", when(&mismatch.first_at, now), when(&mismatch.last_at, now)));
    }
    let _ = writeln!(text, "\nattempts");
    for attempt in &told.attempts {
        let _ = writeln!(text, "  {}", one_attempt(attempt, now));
    }
    if !told.operators.is_empty() {
        let _ = writeln!(text, "\noperators");
        for step in &told.operators {
            let _ = writeln!(text, "  {} by {}, {}", step.verb, clean(&step.by), when(&step.at, now));
        }
    }
    let _ = writeln!(text, "\nthe next delivery with");
    for next in &told.next {
        let status = next.status.map_or(String::new(), |status| format!(" {status}"));
        let _ = writeln!(text, "  {:<5} material  {}{status}: {}", next.material, next.decision, next.why);
    }
    if told.next.is_empty() {
        let _ = writeln!(text, "  no route has this scope any more");
    }
}

/// A state with why, and what an operator said.
fn state(event: &EventView, now: Timestamp) -> String {
    let lease_over = read(&event.lease_until).is_some_and(|end| end <= now);
    let mut text = event.state.clone();
    if event.state == "processing" && lease_over {
        text.push_str(", but its lease is over: its owner vanished");
    }
    if let Some(reason) = &event.reason {
        let _ = write!(text, " ({})", clean(reason));
    }
    if event.released {
        text.push_str(", released by an operator");
    } else if event.ambiguous {
        text.push_str(", after an attempt that may have reached the upstream");
    }
    text
}

fn one_attempt(attempt: &AttemptView, now: Timestamp) -> String {
    let mut text = format!("{}  {}", attempt.attempt, attempt.state);
    if let Some(reason) = &attempt.reason {
        let _ = write!(text, " ({})", clean(reason));
    }
    if let Some(status) = attempt.upstream_status {
        let _ = write!(text, ", upstream {status}");
    }
    let _ = write!(text, ", began {}", when(&attempt.started_at, now));
    if let Some(end) = &attempt.finished_at {
        let took = read(end).zip(read(&attempt.started_at)).map(|(end, start)| span(end.since(start)));
        let _ = write!(text, ", took {}", took.unwrap_or_default());
    }
    let _ = write!(text, ", event {}, fence {}", clean(&attempt.event), attempt.fence);
    if let Some(error) = &attempt.error {
        let _ = write!(text, "\n     {}", clean(error));
    }
    text
}

/// A time, and how far it is from now.
pub fn when(text: &str, now: Timestamp) -> String {
    match read(text) {
        Some(at) if at > now => format!("{text} (in {})", span(at.since(now))),
        Some(at) => format!("{text} ({} ago)", span(now.since(at))),
        None => clean(text),
    }
}

/// Text from a sender or an upstream, without what a terminal would obey.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
