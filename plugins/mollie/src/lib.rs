//! Mollie: events of the next-generation webhooks, and pings of the classic ones.
//!
//! ```toml
//! plugin = "mollie"
//! plugin_config = { secret = "mollie" }
//! ```
//!
//! `secret` names the webhook's signing secrets; a route for classic pings only leaves it out. The key of an event is its id.
//!
//! A classic ping (`id=tr_…`, a form) is not signed, and its bytes are the same for every later status of the object: it has no key
//! and is passed on each time. The route accepts it only with `unsigned = "allow"`. A body that is no such form needs a signature
//! in any case.

mod classic;
mod event;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Reason, Request, Verdict, export_plugin, header};

const SIGNATURE: HeaderMac =
    HeaderMac { header: "x-mollie-signature", prefix: "sha256=", encoding: Encoding::Hex, hash: Hash::Sha256 };

/// The plugin.
pub struct Mollie;

impl Plugin for Mollie {
    /// The secret's name; none where only classic pings come.
    type Config = Option<String>;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Option<String>, Noted> {
        table.optional("secret", |item| item.text().map(str::to_owned))
    }

    fn needs(secret: &Option<String>) -> Needs {
        Needs {
            headers: vec![SIGNATURE.header.to_owned(), classic::CONTENT_TYPE.to_owned()],
            secrets: secret.iter().cloned().collect(),
            allows_unsigned: true,
            methods: Vec::new(),
            certificate_hosts: Vec::new(),
        }
    }

    fn verify(request: &Request, secret: &Option<String>) -> Result<Verdict, PluginError> {
        if !is_signed(request) && classic::is_ping(request) {
            return Ok(Verdict::Unsigned);
        }
        match secret {
            Some(secret) => SIGNATURE.verify(request, secret, &[Part::Body]),
            None => Ok(Verdict::invalid(Reason::UnknownKey, "no classic ping, and the route has no secret")),
        }
    }

    fn extract(request: &Request, _: &Option<String>) -> Result<Disposition, PluginError> {
        if is_signed(request) {
            return event::read(&request.body).map(|event| Disposition::Process(vec![event]));
        }
        Ok(Disposition::Pass("a classic ping names an object and not its state".to_owned()))
    }
}

fn is_signed(request: &Request) -> bool {
    header::lines(&request.headers, SIGNATURE.header).next().is_some()
}

export_plugin!(Mollie);
