//! Svix: the scheme of Standard Webhooks under `svix-` headers; `webhook-` headers count when there are no others.
//!
//! ```toml
//! plugin = "svix"
//! plugin_config = { secret = "partner", tolerance = "5m", material = ["/type", "/data/id"] }
//! ```
//!
//! `secret` names the endpoint's secrets as Svix shows them (`whsec_…`). The key is the message id, which is signed and stays the
//! same on every attempt and on a manual resend. `material` is a list of JSON pointers; without it the whole body counts.

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::standard::{Config, Family};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

const FAMILIES: [Family; 2] = [Family::Svix, Family::Webhook];

/// The plugin.
pub struct Svix;

impl Plugin for Svix {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        Config::read(table)
    }

    fn needs(config: &Config) -> Needs {
        config.needs()
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        config.verify(request, &FAMILIES)
    }

    fn extract(request: &Request, config: &Config) -> Result<Disposition, PluginError> {
        config.extract(request, &FAMILIES)
    }
}

export_plugin!(Svix);
