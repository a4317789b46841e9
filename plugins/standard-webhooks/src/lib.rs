//! Standard Webhooks, and Svix, whose headers have other names.
//!
//! ```toml
//! plugin = "standard-webhooks"
//! plugin_config = { secret = "partner", tolerance = "5m", material = ["/type", "/data/id"] }
//! ```
//!
//! `secret` names keys as the sender shows them: `whsec_…` for `v1` (HMAC-SHA256), `whpk_…` for `v1a` (ed25519). The key is the
//! message id, which is signed and stays the same on every attempt. `material` is a list of JSON pointers; without it the whole
//! body counts, as its values and not as its bytes.

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::standard::{Config, Family};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

const FAMILIES: [Family; 2] = [Family::Webhook, Family::Svix];

/// The plugin.
pub struct StandardWebhooks;

impl Plugin for StandardWebhooks {
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

export_plugin!(StandardWebhooks);
