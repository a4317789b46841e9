//! What [`export_plugin!`](crate::export_plugin) expands to, as plain functions. Not for plugins to call.

use crate::config::read;
use crate::{Descriptor, Disposition, Fault, Needs, Plugin, PluginError, Request, Verdict, limits};

/// What `verify` saw, kept for `extract`, which takes no argument so that the body crosses into the instance once.
pub struct Seen<P: Plugin> {
    request: Request,
    config: P::Config,
}

/// The export `describe`.
pub fn describe<P: Plugin>() -> Descriptor {
    Descriptor {
        name: P::NAME.to_owned(),
        version: P::VERSION.to_owned(),
        key_namespace: P::KEY_NAMESPACE.to_owned(),
        config_schema: P::CONFIG_SCHEMA.map(str::to_owned),
    }
}

/// The export `examine-config`.
///
/// # Errors
/// Every fault in the config.
pub fn examine<P: Plugin>(config: &str) -> Result<Needs, Vec<Fault>> {
    read(config, P::configure).map(|config| P::needs(&config))
}

/// The export `verify`: the verdict, and what `extract` will need if the gateway goes on.
///
/// # Errors
/// The plugin's own, and a config that `examine-config` would have refused.
pub fn verify<P: Plugin>(request: Request, config: &str) -> Result<(Verdict, Option<Seen<P>>), PluginError> {
    let config = read(config, P::configure).map_err(|faults| PluginError::Misconfigured(one_line(&faults)))?;
    let verdict = P::verify(&request, &config)?;
    let goes_on = matches!(verdict, Verdict::Verified | Verdict::Unsigned);
    Ok((verdict, goes_on.then_some(Seen { request, config })))
}

/// The export `extract`.
///
/// # Errors
/// The plugin's own, a call without a request that `verify` let through, and more than the gateway takes.
pub fn extract<P: Plugin>(seen: Option<Seen<P>>) -> Result<Disposition, PluginError> {
    let Some(seen) = seen else {
        return Err(PluginError::Internal("extract was called without a request that verify let through".to_owned()));
    };
    let disposition = P::extract(&seen.request, &seen.config)?;
    limits::check(&disposition)?;
    Ok(disposition)
}

fn one_line(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{}: {}", fault.path, fault.text)).collect::<Vec<_>>().join("; ")
}
