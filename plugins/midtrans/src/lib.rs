//! Midtrans payment notifications: a digest inside the body, over three fields and the server key.
//!
//! ```toml
//! plugin = "midtrans"
//! plugin_config = { secret = "midtrans" }
//! ```
//!
//! `secret` names the server keys. There is no event id: the key is made of order, transaction, status and fraud status, and for a
//! refund of the sum refunded so far. The digest covers order, status code and amount only; whoever saw a genuine notification can
//! change the rest, so the upstream should ask Midtrans for the status before it acts.

mod event;
mod notification;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{self, Hash};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Reason, Request, Verdict, export_plugin};

use notification::Notification;

/// The plugin.
pub struct Midtrans;

impl Plugin for Midtrans {
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
        let Notification { signed, digest } = match Notification::read(&request.body) {
            Ok(notification) => notification,
            Err((reason, detail)) => return Ok(Verdict::invalid(reason, detail)),
        };
        let right = crypto::digest_with_secret_verify(secret, Hash::Sha512, &[crypto::bytes(signed)], &digest)?;
        Ok(if right { Verdict::Verified } else { Verdict::invalid(Reason::BadSignature, "the digest does not match") })
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read(&request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(Midtrans);
