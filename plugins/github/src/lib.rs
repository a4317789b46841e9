//! GitHub: `X-Hub-Signature-256` over the body.
//!
//! ```toml
//! plugin = "github"
//! plugin_config = { secret = "github" }
//! ```
//!
//! `secret` names the webhook's secrets. The key is the delivery id, which a redelivery keeps; the signature does not cover it, so
//! that the route should set `body_alias`. The whole body is the material: a redelivery repeats it. A ping is answered at once.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

/// GitHub still sends `x-hub-signature`, a SHA-1 that nothing asks for.
const SIGNATURE: HeaderMac =
    HeaderMac { header: "x-hub-signature-256", prefix: "sha256=", encoding: Encoding::Hex, hash: Hash::Sha256 };

/// The plugin.
pub struct GitHub;

impl Plugin for GitHub {
    /// The secret's name.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("secret")
    }

    fn needs(secret: &String) -> Needs {
        Needs::of([SIGNATURE.header, event::DELIVERY, event::EVENT, "content-type"], secret)
    }

    fn verify(request: &Request, secret: &String) -> Result<Verdict, PluginError> {
        SIGNATURE.verify(request, secret, &[Part::Body])
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read(&request.headers, &request.body)
    }
}

export_plugin!(GitHub);
