//! Paystack: `x-paystack-signature` over the body.
//!
//! ```toml
//! plugin = "paystack"
//! plugin_config = { secret = "paystack" }
//! ```
//!
//! `secret` names the API secret keys (`sk_…`), which sign the webhooks too. Paystack gives no event id: the key is the event's type
//! and its object's id, an integer of 64 bits. Events whose object has no `id` have no key.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "x-paystack-signature", prefix: "", encoding: Encoding::Hex, hash: Hash::Sha512 };

/// The plugin.
pub struct Paystack;

impl Plugin for Paystack {
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
        SIGNATURE.verify(request, secret, &[Part::Body])
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read(&request.body).map(|event| Disposition::Process(event.into_iter().collect()))
    }
}

export_plugin!(Paystack);
