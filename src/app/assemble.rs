//! From checked configuration to routes that can serve: loads their plugins and lets each examine its route's config.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::config::Fault;
use crate::config::model::{self, Config, Mode, PluginRef, Unsigned};
use crate::event::PluginVersion;
use crate::gateway::breaker::Breakers;
use crate::gateway::deployed::{Deployed, Runner, Slot};
use crate::gateway::identity::KeySpace;
use crate::gateway::meters::{PluginMeters, RouteMeters};
use crate::gateway::route::{Route, Routes};
use crate::idempotency::policy::{OnMissingKey, OnStoreDown};
use crate::plugin::{Budget, Engine, Grant, Needs, Plugin, Settings, bundled};

use super::AppError;

/// The routes of a configuration.
///
/// # Errors
/// Every plugin that cannot be loaded and every fault that a plugin finds in its route's config, all at once; then a path that
/// cannot stand beside another one.
pub async fn routes(config: &Config) -> Result<Routes, AppError> {
    let engine = Engine::new(Settings { max_body: config.server.max_body, ..Settings::default() })?;
    let breakers = Breakers::default();
    let mut loaded: HashMap<&PluginRef, Result<Option<Plugin>, String>> = HashMap::new();
    let mut routes = Vec::new();
    let mut faults = Vec::new();
    for (at, route) in config.routes.iter().enumerate() {
        let plugin = loaded.entry(&route.plugin).or_insert_with(|| load(&engine, &route.plugin));
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

/// A plugin for a route, or each fault with its key below the route.
async fn runner(
    config: &Config,
    route: &model::Route,
    plugin: &Plugin,
    breakers: &Breakers,
) -> Result<Runner, Vec<(String, String)>> {
    let grant = grant(config, route, plugin).await?;
    let version = version(plugin, &grant);
    let meters = PluginMeters::new(&version.name);
    let namespace = plugin.descriptor().key_namespace.clone();
    let space = KeySpace { tenant: route.tenant.clone(), scope: route.scope.clone(), namespace };
    let breaker = breakers.of(&route.tenant, plugin.version());
    Ok(Runner { version, plugin: plugin.clone(), grant: Arc::new(grant), space, meters, breaker })
}

/// What the route gives its plugin, or each fault with its key below the route.
async fn grant(config: &Config, route: &model::Route, plugin: &Plugin) -> Result<Grant, Vec<(String, String)>> {
    let json = route.plugin_config.to_string();
    let needs = match plugin.examine(&json).await {
        Ok(Ok(needs)) => needs,
        Ok(Err(faults)) => {
            return Err(faults.into_iter().map(|fault| (key_path(&fault.path), fault.text)).collect());
        }
        Err(failure) => return Err(vec![("plugin_config".to_owned(), failure.to_string())]),
    };
    let tenant = config.tenants.get(&route.tenant);
    let mut secrets = std::collections::BTreeMap::new();
    let mut missing = Vec::new();
    for name in &needs.secrets {
        match tenant.and_then(|tenant| tenant.secrets.get(name)) {
            Some(values) => {
                secrets.insert(name.clone(), values.clone());
            }
            None => missing.push((
                "plugin_config".to_owned(),
                format!("names the secret \"{name}\", which is not there: add `secrets.{name} = [ {{ env = \"…\" }} ]` to [tenants.{}]", route.tenant),
            )),
        }
    }
    if !missing.is_empty() {
        return Err(missing);
    }
    let allow_unsigned = allows_unsigned(route, &needs);
    Ok(Grant { config: json, secrets, certificates: None, allow_unsigned, needs, budget: Budget::default() })
}

/// What decides whether two deliveries named the same fields: the code and its config. After a change of either, only the fields
/// that both name are compared, so that a redelivery across the change is no conflict.
fn version(plugin: &Plugin, grant: &Grant) -> PluginVersion {
    let PluginVersion { name, version } = plugin.version().clone();
    let config: String = hex::encode(Sha256::digest(&grant.config)).chars().take(8).collect();
    PluginVersion { name, version: format!("{version}.{config}") }
}

/// As the route says; where it says nothing, only the plugin `json` without `verify`, whose config asks for no check.
fn allows_unsigned(route: &model::Route, needs: &Needs) -> bool {
    match route.unsigned {
        Some(Unsigned::Allow) => true,
        Some(Unsigned::Reject) => false,
        None => route.plugin == PluginRef::Bundled("json".to_owned()) && needs.allows_unsigned,
    }
}

/// `/verify/secret` becomes `plugin_config.verify.secret`.
fn key_path(pointer: &str) -> String {
    format!("plugin_config{}", pointer.replace('/', "."))
}
