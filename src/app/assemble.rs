//! From checked configuration to routes that can serve: loads their plugins and lets each examine its route's config.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Fault;
use crate::config::model::{self, Config, Mode, PluginRef};
use crate::deploy::Deployer;
use crate::deploy::runner::runner;
use crate::gateway::breaker::Breakers;
use crate::gateway::deployed::{Deployed, Slot};
use crate::gateway::meters::RouteMeters;
use crate::gateway::route::{Route, Routes};
use crate::gateway::shadow::Shadows;
use crate::idempotency::policy::{OnMissingKey, OnStoreDown};
use crate::plugin::artifacts::Artifacts;
use crate::plugin::registry::Registry;
use crate::plugin::{Engine, Plugin, Settings, bundled};

use super::AppError;

/// The running program's file, also when an upgrade has put another one in its place.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The plugin host of a configuration.
///
/// # Errors
/// When the machine has no room for it.
pub fn engine(config: &Config) -> Result<Engine, AppError> {
    Ok(Engine::new(Settings { max_body: config.server.max_body, ..Settings::default() })?)
}

/// What brings uploaded plugins into these routes.
///
/// # Errors
/// When `plugins.registry` cannot be opened.
pub fn deployer(config: &Arc<Config>, engine: Engine, routes: &Routes) -> Result<Deployer, AppError> {
    let shadows = Shadows::start()?;
    let kept = Artifacts::open(&config.server.state_dir.join("plugins"), Path::new(THIS_PROGRAM));
    let artifacts = kept.unwrap_or_else(|error| {
        tracing::warn!(%error, "server.state_dir cannot be used: uploaded plugins are compiled anew at each start");
        Artifacts::none(Path::new(THIS_PROGRAM))
    });
    deployer_with(config, engine, routes, artifacts, Some(shadows))
}

/// As [`deployer`], for a look: nothing is written down.
///
/// # Errors
/// When `plugins.registry` cannot be opened.
pub fn looking_deployer(config: &Arc<Config>, engine: Engine, routes: &Routes) -> Result<Deployer, AppError> {
    deployer_with(config, engine, routes, Artifacts::none(Path::new(THIS_PROGRAM)), None)
}

fn deployer_with(
    config: &Arc<Config>,
    engine: Engine,
    routes: &Routes,
    artifacts: Artifacts,
    shadows: Option<Shadows>,
) -> Result<Deployer, AppError> {
    let options = config.plugin_registry.options.iter().map(|(name, value)| (name.as_str(), value.expose()));
    let registry = Registry::open(&config.plugin_registry.url, options)?;
    Ok(Deployer::new(Arc::clone(config), engine, registry, Arc::new(artifacts), shadows, routes))
}

/// The routes of a configuration. Those of uploaded plugins wait for their code.
///
/// # Errors
/// Every plugin that cannot be loaded and every fault that a plugin finds in its route's config, all at once; then a path that
/// cannot stand beside another one.
pub async fn routes(config: &Config, engine: &Engine) -> Result<Routes, AppError> {
    let breakers = Breakers::default();
    let mut loaded: HashMap<&PluginRef, Result<Option<Plugin>, String>> = HashMap::new();
    let mut routes = Vec::new();
    let mut faults = Vec::new();
    for (at, route) in config.routes.iter().enumerate() {
        let plugin = loaded.entry(&route.plugin).or_insert_with(|| load(engine, &route.plugin));
        let runner = match plugin {
            Ok(None) => None,
            Ok(Some(plugin)) => match runner(config, route, plugin, &breakers).await {
                Ok(runner) => Some(runner),
                Err(found) => {
                    faults.extend(found.into_iter().map(|(key, text)| Fault::new(format!("routes[{at}].{key}"), text)));
                    continue;
                }
            },
            Err(problem) => {
                faults.push(Fault::new(format!("routes[{at}].plugin"), problem.clone()));
                continue;
            }
        };
        let meters = Arc::new(RouteMeters::new(&route.tenant, &route.name));
        let code = runner.map(|runner| Deployed { active: Arc::new(runner), previous: None, shadow: None });
        routes.push(Route { config: served(route), plugin: Slot::new(code), meters });
    }
    if !faults.is_empty() {
        return Err(AppError::Faults(faults));
    }
    let conflict = |(at, problem)| AppError::Faults(vec![Fault::new(format!("routes[{at}].path"), problem)]);
    Routes::new(routes).map_err(conflict)
}

/// The route as it is served. One that is only observed adds no refusal and no wait of its own.
fn served(route: &Arc<model::Route>) -> Arc<model::Route> {
    if route.mode == Mode::Dedupe {
        return Arc::clone(route);
    }
    let mut observed = model::Route::clone(route);
    observed.policy.store_down = OnStoreDown::Forward;
    observed.policy.in_flight.wait = Duration::ZERO;
    if observed.policy.missing_key == OnMissingKey::Reject {
        observed.policy.missing_key = OnMissingKey::Pass;
    }
    Arc::new(observed)
}

/// The code of a plugin; none for one that a tenant has yet to upload.
fn load(engine: &Engine, plugin: &PluginRef) -> Result<Option<Plugin>, String> {
    let (name, wasm) = match plugin {
        PluginRef::Uploaded { .. } => return Ok(None),
        PluginRef::Bundled(name) => match bundled::bundled(name) {
            Some(wasm) => (name.clone(), wasm.to_vec()),
            None => {
                let known = bundled::NAMES.join(", ");
                return Err(format!(
                    "no bundled plugin is called \"{name}\"; there are {known}, or name a file: \"file:PATH.wasm\""
                ));
            }
        },
        PluginRef::File(path) => {
            let wasm = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            (format!("file:{}", path.display()), wasm)
        }
    };
    engine.load(&name, &wasm).map(Some).map_err(|error| {
        let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
        format!("{name}: {error}{cause}")
    })
}
