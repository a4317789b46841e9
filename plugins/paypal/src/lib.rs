//! PayPal: a signature by the certificate that the request names.
//!
//! ```toml
//! plugin = "paypal"
//! plugin_config = { webhook_id = "8PT597110X687430LKGECATA" }
//! certificates = { hosts = ["api.paypal.com"], names = ["*.paypal.com"], roots = "paypal-roots.pem" }
//! ```
//!
//! `webhook_id` is the id that PayPal shows for the webhook: it is signed and not in the request, so that what was made for another
//! webhook is refused here. The gateway fetches the certificate, from the route's hosts only. The key is the event's id.

mod crc32;
mod event;
mod signature;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Verdict, export_plugin};

/// Where PayPal keeps its certificates, live and sandbox. The route's `certificates.hosts` says which of them count.
const HOSTS: [&str; 2] = ["api.paypal.com", "api.sandbox.paypal.com"];

/// The plugin.
pub struct PayPal;

impl Plugin for PayPal {
    /// The webhook's id.
    type Config = String;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<String, Noted> {
        table.text("webhook_id")
    }

    fn needs(_: &String) -> Needs {
        Needs {
            headers: signature::HEADERS.map(str::to_owned).to_vec(),
            secrets: Vec::new(),
            allows_unsigned: false,
            methods: Vec::new(),
            certificate_hosts: HOSTS.map(str::to_owned).to_vec(),
        }
    }

    fn verify(request: &Request, webhook_id: &String) -> Result<Verdict, PluginError> {
        signature::verify(request, webhook_id)
    }

    fn extract(request: &Request, _: &String) -> Result<Disposition, PluginError> {
        event::read(&request.body).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(PayPal);
