//! Xendit: a token that names the sender, and nothing that signs the body.
//!
//! ```toml
//! plugin = "xendit"
//! plugin_config = { secret = "xendit" }
//! ```
//!
//! `secret` names the account's webhook verification tokens. The key is the header `webhook-id`. Nothing of a request is signed:
//! who knows the token can send anything, and only the material fields notice that an event changed.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::{
    Disposition, Needs, Plugin, PluginError, Reason, Request, Verdict, crypto, export_plugin, header,
};

const TOKEN: &str = "x-callback-token";
const ID: &str = "webhook-id";

/// The plugin.
pub struct Xendit;

impl Plugin for Xendit {
    /// The secret's name.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("secret")
    }

    fn needs(secret: &String) -> Needs {
        Needs::of([TOKEN, ID], secret)
    }

    fn verify(request: &Request, secret: &String) -> Result<Verdict, PluginError> {
        let token = match header::one(&request.headers, TOKEN) {
            Ok(Some(token)) if !token.is_empty() => token,
            Ok(_) => return Ok(Verdict::invalid(Reason::MissingSignature, "no x-callback-token header")),
            Err(fault) => {
                let detail = format!("the x-callback-token header {}", fault.as_str());
                return Ok(Verdict::invalid(Reason::Malformed, detail));
            }
        };
        let right = crypto::secret_equals(secret, token.as_bytes())?;
        Ok(if right { Verdict::Verified } else { Verdict::invalid(Reason::BadSignature, "not the route's token") })
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        let id = header::one(&request.headers, ID).map_err(|fault| fault.about(ID))?;
        // Without an id there is no key; the route says what becomes of such requests.
        let Some(id) = id.filter(|id| !id.is_empty()) else { return Ok(Disposition::Process(Vec::new())) };
        event::read(id, &request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(Xendit);
