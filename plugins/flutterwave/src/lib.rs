//! Flutterwave v3 and v4.
//!
//! ```toml
//! plugin = "flutterwave"
//! plugin_config = { secret = "flutterwave", version = "v4", check = "signature" }
//! ```
//!
//! `secret` names the secret hashes of the dashboard. v3 sends the hash itself in `verif-hash`. v4 sends `flutterwave-signature`,
//! an HMAC-SHA256 of the body in base64; accounts for which it is the hash itself set `check = "token"`. A token signs nothing: an
//! altered body passes with it. The key is type, transaction id and status.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{self, Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Reason, Request, Verdict, export_plugin, header};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "flutterwave-signature", prefix: "", encoding: Encoding::Base64, hash: Hash::Sha256 };

/// The plugin.
pub struct Flutterwave;

/// What the route configures.
pub struct Config {
    secret: String,
    check: Check,
}

/// What vouches for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// A MAC of the body.
    Signature,
    /// The secret itself, in this header.
    Token(&'static str),
}

impl Plugin for Flutterwave {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let is_v3 = table.optional("version", |item| item.choice(&[("v3", true), ("v4", false)]));
        let is_token = table.optional("check", |item| item.choice(&[("token", true), ("signature", false)]));
        let check = match (is_v3?.unwrap_or(false), is_token?) {
            (true, Some(false)) => return Err(table.fault("check", "must be \"token\" with v3, which signs nothing")),
            (true, _) => Check::Token("verif-hash"),
            (false, Some(true)) => Check::Token(SIGNATURE.header),
            (false, _) => Check::Signature,
        };
        Ok(Config { secret: secret?, check })
    }

    fn needs(config: &Config) -> Needs {
        let header = match config.check {
            Check::Signature => SIGNATURE.header,
            Check::Token(header) => header,
        };
        Needs::of([header], &config.secret)
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        match config.check {
            Check::Signature => SIGNATURE.verify(request, &config.secret, &[Part::Body]),
            Check::Token(header) => token(request, header, &config.secret),
        }
    }

    fn extract(request: &Request, config: &Config) -> Result<Disposition, PluginError> {
        let mut event = event::read(&request.body)?;
        if let Some(event) = &mut event {
            event.key_signed = config.check == Check::Signature;
        }
        Ok(Disposition::Process(event.into_iter().collect()))
    }
}

export_plugin!(Flutterwave);

fn token(request: &Request, name: &str, secret: &str) -> Result<Verdict, PluginError> {
    match header::one(&request.headers, name) {
        Ok(None) => Ok(Verdict::invalid(Reason::MissingSignature, format!("no {name} header"))),
        Err(fault) => Ok(Verdict::invalid(Reason::Malformed, format!("the {name} header {}", fault.as_str()))),
        Ok(Some(token)) if crypto::secret_equals(secret, token.as_bytes())? => Ok(Verdict::Verified),
        Ok(Some(_)) => Ok(Verdict::invalid(Reason::BadSignature, format!("the {name} header does not match"))),
    }
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read;

    use super::*;

    #[test]
    fn the_check_follows_from_the_config() {
        let check = |config: &str| read(config, Flutterwave::configure).map(|config| config.check);
        assert_eq!(check(r#"{"secret":"a"}"#), Ok(Check::Signature));
        assert_eq!(check(r#"{"secret":"a","version":"v3"}"#), Ok(Check::Token("verif-hash")));
        assert_eq!(check(r#"{"secret":"a","check":"token"}"#), Ok(Check::Token("flutterwave-signature")));
        let faults = check(r#"{"version":"v3","check":"signature","x":1}"#).unwrap_err();
        let places: Vec<_> = faults.into_iter().map(|fault| fault.path).collect();
        assert_eq!(places, ["/secret", "/check", "/x"]);
    }
}
