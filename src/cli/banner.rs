//! What `serve` says when it is up: where it listens, and what to try.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::app::Running;
use crate::config::model::{Config, PluginRef, Route};

/// Made from the configuration before it is given away.
pub struct Banner {
    store: String,
    routes: Vec<String>,
    sample: Option<Sample>,
    tls: bool,
}

/// A route that anybody can try with curl: the plugin `json` without a sender's check, with a key in a JSON body.
struct Sample {
    path: String,
    first: Value,
    changed: Option<Value>,
}

impl Banner {
    /// For a checked configuration.
    pub fn of(config: &Config) -> Self {
        let line = |route: &std::sync::Arc<Route>| format!("{}/{} at {}", route.tenant, route.name, route.path);
        Self {
            store: config.store.url.to_string(),
            routes: config.routes.iter().map(line).collect(),
            sample: config.routes.iter().find_map(|route| Sample::of(route)),
            tls: config.server.tls.is_some(),
        }
    }

    /// The text, with the addresses that were bound.
    pub fn render(&self, running: &Running) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let mut text = String::new();
        // Writing to a string cannot fail.
        for address in &running.ingest {
            let _ = writeln!(text, "Onceward listens on {scheme}://{address}");
        }
        let _ = writeln!(text, "  health  http://{}/readyz", running.admin);
        let _ = writeln!(text, "  store   {}", self.store);
        for route in &self.routes {
            let _ = writeln!(text, "  route   {route}");
        }
        if let (Some(sample), Some(address)) = (&self.sample, running.ingest.first()) {
            let curl = |body: &Value| format!("  curl -i {scheme}://{address}{} -d '{body}'", sample.path);
            let _ = writeln!(text, "\nTry it:\n{}   # first: forwarded", curl(&sample.first));
            let _ = writeln!(text, "{}   # again: replayed, the upstream is not called", curl(&sample.first));
            if let Some(changed) = &sample.changed {
                let _ = writeln!(text, "{}   # other material, same key: 409", curl(changed));
            }
        }
        text
    }
}

impl Sample {
    fn of(route: &Route) -> Option<Self> {
        let plain_path = !route.path.contains(['{', '}']) && route.host.is_none();
        let post = route.methods.contains(&http::Method::POST);
        let config = &route.plugin_config;
        let unchecked = route.plugin == PluginRef::Bundled("json".to_owned()) && config.get("verify").is_none();
        if !(plain_path && post && unchecked) {
            return None;
        }
        let mut first = Value::Object(Map::new());
        put(&mut first, pointers(config, "key")?, |_| "evt_1".into())?;
        let material = pointers(config, "material").unwrap_or_default();
        let mut changed = first.clone();
        put(&mut first, material.clone(), |at| if at == 0 { 4200.into() } else { "EUR".into() })?;
        put(&mut changed, material.clone(), |at| if at == 0 { 9900.into() } else { "EUR".into() })?;
        Some(Self { path: route.path.clone(), first, changed: (!material.is_empty()).then_some(changed) })
    }
}

/// The simple pointers (`/name`) of a list of sources; none when any source is of another kind.
fn pointers<'a>(config: &'a Value, list: &str) -> Option<Vec<&'a str>> {
    let name = |source: &'a Value| source.as_str()?.strip_prefix('/').filter(|name| !name.contains(['/', '~']));
    config.get(list)?.as_array()?.iter().map(name).collect()
}

fn put(body: &mut Value, names: Vec<&str>, value: impl Fn(usize) -> Value) -> Option<()> {
    let members = body.as_object_mut()?;
    for (at, name) in names.into_iter().enumerate() {
        members.insert(name.to_owned(), value(at));
    }
    Some(())
}
