//! Stripe: snapshot events and thin events, signed by `Stripe-Signature`.
//!
//! ```toml
//! plugin = "stripe"
//! plugin_config = { secret = "stripe", tolerance = "5m" }
//! ```
//!
//! `secret` names the endpoint's signing secrets, whole and as Stripe shows them (`whsec_…`). The key is the event's id. Once-only
//! event types also get the alias (type, object id), since Stripe may make two events for one change. A thin event and the snapshot
//! it stands beside have ids of their own and are two events here.

mod event;
mod signature;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Tolerance, Verdict, export_plugin};

/// The plugin.
pub struct Stripe;

/// What the route configures.
pub struct Config {
    secret: String,
    tolerance: Tolerance,
}

impl Plugin for Stripe {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let tolerance = table.tolerance("5m");
        Ok(Config { secret: secret?, tolerance: tolerance? })
    }

    fn needs(config: &Config) -> Needs {
        Needs {
            headers: vec![signature::HEADER.to_owned()],
            secrets: vec![config.secret.clone()],
            allows_unsigned: false,
            methods: Vec::new(),
            certificate_hosts: Vec::new(),
        }
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        signature::verify(request, &config.secret, config.tolerance)
    }

    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        event::read(&request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(Stripe);
