//! A shop that signs its orders: `x-shop-signature: HEX` is the HMAC-SHA256 of the body.
//!
//! ```toml
//! plugin_config = { secret = "shop" }
//! ```

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto::{self, Hash, KeyEncoding, Part};
use onceward_plugin::{
    Disposition, Event, Field, Needs, Plugin, PluginError, Reason, Request, Verdict, encoding, export_plugin, header,
    json,
};

/// The plugin.
pub struct Orders;

/// What the route configures.
pub struct Config {
    secret: String,
}

impl Plugin for Orders {
    type Config = Config;

    const NAME: &'static str = "orders";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    // Reads the route's `plugin_config`. Faults stop the gateway's start, each with its place.
    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.text("secret");
        Ok(Config { secret: secret? })
    }

    // The headers that `verify` may see, and the secrets that it may name: all else stays with the gateway.
    fn needs(config: &Config) -> Needs {
        Needs {
            headers: vec!["x-shop-signature".to_owned()],
            secrets: vec![config.secret.clone()],
            allows_unsigned: false,
            methods: Vec::new(),
            certificate_hosts: Vec::new(),
        }
    }

    // Is the sender genuine? The gateway computes the HMAC: the secret's value never comes here.
    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        let signature = match header::one(&request.headers, "x-shop-signature") {
            Ok(Some(signature)) => signature,
            Ok(None) => return Ok(Verdict::invalid(Reason::MissingSignature, "no signature")),
            Err(fault) => return Ok(Verdict::invalid(Reason::Malformed, fault.as_str())),
        };
        let Some(tag) = encoding::hex(signature) else {
            return Ok(Verdict::invalid(Reason::BadSignature, "not hexadecimal"));
        };
        let right = crypto::hmac_verify(&config.secret, KeyEncoding::Utf8, Hash::Sha256, &[Part::Body], &tag)?;
        Ok(if right { Verdict::Verified } else { Verdict::invalid(Reason::BadSignature, "no secret made it") })
    }

    // Which event is it? The order's id is the key. Total and currency are the material: what must be equal in a redelivery.
    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        let [id, total, currency] = json::find(&request.body, ["/order/id", "/order/total", "/order/currency"])?;
        let Some(id) = id.as_ref().and_then(json::Node::text).filter(|id| !id.is_empty()) else {
            // No id is no key: the route's `missing_key` decides.
            return Ok(Disposition::Process(Vec::new()));
        };
        let material = [("total", &total), ("currency", &currency)];
        let material = material.into_iter().filter_map(|(name, node)| Some(Field::new(name, node.as_ref()?.scalar()?)));
        Ok(Disposition::Process(vec![Event {
            key: vec![id.to_owned()],
            aliases: Vec::new(),
            key_signed: true,
            material: material.collect(),
            event_type: Some("order".to_owned()),
            object_id: Some(id.to_owned()),
        }]))
    }
}

export_plugin!(Orders);
