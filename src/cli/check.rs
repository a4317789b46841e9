//! `onceward check`

use std::path::Path;

use crate::app::{AppError, assemble};
use crate::config::{ConfigError, Environment, Report, load, render_json, render_text};

use super::{Done, out, runtime};

/// Loads the configuration, then its plugins, and lets each examine its route's config. Nothing is bound or connected.
pub fn run(path: Option<&Path>, json: bool) -> anyhow::Result<Done> {
    let loaded = load(path, &Environment::of_process());
    if let Err(error @ ConfigError::Unreadable { .. }) = loaded {
        return Err(error.into());
    }
    let mut report = Report::of(&loaded);
    if let Ok(config) = &loaded {
        match runtime()?.block_on(assemble::routes(config)) {
            Ok(_) => {}
            Err(AppError::Faults(faults)) => report.faults.extend(faults),
            Err(error) => return Err(error.into()),
        }
    }
    out(&if json { format!("{:#}\n", render_json(&report)) } else { render_text(&report) })?;
    Ok(if report.faults.is_empty() { Done::Ok } else { Done::Faults })
}
