//! `onceward plugin run` and `plugin bench`: one request through a plugin, with what it decides and what it costs.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::bench::{self, Bench};
use crate::event::{Event, Value};
use crate::plugin::{Inspected, Inspection, Level, Used};

/// Runs one request and prints the decision, what it used of what it may, and its log. The exit status is 1 when the plugin failed.
///
/// # Errors
/// When the plugin or the request cannot be read, or `out` cannot be written.
pub fn run(plugin: &str, request: &Path, out: &mut impl Write) -> anyhow::Result<u8> {
    let case = bench::read(request)?;
    let bench = Bench::new(plugin)?;
    let inspected = bench.run(&bench.prepare(&case)?);

    let version = bench.plugin().version();
    writeln!(out, "plugin    {} {}", version.name, version.version)?;
    writeln!(out, "verified  {}", if inspected.verified { "yes" } else { "no" })?;
    print_decision(&inspected, out)?;
    print_usage(&inspected, out)?;
    for line in &inspected.log {
        writeln!(out, "log       {}: {}", level(line.level), line.text)?;
    }
    Ok(u8::from(inspected.result.is_err()))
}

/// Runs one request again and again for `time`, in one thread, and prints calls a second and how long a call takes.
///
/// # Errors
/// When the plugin or the request cannot be read, the plugin fails on it, or `out` cannot be written.
pub fn bench(plugin: &str, request: &Path, time: Duration, out: &mut impl Write) -> anyhow::Result<u8> {
    let case = bench::read(request)?;
    let bench = Bench::new(plugin)?;
    let prepared = bench.prepare(&case)?;
    // The first calls fault the code's and the pool's pages in.
    for _ in 0..50 {
        bench.run(&prepared).result?;
    }

    let start = Instant::now();
    let mut calls = Vec::new();
    while start.elapsed() < time {
        let begun = Instant::now();
        bench.run(&prepared).result?;
        calls.push(begun.elapsed());
    }
    let total = start.elapsed();
    calls.sort_unstable();

    let rate = calls.len() as f64 / total.as_secs_f64();
    writeln!(out, "{rate:.0} calls/s in one thread ({} calls, {} B body)", calls.len(), prepared.delivery.body.len())?;
    for (name, percent) in [("p50", 50), ("p99", 99)] {
        let place = (calls.len() * percent / 100).min(calls.len().saturating_sub(1));
        let call = calls.get(place).copied().unwrap_or_default();
        writeln!(out, "{name} {:.1} µs", call.as_secs_f64() * 1e6)?;
    }
    Ok(0)
}

fn print_decision(inspected: &Inspected, out: &mut impl Write) -> std::io::Result<()> {
    match &inspected.result {
        Err(failure) => writeln!(out, "decision  failed: {failure}"),
        Ok(Inspection::Invalid(refusal)) => {
            writeln!(out, "decision  invalid: {}: {}", refusal.reason.as_str(), refusal.detail)
        }
        Ok(Inspection::Stale(seconds)) => writeln!(out, "decision  stale by {seconds} s"),
        Ok(Inspection::UnsignedRefused) => writeln!(out, "decision  unsigned, which the route does not allow"),
        Ok(Inspection::Respond(reply)) => writeln!(out, "decision  respond {} ({} B)", reply.status, reply.body.len()),
        Ok(Inspection::Pass(why)) => writeln!(out, "decision  pass: {why}"),
        Ok(Inspection::Reject { status, code, detail }) => writeln!(out, "decision  reject {status} {code}: {detail}"),
        Ok(Inspection::Events(events)) => {
            writeln!(out, "decision  process {} event(s)", events.len())?;
            events.iter().try_for_each(|event| print_event(event, out))
        }
    }
}

/// Values come from the sender: `{:?}` keeps their control characters off the terminal.
fn print_event(event: &Event, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "  key       {:?}{}", event.key, if event.key_signed { "" } else { " (not signed)" })?;
    for alias in &event.aliases {
        writeln!(out, "  alias     {alias:?}")?;
    }
    for field in &event.material {
        write!(out, "  material  {:?} = ", field.name)?;
        match &field.value {
            Value::Text(text) => writeln!(out, "{text:?}")?,
            Value::Number(token) => writeln!(out, "{token}")?,
            Value::Bool(truth) => writeln!(out, "{truth}")?,
            Value::Null => writeln!(out, "null")?,
            Value::Bytes(bytes) => writeln!(out, "{} bytes", bytes.len())?,
        }
    }
    Ok(())
}

fn print_usage(inspected: &Inspected, out: &mut impl Write) -> std::io::Result<()> {
    let usage = &inspected.usage;
    let mut line = |name: &str, Used { used, limit }: Used, unit: &str| writeln!(out, "{name:<9} {used}/{limit}{unit}");
    line("fuel", usage.fuel, "")?;
    line("memory", usage.memory_bytes, " B")?;
    line("output", usage.output_bytes, " B")?;
    line("wall", usage.wall_us, " µs")?;
    line("log", usage.log_bytes, " B")?;
    if usage.log_dropped > 0 {
        writeln!(out, "log lines dropped: {}", usage.log_dropped)?;
    }
    Ok(())
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    }
}
