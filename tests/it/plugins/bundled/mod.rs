//! The bundled plugins as the gateway runs them: the committed components in the real host.

mod events;
mod hostile;
mod json;
mod senders;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onceward::event::{Delivery, Secret};
use onceward::plugin::{Budget, Grant, Inspected, Plugin, bundled};

use super::support::ENGINE;

/// A plugin with its route's config and secrets.
struct Route {
    plugin: Plugin,
    grant: Arc<Grant>,
}

impl Route {
    /// The secret's name is `case`.
    async fn new(name: &str, config: &serde_json::Value, secrets: &[&str]) -> Self {
        Self::of(load(name), config, secrets).await
    }

    /// With a plugin that is loaded already: compiling one takes a second here.
    async fn of(plugin: Plugin, config: &serde_json::Value, secrets: &[&str]) -> Self {
        let config = config.to_string();
        let needs = plugin.examine(&config).await.unwrap().unwrap();
        let secrets = secrets.iter().map(|text| Secret::new(*text)).collect();
        let secrets = BTreeMap::from([("case".to_owned(), secrets)]);
        let allow_unsigned = needs.allows_unsigned;
        // A busy machine must not fail these tests: what they bound is fuel, which is the same everywhere.
        let budget = Budget { wall: Budget::WALL_MAX, ..Budget::default() };
        let grant = Grant { config, secrets, certificates: None, needs, allow_unsigned, budget };
        Self { plugin, grant: Arc::new(grant) }
    }

    async fn inspect(&self, delivery: Delivery) -> Inspected {
        self.plugin.inspect(&self.grant, &Arc::new(delivery)).await
    }
}

fn load(name: &str) -> Plugin {
    ENGINE.load(name, bundled::bundled(name).unwrap()).unwrap()
}

/// A POST at `now_s`, Unix seconds.
fn delivery(now_s: u64, headers: &[(&str, &[u8])], body: impl Into<Bytes>) -> Delivery {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value).unwrap());
    }
    Delivery {
        method: Method::POST,
        scheme: "https",
        authority: "hooks.example".to_owned(),
        path: "/in".to_owned(),
        query: Some("source=query".to_owned()),
        params: Vec::new(),
        headers: map,
        body: body.into(),
        received_at_ms: now_s * 1000,
        client_certificate: None,
    }
}
