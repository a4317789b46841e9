//! GoCardless: a batch of up to 250 events under one signature.
//!
//! ```toml
//! plugin = "gocardless"
//! plugin_config = { secret = "gocardless" }
//! ```
//!
//! `secret` names the webhook endpoint's secrets. The key of an event is its id; a batch that is sent again may be made up anew. A
//! wrong signature is answered 498, as GoCardless asks.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Refusal, Request, Verdict, export_plugin};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "webhook-signature", prefix: "", encoding: Encoding::Hex, hash: Hash::Sha256 };

/// What GoCardless calls "invalid token".
const REFUSED: u16 = 498;

/// The plugin.
pub struct GoCardless;

impl Plugin for GoCardless {
    /// The secret's name.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("secret")
    }

    fn needs(secret: &String) -> Needs {
        Needs::of([SIGNATURE.header], secret)
    }

    fn verify(request: &Request, secret: &String) -> Result<Verdict, PluginError> {
        Ok(match SIGNATURE.verify(request, secret, &[Part::Body])? {
            Verdict::Invalid(refusal) => Verdict::Invalid(Refusal { status: Some(REFUSED), ..refusal }),
            verdict => verdict,
        })
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read_all(&request.body)
    }
}

export_plugin!(GoCardless);
