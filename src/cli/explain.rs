//! `onceward explain`

use std::path::Path;

use anyhow::Context;

use crate::app;
use crate::config::model::{Config, Route, StoreUrl};
use crate::config::{Environment, Report, load};
use crate::gateway::explain::explain;

use super::{Done, explanation, out, runtime};

/// Looks into the store itself: it works beside a running gateway, and without one.
pub fn run(path: Option<&Path>, route: &str, key: &str, json: bool) -> anyhow::Result<Done> {
    let config = match load(path, &Environment::of_process()) {
        Ok(config) => config,
        Err(error) => {
            let report = Report::of(&Err(error));
            anyhow::bail!("the configuration is refused\n{}", crate::config::render_text(&report).trim_end());
        }
    };
    let route = find(&config, route)?;
    if config.store.url == StoreUrl::Memory {
        anyhow::bail!(
            "store.url is memory:, so only the running gateway knows: ask it with\n  onceward events show {}/{} {}",
            route.tenant,
            route.scope,
            quoted(key)
        );
    }
    let told = runtime()?.block_on(async {
        let stores = app::look(&config).await?;
        let of_scope = |name: &str| {
            let of_scope = config
                .routes
                .iter()
                .find(|known| known.tenant == route.tenant && known.scope == route.scope && known.name == name);
            // The route that was asked about decides; another one of the scope only for what came by it.
            Some(&**of_scope.unwrap_or(route))
        };
        let told = explain(&*stores.handle(), (&route.tenant, &route.scope, key), of_scope).await;
        told.context("the store cannot be read")
    })?;
    match (told, json) {
        (Some(told), true) => out(&format!("{}\n", serde_json::to_string_pretty(&told)?))?,
        (Some(told), false) => out(&explanation::render(&told))?,
        (None, true) => {
            out("null\n")?;
            return Ok(Done::Faults);
        }
        (None, false) => {
            out(&format!(
                "Nothing is stored under {} in {}/{}: the next delivery is first-seen and is forwarded.\n\
                 The key is what stands after `{}:{}:` in Idempotency-Key: parts joined by `|`, or sha256-…\n",
                quoted(key),
                route.tenant,
                route.scope,
                route.tenant,
                route.scope
            ))?;
            return Ok(Done::Faults);
        }
    }
    Ok(Done::Ok)
}

/// The route of `TENANT/ROUTE`.
fn find<'c>(config: &'c Config, named: &str) -> anyhow::Result<&'c std::sync::Arc<Route>> {
    let found = config.routes.iter().find(|route| format!("{}/{}", route.tenant, route.name) == named);
    found.with_context(|| {
        let there: Vec<_> = config.routes.iter().map(|route| format!("  {}/{}", route.tenant, route.name)).collect();
        match there.is_empty() {
            true => format!("there is no route `{named}`: the configuration has none"),
            false => format!("there is no route `{named}`; there are\n{}", there.join("\n")),
        }
    })
}

/// As a shell takes it.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
