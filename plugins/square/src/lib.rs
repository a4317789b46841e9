//! Square: a signature over the notification URL and the body.
//!
//! ```toml
//! plugin = "square"
//! plugin_config = { secret = "square", notification_url = "https://hooks.example.com/acme/square" }
//! ```
//!
//! `secret` names the subscription's signature keys as Square shows them. `notification_url` is the URL of the subscription, byte
//! for byte: what the gateway sees of it may have been changed by a proxy. The key is the event's id.

mod event;

use onceward_plugin::config::{Item, Noted, Table};
use onceward_plugin::crypto::{self, Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

/// Square still sends `x-square-signature`, a SHA-1 that nothing asks for.
const SIGNATURE: HeaderMac =
    HeaderMac { header: "x-square-hmacsha256-signature", prefix: "", encoding: Encoding::Base64, hash: Hash::Sha256 };

/// The plugin.
pub struct Square;

/// What the route configures.
pub struct Config {
    secret: String,
    notification_url: String,
}

impl Plugin for Square {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let notification_url = table.required("notification_url", |item| url(&item));
        Ok(Config { secret: secret?, notification_url: notification_url? })
    }

    fn needs(config: &Config) -> Needs {
        Needs::of([SIGNATURE.header], &config.secret)
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        SIGNATURE.verify(request, &config.secret, &[crypto::bytes(&config.notification_url), Part::Body])
    }

    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        event::read(&request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(Square);

fn url(item: &Item<'_>) -> Result<String, Noted> {
    let text = item.text()?;
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => {
            Err(item.fault("must be the whole URL of the webhook subscription, as in \"https://hooks.example.com/in\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read;

    use super::*;

    #[test]
    fn every_fault_of_the_config_is_reported() {
        let faults = read(r#"{"notification_url":"hooks.example/in","url":"x"}"#, Square::configure).err();
        let places: Vec<_> = faults.unwrap().into_iter().map(|fault| fault.path).collect();
        assert_eq!(places, ["/secret", "/notification_url", "/url"]);
        for wrong in ["https://", "https://a b", "ftp://a"] {
            let config = format!(r#"{{"secret":"a","notification_url":"{wrong}"}}"#);
            assert!(read(&config, Square::configure).is_err(), "{wrong}");
        }
        assert!(read(r#"{"secret":"a","notification_url":"https://a.example/in"}"#, Square::configure).is_ok());
    }
}
