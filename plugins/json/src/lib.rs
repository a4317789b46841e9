//! JSON, form and header-keyed senders, by configuration alone.
//!
//! ```toml
//! plugin = "json"
//! plugin_config = { key = ["/id"], material = ["/amount", "/currency"], aliases = [["/type", "/data/id"]],
//!                   verify = { scheme = "hmac-sha256", header = "x-signature", encoding = "hex", prefix = "", secret = "partner" } }
//! ```
//!
//! A source is a JSON pointer into the body, or `header:NAME`, `query:NAME`, `form:NAME`. Without `verify` the sender is not
//! authenticated. Without `material` the whole body counts.
//!
//! A key part that is absent, null, empty or blank means that there is no key. Numbers are keys in one spelling, so that `1` and
//! `1.0` are one key; the text `"1"` names the same key as the number `1`. Anything else than a text or a number in a key, and
//! anything else than a scalar in the material, makes the request malformed.

mod config;
mod event;
mod source;
mod verify;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

pub use config::Config;

/// The plugin.
pub struct Json;

impl Plugin for Json {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        config::read(table)
    }

    fn needs(config: &Config) -> Needs {
        config.needs()
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        config.verify.as_ref().map_or(Ok(Verdict::Unsigned), |check| verify::verify(request, check))
    }

    fn extract(request: &Request, config: &Config) -> Result<Disposition, PluginError> {
        event::read(request, config).map(|event| Disposition::Process(event.into_iter().collect()))
    }
}

export_plugin!(Json);
