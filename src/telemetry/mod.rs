//! Logs, to stderr: for people on a terminal and as JSON elsewhere. Metrics, as Prometheus text.

pub mod metrics;

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// A log filter that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no log filter; write a level (error, warn, info, debug, trace) or `info,onceward::event=off`")]
pub struct BadFilter(String);

/// Starts logging for the whole process.
///
/// # Errors
/// [`BadFilter`] when `filter` is neither a level nor a list of `target=level`.
pub fn init(filter: &str) -> Result<(), BadFilter> {
    let filter = EnvFilter::try_new(filter).map_err(|_| BadFilter(filter.to_owned()))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A second start in one process (tests) keeps the first one's settings.
    let started = if io::stderr().is_terminal() {
        logs.with_target(false).compact().try_init()
    } else {
        logs.json().flatten_event(true).with_span_list(false).try_init()
    };
    drop(started);
    Ok(())
}
