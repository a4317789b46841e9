//! What a candidate does differently, told for people: beside live traffic, and on captured requests.

use std::fmt::Write as _;

use serde_json::Value;

use super::explanation::clean;

/// A report of live traffic.
pub(super) fn live(report: &Value) -> String {
    told("live traffic", report)
}

/// What came of a replay.
pub(super) fn replay(found: &Value) -> String {
    let captured = number(found, "captured");
    if captured == 0 {
        return "Nothing to compare: this gateway has captured no request of a route that names the plugin. Set `capture` on one.\n"
            .to_owned();
    }
    let mut said = found.get("report").map(|report| told("captured requests", report)).unwrap_or_default();
    for (name, why) in [
        ("refused", "are refused by the active version now"),
        ("unreadable", "could not be read; the gateway's log says why"),
        ("left_out", "were left out, since the replay took too long"),
    ] {
        if number(found, name) > 0 {
            let _ = writeln!(said, "    {} of {captured} requests {why}", number(found, name));
        }
    }
    said
}

fn told(of: &str, report: &Value) -> String {
    let skipped = match number(report, "skipped") {
        0 => String::new(),
        skipped => format!(", {skipped} skipped"),
    };
    let (compared, equal) = (number(report, "compared"), number(report, "equal"));
    let mut said = format!("  on {of}: {compared} compared{skipped}, {equal} equal\n");
    let counts = ["keys", "collisions", "splits", "verdicts", "aliases", "material"];
    let mut differ: Vec<String> = counts
        .iter()
        .filter(|name| number(report, name) > 0)
        .map(|name| format!("{name} {}", number(report, name)))
        .collect();
    for (kind, count) in report.get("failures").and_then(Value::as_object).into_iter().flatten() {
        differ.push(format!("{} {}", clean(kind), count.as_u64().unwrap_or_default()));
    }
    if !differ.is_empty() {
        let _ = writeln!(said, "    differ: {}", differ.join(", "));
    }
    for example in report.get("examples").and_then(Value::as_array).into_iter().flatten() {
        let fields = example.get("fields").and_then(Value::as_array).into_iter().flatten();
        let fields: Vec<String> = fields.filter_map(Value::as_str).map(clean).collect();
        let what = if fields.is_empty() {
            format!("{} → {}", text(example, "active"), text(example, "candidate"))
        } else {
            fields.join(", ")
        };
        let _ = writeln!(
            said,
            "    {}: {what} (route {}, event {})",
            text(example, "kind"),
            text(example, "route"),
            text(example, "event")
        );
    }
    for (name, unit) in [("fuel", ""), ("us", " µs")] {
        let used = |side: &str| {
            let of = report.get(format!("{side}_{name}")).cloned().unwrap_or_default();
            format!("{}/{}{unit}", number(&of, "median"), number(&of, "p99"))
        };
        let what = if name == "us" { "time" } else { name };
        let _ = writeln!(
            said,
            "    {what}, median/p99: {} by the active version, {} by this one",
            used("active"),
            used("candidate")
        );
    }
    said
}

fn number(of: &Value, name: &str) -> u64 {
    of.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn text(of: &Value, name: &str) -> String {
    of.get(name).and_then(Value::as_str).map(clean).unwrap_or_default()
}
