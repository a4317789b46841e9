//! Razorpay: a signature over the body, and an event id beside it.
//!
//! ```toml
//! plugin = "razorpay"
//! plugin_config = { secret = "razorpay" }
//! ```
//!
//! `secret` names the webhook's secrets. Keep the old one for a day after a change: Razorpay signs retries of older events with it.
//! The key is the id in `x-razorpay-event-id`, which the signature does not cover; the alias (account, event, object, time) is made
//! of signed fields and knows a captured body that comes under another id.

mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin, header};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "x-razorpay-signature", prefix: "", encoding: Encoding::Hex, hash: Hash::Sha256 };
const ID: &str = "x-razorpay-event-id";

/// The plugin.
pub struct Razorpay;

impl Plugin for Razorpay {
    /// The secret's name.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("secret")
    }

    fn needs(secret: &String) -> Needs {
        Needs::of([SIGNATURE.header, ID], secret)
    }

    fn verify(request: &Request, secret: &String) -> Result<Verdict, PluginError> {
        SIGNATURE.verify(request, secret, &[Part::Body])
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        let id = header::one(&request.headers, ID).map_err(|fault| fault.about(ID))?;
        // Without an id there is no key; the route says what becomes of such requests.
        let Some(id) = id.filter(|id| !id.is_empty()) else { return Ok(Disposition::Process(Vec::new())) };
        event::read(id, &request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(Razorpay);
