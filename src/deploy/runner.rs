//! A plugin with what a route gives it: its config, its secrets, its limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::config::model::{Config, PluginRef, Route, Unsigned};
use crate::event::PluginVersion;
use crate::gateway::breaker::Breakers;
use crate::gateway::deployed::Runner;
use crate::gateway::identity::KeySpace;
use crate::gateway::meters::PluginMeters;
use crate::plugin::{Budget, Grant, Needs, Plugin};

/// What is wrong with a route for its plugin: the key below the route, and why.
pub type RouteFault = (String, String);

/// A plugin for a route.
///
/// # Errors
/// Every fault that the plugin finds in the route's config, and every secret that it names and that is not there.
pub async fn runner(
    config: &Config,
    route: &Route,
    plugin: &Plugin,
    breakers: &Breakers,
) -> Result<Runner, Vec<RouteFault>> {
    let grant = grant(config, route, plugin).await?;
    let version = version(plugin, &grant);
    let meters = PluginMeters::new(&version.name);
    let namespace = plugin.descriptor().key_namespace.clone();
    let space = KeySpace { tenant: route.tenant.clone(), scope: route.scope.clone(), namespace };
    let breaker = breakers.of(&route.tenant, plugin.version());
    Ok(Runner { version, plugin: plugin.clone(), grant: Arc::new(grant), space, meters, breaker })
}

/// What the route gives its plugin, or each fault with its key below the route.
async fn grant(config: &Config, route: &Route, plugin: &Plugin) -> Result<Grant, Vec<RouteFault>> {
    let json = route.plugin_config.to_string();
    let needs = match plugin.examine(&json).await {
        Ok(Ok(needs)) => needs,
        Ok(Err(faults)) => {
            return Err(faults.into_iter().map(|fault| (key_path(&fault.path), fault.text)).collect());
        }
        Err(failure) => return Err(vec![("plugin_config".to_owned(), failure.to_string())]),
    };
    let tenant = config.tenants.get(&route.tenant);
    let mut secrets = BTreeMap::new();
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
fn allows_unsigned(route: &Route, needs: &Needs) -> bool {
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
