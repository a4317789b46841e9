//! Adyen's standard webhooks: a batch of items, each signed inside the body.
//!
//! ```toml
//! plugin = "adyen"
//! plugin_config = { secret = "adyen" }
//! ```
//!
//! `secret` names the webhook's HMAC keys, hexadecimal as Adyen shows them. Adyen gives its notifications no id. An item's key is
//! made of account, event code, PSP reference and success: a refused payment that is authorised after all is an event of its own.
//! Every item must be signed, or the whole request is refused.

mod event;
mod item;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{self, Hash, KeyEncoding};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Reason, Request, Verdict, export_plugin};

use item::Item;

/// The plugin.
pub struct Adyen;

impl Plugin for Adyen {
    /// The secret's name.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("secret")
    }

    fn needs(secret: &String) -> Needs {
        Needs::of([], secret)
    }

    fn verify(request: &Request, secret: &String) -> Result<Verdict, PluginError> {
        let items = match item::split(&request.body) {
            Ok(items) => items,
            Err(detail) => return Ok(Verdict::invalid(Reason::Malformed, detail)),
        };
        // One after the other, so that a stranger's batch costs no more than its first item.
        for item in items {
            let (message, tag) = match Item::read(item).and_then(|item| item.signed()) {
                Ok(signed) => signed,
                Err((reason, detail)) => return Ok(Verdict::invalid(reason, detail)),
            };
            if !crypto::hmac_verify(secret, KeyEncoding::Hex, Hash::Sha256, &[crypto::bytes(message)], &tag)? {
                return Ok(Verdict::invalid(Reason::BadSignature, "an item's signature does not match"));
            }
        }
        Ok(Verdict::Verified)
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read_all(&request.body).map(Disposition::Process)
    }
}

export_plugin!(Adyen);
