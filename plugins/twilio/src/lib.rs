//! Twilio: `X-Twilio-Signature` over the URL and the form's parameters.
//!
//! ```toml
//! plugin = "twilio"
//! plugin_config = { secret = "twilio", notification_url = "https://hooks.example.com/acme/twilio" }
//! ```
//!
//! `secret` names the account's auth tokens, or shared keys. `notification_url` is the URL that Twilio was given, without its query:
//! the query is signed as it arrives. The key of a message is its sid and status; of a call's progress, its sid, status and sequence
//! number. Everything else, such as the requests that ask what a call is to do next, is named by the idempotency token that Twilio
//! sends in an unsigned header, or has no key.

mod event;
mod signature;

use onceward_plugin::config::{Item, Noted, Table};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

/// The plugin.
pub struct Twilio;

/// What the route configures.
pub struct Config {
    secret: String,
    /// The URL with its port and without: Twilio signs either.
    urls: [String; 2],
}

impl Plugin for Twilio {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let urls = table.required("notification_url", |item| urls(&item));
        Ok(Config { secret: secret?, urls: urls? })
    }

    fn needs(config: &Config) -> Needs {
        Needs::of([signature::SIGNATURE, signature::SETTINGS, signature::CONTENT_TYPE, event::TOKEN], &config.secret)
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        signature::verify(request, config)
    }

    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        event::read(&request.headers, &request.body).map(|event| Disposition::Process(event.into_iter().collect()))
    }
}

export_plugin!(Twilio);

fn urls(item: &Item<'_>) -> Result<[String; 2], Noted> {
    const FORM: &str = "must be the URL that Twilio was given, without a query, as in \"https://hooks.example.com/in\"";
    let text = item.text()?;
    let both = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@".contains(&byte)).then(|| variants(text));
    both.flatten().ok_or_else(|| item.fault(FORM))
}

/// A URL without its port and with it.
fn variants(url: &str) -> Option<[String; 2]> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme {
        "https" => "443",
        "http" => "80",
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = authority.split_once(':').unwrap_or((authority, port));
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (!host.is_empty() && is_port)
        .then(|| [format!("{scheme}://{host}{path}"), format!("{scheme}://{host}:{port}{path}")])
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read;

    use super::*;

    #[test]
    fn every_fault_of_the_config_is_reported() {
        let faults = read(r#"{"notification_url":"hooks.example/in","x":1}"#, Twilio::configure).err();
        let places: Vec<_> = faults.unwrap().into_iter().map(|fault| fault.path).collect();
        assert_eq!(places, ["/secret", "/notification_url", "/x"]);
        for wrong in ["https://", "https://a/b?c", "https://u@a/", "ftp://a", "https://a:x/", "https://a b"] {
            let config = format!(r#"{{"secret":"a","notification_url":"{wrong}"}}"#);
            assert!(read(&config, Twilio::configure).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_has_its_port_or_not() {
        let both = |url| variants(url).unwrap();
        assert_eq!(both("https://a.example/in"), ["https://a.example/in", "https://a.example:443/in"]);
        assert_eq!(both("https://a.example:8443"), ["https://a.example", "https://a.example:8443"]);
        assert_eq!(both("http://a.example/"), ["http://a.example/", "http://a.example:80/"]);
    }
}
