//! `onceward check`

use std::path::Path;
use std::sync::Arc;

use crate::app::{AppError, assemble};
use crate::config::{Config, ConfigError, Environment, Fault, Notice, Report, load, render_json, render_text};

use super::{Done, out, runtime};

/// Loads the configuration, then its plugins, and lets each examine its route's config. Nothing is bound; only the registry of
/// uploaded plugins is asked.
pub fn run(path: Option<&Path>, json: bool) -> anyhow::Result<Done> {
    let loaded = load(path, &Environment::of_process());
    if let Err(error @ ConfigError::Unreadable { .. }) = loaded {
        return Err(error.into());
    }
    let mut report = Report::of(&loaded);
    if let Ok(config) = loaded {
        match runtime()?.block_on(look(Arc::new(config), &mut report)) {
            Ok(()) => {}
            Err(AppError::Faults(faults)) => report.faults.extend(faults),
            Err(error) => return Err(error.into()),
        }
    }
    out(&if json { format!("{:#}\n", render_json(&report)) } else { render_text(&report) })?;
    Ok(if report.faults.is_empty() { Done::Ok } else { Done::Faults })
}

/// The plugins, bundled, from files and from the registry, each with every route that names it.
async fn look(config: Arc<Config>, report: &mut Report) -> Result<(), AppError> {
    let engine = assemble::engine(&config)?;
    let routes = assemble::routes(&config, &engine).await?;
    let deployer = assemble::looking_deployer(&config, engine, &routes)?;
    let found = deployer.look().await;
    report.faults.extend(found.faults.into_iter().map(|(path, problem)| Fault::new(path, problem)));
    report.warnings.extend(found.warnings.into_iter().map(|(path, text)| Notice::new(path, text)));
    Ok(())
}
