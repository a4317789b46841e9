//! Shopify: `X-Shopify-Hmac-Sha256` over the body.
//!
//! ```toml
//! plugin = "shopify"
//! plugin_config = { secret = "shopify" }
//! ```
//!
//! `secret` names the app's client secrets as Shopify shows them; for up to an hour after a rotation the old one still signs. The
//! key is shop, topic and event id: two subscriptions for a topic deliver one event twice, and one event id stands for several
//! topics. All three are headers that the signature does not cover, so that the route should set `body_alias`.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "x-shopify-hmac-sha256", prefix: "", encoding: Encoding::Base64, hash: Hash::Sha256 };

/// The plugin.
pub struct Shopify;

impl Plugin for Shopify {
    /// The secret's name.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("secret")
    }

    fn needs(secret: &String) -> Needs {
        let [shop, topic, event] = event::KEY;
        Needs::of([SIGNATURE.header, shop, topic, event], secret)
    }

    fn verify(request: &Request, secret: &String) -> Result<Verdict, PluginError> {
        SIGNATURE.verify(request, secret, &[Part::Body])
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read(&request.headers, &request.body).map(|event| Disposition::Process(event.into_iter().collect()))
    }
}

export_plugin!(Shopify);
