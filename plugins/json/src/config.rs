//! The route's config, read and checked.

use onceward_plugin::Needs;
use onceward_plugin::config::{Item, Noted, Table};
use onceward_plugin::crypto::Hash;
use onceward_plugin::limits::{ALIASES_MAX, KEY_PARTS_MAX, MATERIAL_MAX};

use crate::source::Source;

/// What the route configures.
#[derive(Debug)]
pub struct Config {
    pub(crate) key: Vec<Source>,
    pub(crate) material: Vec<Source>,
    pub(crate) aliases: Vec<Vec<Source>>,
    pub(crate) verify: Option<Check>,
}

/// How the sender is authenticated.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) scheme: Scheme,
    pub(crate) header: String,
    pub(crate) prefix: String,
    pub(crate) secret: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// A MAC of the body.
    Hmac(Hash, Encoding),
    /// The secret itself, which says nothing about the body.
    Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Hex,
    Base64,
}

impl Config {
    /// Whether the sender's signature covers the key.
    pub(crate) fn key_signed(&self) -> bool {
        let mac = matches!(&self.verify, Some(Check { scheme: Scheme::Hmac(..), .. }));
        mac && self.key.iter().all(Source::is_in_body)
    }

    pub(crate) fn needs(&self) -> Needs {
        let sources = self.key.iter().chain(&self.material).chain(self.aliases.iter().flatten());
        let read = sources.filter_map(|source| if let Source::Header(name) = source { Some(name) } else { None });
        let mut headers: Vec<_> = read.chain(self.verify.iter().map(|check| &check.header)).cloned().collect();
        headers.sort();
        headers.dedup();
        Needs {
            headers,
            secrets: self.verify.iter().map(|check| check.secret.clone()).collect(),
            allows_unsigned: self.verify.is_none(),
            methods: Vec::new(),
            certificate_hosts: Vec::new(),
        }
    }
}

pub(crate) fn read(table: &Table<'_>) -> Result<Config, Noted> {
    let key = table.required("key", |item| distinct(&item, 1, KEY_PARTS_MAX));
    let material = table.optional("material", |item| distinct(&item, 0, MATERIAL_MAX));
    let aliases =
        table.optional("aliases", |item| item.list(0, ALIASES_MAX, |alias| distinct(&alias, 1, KEY_PARTS_MAX)));
    let verify = table.optional("verify", |item| item.table(check));
    Ok(Config {
        key: key?,
        material: material?.unwrap_or_default(),
        aliases: aliases?.unwrap_or_default(),
        verify: verify?,
    })
}

fn distinct(item: &Item<'_>, least: usize, most: usize) -> Result<Vec<Source>, Noted> {
    let sources = item.list(least, most, |item| Source::read(&item))?;
    let again =
        sources.iter().enumerate().find(|(place, source)| sources.iter().take(*place).any(|before| before == *source));
    match again {
        Some((_, source)) => Err(item.fault(format!("names {} twice", source.name()))),
        None => Ok(sources),
    }
}

#[derive(Clone, Copy)]
enum Family {
    Hmac(Hash),
    Token,
}

fn check(table: &Table<'_>) -> Result<Check, Noted> {
    let family = table.required("scheme", |item| {
        item.choice(&[
            ("hmac-sha256", Family::Hmac(Hash::Sha256)),
            ("hmac-sha512", Family::Hmac(Hash::Sha512)),
            ("hmac-sha1", Family::Hmac(Hash::Sha1)),
            ("token", Family::Token),
        ])
    });
    let header = table.text("header");
    let encoding =
        table.optional("encoding", |item| item.choice(&[("hex", Encoding::Hex), ("base64", Encoding::Base64)]));
    let prefix = table.optional("prefix", |item| item.any_text().map(str::to_owned));
    let secret = table.text("secret");
    let scheme = match (family?, encoding?) {
        (Family::Hmac(hash), encoding) => Scheme::Hmac(hash, encoding.unwrap_or(Encoding::Hex)),
        (Family::Token, None) => Scheme::Token,
        (Family::Token, Some(_)) => {
            return Err(table.fault("encoding", "does not go with `token`, which is compared as it is"));
        }
    };
    Ok(Check { scheme, header: header?.to_ascii_lowercase(), prefix: prefix?.unwrap_or_default(), secret: secret? })
}

#[cfg(test)]
mod tests {
    use onceward_plugin::config::read as read_config;

    use super::*;

    fn config(json: &str) -> Config {
        read_config(json, read).unwrap()
    }

    #[test]
    fn a_key_alone_is_enough() {
        let config = config(r#"{"key":["header:Idempotency-Key"]}"#);
        assert_eq!(config.key, [Source::Header("idempotency-key".to_owned())]);
        assert!(config.material.is_empty());
        assert!(!config.key_signed());
        let needs = config.needs();
        assert_eq!(needs.headers, ["idempotency-key"]);
        assert!(needs.allows_unsigned);
    }

    #[test]
    fn a_key_is_signed_only_when_a_mac_covers_it() {
        let with = |key: &str, scheme: &str| {
            config(&format!(r#"{{"key":["{key}"],"verify":{{"scheme":"{scheme}","header":"X-Sig","secret":"p"}}}}"#))
        };
        assert!(with("/id", "hmac-sha256").key_signed());
        assert!(with("form:id", "hmac-sha1").key_signed());
        assert!(!with("header:id", "hmac-sha256").key_signed());
        assert!(!with("query:id", "hmac-sha512").key_signed());
        assert!(!with("/id", "token").key_signed());
        let needs = with("/id", "token").needs();
        assert_eq!(needs.headers, ["x-sig"]);
        assert_eq!(needs.secrets, ["p"]);
        assert!(!needs.allows_unsigned);
    }

    #[test]
    fn every_fault_has_its_place() {
        let faults = read_config(
            r#"{"key":["id","/a~","cookie:x","header:"],"material":["/a","/a"],"aliases":[[]],"keys":1,
                "verify":{"scheme":"hmac-md5","encoding":"hex","prefix":1,"salt":""}}"#,
            read,
        )
        .unwrap_err();
        let places: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            places,
            [
                "/key/0",
                "/key/1",
                "/key/2",
                "/key/3",
                "/material",
                "/aliases/0",
                "/verify/scheme",
                "/verify/header",
                "/verify/prefix",
                "/verify/secret",
                "/verify/salt",
                "/keys"
            ]
        );
        let faults = read_config(
            r#"{"key":["/a"],"verify":{"scheme":"token","header":"a","secret":"b","encoding":"hex"}}"#,
            read,
        );
        assert_eq!(faults.unwrap_err().first().map(|fault| fault.path.clone()).as_deref(), Some("/verify/encoding"));
    }
}
