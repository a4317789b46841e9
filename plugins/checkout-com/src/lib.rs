//! Checkout.com: a signature over the body.
//!
//! ```toml
//! plugin = "checkout-com"
//! plugin_config = { secret = "checkout" }
//! ```
//!
//! `secret` names the signature keys of the workflow's webhook action. The key is the event's id; the alias (type, payment, action)
//! is the same change of the same payment.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "cko-signature", prefix: "", encoding: Encoding::Hex, hash: Hash::Sha256 };

/// The plugin.
pub struct CheckoutCom;

impl Plugin for CheckoutCom {
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
        event::read(&request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(CheckoutCom);
