//! Braintree: a form whose one field is signed, base64 of XML; and a challenge when the endpoint is set up.
//!
//! ```toml
//! plugin = "braintree"
//! plugin_config = { secret = "braintree", public_key = "your_public_key" }
//! ```
//!
//! `secret` names the private keys, and `public_key` says which key pair the route is for; list both pairs' keys while they change
//! (`public_key = ["new", "old"]`). There is no event id: the key is made of kind, subject and time.

mod challenge;
mod event;
mod signature;
mod xml;

use onceward_plugin::config::{Item, Noted, Table};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

/// The plugin.
pub struct Braintree;

/// What the route configures.
pub struct Config {
    secret: String,
    /// Newest first; there is at least one.
    public_keys: Vec<String>,
}

impl Plugin for Braintree {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let public_keys = table.required("public_key", |item| public_keys(&item));
        Ok(Config { secret: secret?, public_keys: public_keys? })
    }

    fn needs(config: &Config) -> Needs {
        Needs { methods: vec!["GET".to_owned()], ..Needs::of([], &config.secret) }
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        match request.method.as_str() {
            "GET" => challenge::answer(request, config),
            _ => signature::verify(request, config),
        }
    }

    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        let payload = signature::payload(&request.body)?;
        event::read(&payload).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(Braintree);

/// The most key pairs at a time.
const PUBLIC_KEYS_MAX: usize = 4;

fn public_keys(item: &Item<'_>) -> Result<Vec<String>, Noted> {
    if item.is_list() {
        return item.list(1, PUBLIC_KEYS_MAX, |item| public_key(&item));
    }
    public_key(item).map(|key| vec![key])
}

fn public_key(item: &Item<'_>) -> Result<String, Noted> {
    let text = item.text()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then(|| text.to_owned()).ok_or_else(|| item.fault("must be a public key: letters, digits and `_`"))
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read;

    use super::*;

    #[test]
    fn public_keys_come_alone_or_as_a_list() {
        let keys = |config: &str| read(config, Braintree::configure).map(|config| config.public_keys);
        assert_eq!(keys(r#"{"secret":"s","public_key":"k_1"}"#).unwrap(), ["k_1"]);
        assert_eq!(keys(r#"{"secret":"s","public_key":["k_2","k_1"]}"#).unwrap(), ["k_2", "k_1"]);
        for (wrong, places) in [
            (r#"{}"#, &["/secret", "/public_key"][..]),
            (r#"{"secret":"s","public_key":[]}"#, &["/public_key"]),
            (r#"{"secret":"s","public_key":["a","b|c"]}"#, &["/public_key/1"]),
            (r#"{"secret":"s","public_key":7,"private_key":"x"}"#, &["/public_key", "/private_key"]),
        ] {
            let faults = keys(wrong).unwrap_err();
            assert_eq!(faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(), places, "{wrong}");
        }
    }
}
