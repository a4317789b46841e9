//! Slack: the Events API, slash commands and interactivity, signed by `X-Slack-Signature`.
//!
//! ```toml
//! plugin = "slack"
//! plugin_config = { secret = "slack", tolerance = "5m" }
//! ```
//!
//! `secret` names the app's signing secrets as Slack shows them. The key is an event's `event_id`; commands and interactions have
//! their `trigger_id`. The URL verification is answered with its challenge.

mod event;
mod signature;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Tolerance, Verdict, export_plugin};

/// The plugin.
pub struct Slack;

/// What the route configures.
pub struct Config {
    secret: String,
    tolerance: Tolerance,
}

impl Plugin for Slack {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let tolerance = table.tolerance("5m");
        Ok(Config { secret: secret?, tolerance: tolerance? })
    }

    fn needs(config: &Config) -> Needs {
        Needs::of([signature::SIGNATURE, signature::TIMESTAMP, "content-type"], &config.secret)
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        signature::verify(request, &config.secret, config.tolerance)
    }

    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        event::read(&request.headers, &request.body)
    }
}

export_plugin!(Slack);
