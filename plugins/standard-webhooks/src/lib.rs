//! Standard Webhooks, and Svix, whose headers have other names.
//!
//! ```toml
//! plugin = "standard-webhooks"
//! plugin_config = { secret = "partner", tolerance = "5m", material = ["/type", "/data/id"] }
//! ```
//!
//! `secret` names keys as the sender shows them: `whsec_…` for `v1` (HMAC-SHA256), `whpk_…` for `v1a` (ed25519). The key is the
//! message id, which is signed and stays the same on every attempt. `material` is a list of JSON pointers; without it the whole
//! body counts, as its values and not as its bytes.

mod event;
mod message;

use onceward_plugin::config::{Item, Noted, Table};
use onceward_plugin::json::is_pointer;
use onceward_plugin::limits::{MATERIAL_MAX, NAME_BYTES_MAX};
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Request, Tolerance, Verdict, export_plugin};

/// The plugin.
pub struct StandardWebhooks;

/// What the route configures.
pub struct Config {
    secret: String,
    tolerance: Tolerance,
    material: Vec<String>,
}

impl Plugin for StandardWebhooks {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        let tolerance = table.tolerance("5m");
        let material = table.optional("material", |item| pointers(&item));
        Ok(Config { secret: secret?, tolerance: tolerance?, material: material?.unwrap_or_default() })
    }

    fn needs(config: &Config) -> Needs {
        Needs {
            headers: message::headers(),
            secrets: vec![config.secret.clone()],
            allows_unsigned: false,
            methods: Vec::new(),
            certificate_hosts: Vec::new(),
        }
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        message::verify(request, &config.secret, config.tolerance)
    }

    fn extract(request: &Request, config: &Config) -> Result<Disposition, PluginError> {
        let id = message::id(request)?;
        event::read(id, &request.body, &config.material).map(|event| Disposition::Process(vec![event]))
    }
}

export_plugin!(StandardWebhooks);

fn pointers(item: &Item<'_>) -> Result<Vec<String>, Noted> {
    let pointers = item.list(0, MATERIAL_MAX, |item| {
        let text = item.text()?;
        let right = is_pointer(text) && text.len() <= NAME_BYTES_MAX;
        right
            .then(|| text.to_owned())
            .ok_or_else(|| item.fault("must be a JSON pointer as in \"/data/id\", at most 256 bytes"))
    })?;
    let again =
        pointers.iter().enumerate().find(|(place, pointer)| pointers.iter().take(*place).any(|one| one == *pointer));
    match again {
        Some((_, pointer)) => Err(item.fault(format!("names {pointer} twice"))),
        None => Ok(pointers),
    }
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read;

    use super::*;

    #[test]
    fn every_fault_of_the_config_is_reported() {
        let faults = read(r#"{"tolerance_s":0,"material":["data"],"x":1}"#, StandardWebhooks::configure).err();
        let places: Vec<_> = faults.unwrap().into_iter().map(|fault| fault.path).collect();
        assert_eq!(places, ["/secret", "/tolerance_s", "/material/0", "/x"]);
        assert!(read(r#"{"secret":"a","material":["/a","/a"]}"#, StandardWebhooks::configure).is_err());
        assert!(read(r#"{"secret":"a","tolerance_s":300}"#, StandardWebhooks::configure).is_ok());
    }
}
