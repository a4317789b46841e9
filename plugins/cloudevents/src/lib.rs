//! CloudEvents over HTTP: binary, structured and batch mode, in JSON.
//!
//! ```toml
//! plugin = "cloudevents"
//! plugin_config = { secret = "partner", allowed_origins = ["events.partner.example"] }
//! ```
//!
//! `secret` names bearer tokens, sent in `Authorization` or as the query's `access_token`; without it anybody may send, which the
//! route must allow. A token signs nothing. `allowed_origins` are the senders whose `OPTIONS` request is answered with consent; `"*"`
//! is every sender. The key is source and id; type, subject and data are the material, the data by its values.

mod attributes;
mod data;
mod event;
mod handshake;

use onceward_plugin::config::{Noted, Table};
use onceward_plugin::crypto;
use onceward_plugin::{Disposition, Needs, Plugin, PluginError, Reason, Request, Verdict, export_plugin, form, header};

const ORIGINS_MAX: usize = 64;

/// The plugin.
pub struct CloudEvents;

/// What the route configures.
pub struct Config {
    secret: Option<String>,
    allowed_origins: Vec<String>,
}

impl Plugin for CloudEvents {
    type Config = Config;

    const NAME: &'static str = env!("CARGO_PKG_NAME");
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(table: &Table<'_>) -> Result<Config, Noted> {
        let secret = table.optional("secret", |item| item.text().map(str::to_owned));
        let origins = table.optional("allowed_origins", |item| {
            item.list(1, ORIGINS_MAX, |item| item.text().map(str::to_ascii_lowercase))
        });
        Ok(Config { secret: secret?, allowed_origins: origins?.unwrap_or_default() })
    }

    fn needs(config: &Config) -> Needs {
        let headers = ["authorization", "content-type", handshake::ORIGIN, handshake::RATE];
        let methods = if config.allowed_origins.is_empty() { Vec::new() } else { vec!["OPTIONS".to_owned()] };
        Needs {
            headers: headers.into_iter().chain(attributes::HEADERS).map(str::to_owned).collect(),
            secrets: config.secret.iter().cloned().collect(),
            allows_unsigned: config.secret.is_none(),
            methods,
            certificate_hosts: Vec::new(),
        }
    }

    fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
        if request.method == "OPTIONS" {
            return Ok(handshake::answer(&request.headers, &config.allowed_origins));
        }
        match &config.secret {
            Some(secret) => bearer(request, secret),
            None => Ok(Verdict::Unsigned),
        }
    }

    fn extract(request: &Request, _: &Config) -> Result<Disposition, PluginError> {
        event::read(&request.headers, &request.body)
    }
}

export_plugin!(CloudEvents);

fn bearer(request: &Request, secret: &str) -> Result<Verdict, PluginError> {
    let query = request.query.as_deref().unwrap_or_default().as_bytes();
    let parameter = match form::find(query, ["access_token"]) {
        Ok([parameter]) => parameter,
        Err(malformed) => return Ok(Verdict::invalid(Reason::Malformed, malformed.to_string())),
    };
    let line = match header::one(&request.headers, "authorization") {
        Ok(line) => line,
        Err(fault) => {
            return Ok(Verdict::invalid(Reason::Malformed, format!("the authorization header {}", fault.as_str())));
        }
    };
    let token = match (line, &parameter) {
        (None, None) => return Ok(Verdict::invalid(Reason::MissingSignature, "no token")),
        (Some(_), Some(_)) => return Ok(Verdict::invalid(Reason::Malformed, "two tokens, in header and query")),
        (None, Some(token)) => token.as_ref(),
        (Some(line), None) => match line.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_start(),
            _ => return Ok(Verdict::invalid(Reason::MissingSignature, "the authorization is no bearer token")),
        },
    };
    Ok(match crypto::secret_equals(secret, token.as_bytes())? {
        true => Verdict::Verified,
        false => Verdict::invalid(Reason::BadSignature, "the token is not known"),
    })
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read;

    use super::*;

    #[test]
    fn needs_follow_from_the_config() {
        let needs = |config: &str| read(config, CloudEvents::configure).map(|config| CloudEvents::needs(&config));
        let open = needs("{}").unwrap();
        assert!(open.allows_unsigned && open.methods.is_empty() && open.secrets.is_empty());
        let closed = needs(r#"{"secret":"a","allowed_origins":["A.example"]}"#).unwrap();
        assert!(!closed.allows_unsigned && closed.methods == ["OPTIONS"] && closed.secrets == ["a"]);
        let faults = needs(r#"{"secret":"","allowed_origins":[],"x":1}"#).unwrap_err();
        let places: Vec<_> = faults.into_iter().map(|fault| fault.path).collect();
        assert_eq!(places, ["/secret", "/allowed_origins", "/x"]);
    }
}
