//! Embedded defaults < file < environment, merged by figment and handed to the checks.

use std::fs;
use std::path::Path;

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::Deserialize;

use super::check;
use super::environment::{Environment, Setting};
use super::fault::{ConfigError, Fault};
use super::model::Config;
use super::raw::{DEFAULTS, Reader};

/// The defaults, and the reference for those who write a configuration.
const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

/// The tables that a file may hold; the environment reaches no other.
const TABLES: [&str; 8] = ["server", "admin", "store", "plugins", "upstreams", "tenants", "idempotency", "routes"];

/// Reads and checks a configuration. Without a file, the defaults and the environment are all there is.
///
/// Opens the files that the configuration names secrets in, so that a missing one is found before the start.
///
/// # Errors
/// [`ConfigError`] when the file cannot be read, is not TOML, or holds faults, and then all of them.
pub fn load(path: Option<&Path>, env: &Environment) -> Result<Config, ConfigError> {
    let mut figment = Figment::from(Layer::parse(DEFAULTS, Path::new("config/default.toml"), DEFAULT_TOML)?);
    if let Some(path) = path {
        let text =
            fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        figment = figment.merge(Layer::parse(path.display().to_string(), path, &text)?);
    }
    let mut faults = Vec::new();
    for setting in env.settings(&TABLES) {
        match Layer::variable(setting) {
            Ok(layer) => figment = figment.merge(layer),
            Err(fault) => faults.push(fault),
        }
    }
    // The layers cannot fail, since they are parsed above; figment's type only does not know it.
    let merged = figment.data().map_err(|error| ConfigError::Faults(vec![Fault::new("", error.to_string())]))?;
    let reader = Reader::new(&figment, env, faults);
    let config = reader.root(merged.into_values().next().unwrap_or_default(), check::config);
    reader.finish(config)
}

/// One source of values. Figment stamps every value with it, which is how a fault knows where its value came from.
struct Layer {
    name: String,
    values: Dict,
}

impl Layer {
    fn parse(name: impl Into<String>, path: &Path, text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = toml::from_str(text).map_err(|error| {
            let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            ConfigError::Syntax {
                path: path.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before.chars().count() - before.get(..line_start).unwrap_or_default().chars().count() + 1,
                message: error.message().trim().replace('\n', ", "),
            }
        })?;
        Ok(Self { name: name.into(), values: dict(table) })
    }

    fn variable(Setting { name, table, keys, value }: Setting<'_>) -> Result<Self, Fault> {
        let source = format!("environment variable {name}");
        let fault = |problem: &str, hint: &str| Fault {
            hint: Some(hint.to_owned()),
            source: Some(source.clone()),
            ..Fault::new(format!("{table}.{}", keys.join(".")), problem)
        };
        if table == "routes" {
            return Err(fault("routes are a list, which a variable cannot reach into", "write them in the file"));
        }
        let text = value.to_str().ok_or_else(|| fault("is not UTF-8", "write UTF-8 text"))?;
        let nest = |value, key: &String| Value::from(Map::from([(key.clone(), value)]));
        let nested = keys.iter().rev().fold(toml_or_text(text), nest);
        Ok(Self { name: source, values: Dict::from([(table, nested)]) })
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// A variable's value is TOML, or else plain text. A bare date is text: no key takes a date.
fn toml_or_text(text: &str) -> Value {
    match toml::Value::deserialize(toml::de::ValueDeserializer::new(text)) {
        Ok(toml::Value::Datetime(_)) | Err(_) => Value::from(text),
        Ok(parsed) => value(parsed),
    }
}

fn dict(table: toml::Table) -> Dict {
    table.into_iter().map(|(key, parsed)| (key, value(parsed))).collect()
}

fn value(parsed: toml::Value) -> Value {
    match parsed {
        toml::Value::String(text) => Value::from(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => Value::from(number),
        toml::Value::Boolean(flag) => Value::from(flag),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(items) => Value::from(items.into_iter().map(value).collect::<Vec<_>>()),
        toml::Value::Table(table) => Value::from(dict(table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference with every commented-out key switched on.
    fn whole_reference() -> String {
        let is_key = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
        let lines = DEFAULT_TOML.lines().map(|line| line.strip_prefix('#').filter(|rest| is_key(rest)).unwrap_or(line));
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let lines = lines.map(|line| match line.split_once("\"/etc/") {
            Some((key, rest)) => format!("{key}\"{file}\"{}", rest.split_once('"').map_or("", |(_, end)| end)),
            None => line.to_owned(),
        });
        lines.map(|line| line + "\n").collect()
    }

    fn environment() -> Environment {
        ["ONCEWARD_DIGEST_KEY", "ONCEWARD_ENCRYPTION_KEY", "ACME_STRIPE_SECRET"]
            .map(|name| (name, "a secret of some length"))
            .into_iter()
            .collect()
    }

    /// Every key that the checks ask for stands in the reference, every key of the reference is asked for, and its values are valid.
    #[test]
    fn the_reference_has_every_key() {
        let env = environment();
        let layer = Layer::parse("reference", Path::new("reference"), &whole_reference()).unwrap();
        let figment = Figment::from(layer);
        let reader = Reader::new(&figment, &env, Vec::new());
        let values = figment.data().unwrap().into_values().next().unwrap();
        let read = reader.root(values, check::config);
        let mut absent = reader.absent();
        // A secret has one source of three; the reference shows `env` and tells of the others.
        absent.retain(|path| !path.ends_with("].file") && !path.ends_with("].value"));
        assert_eq!(absent, Vec::<String>::new());
        let Err(ConfigError::Faults(faults)) = reader.finish(read) else { panic!("client_ca is a fault") };
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["server.tls.client_ca"], "{faults:?}");
    }

    /// What the reference shows of upstreams, tenants and routes is what they are without it.
    #[test]
    fn the_reference_shows_the_defaults_of_named_tables() {
        let dir = tempfile::tempdir().unwrap();
        let load_text = |text: &str| {
            let path = dir.path().join("onceward.toml");
            fs::write(&path, text).unwrap();
            load(Some(&path), &environment()).unwrap_or_else(|error| panic!("{error}"))
        };
        let whole: String = whole_reference()
            .lines()
            .filter(|line| !line.starts_with("client_ca"))
            .map(|line| format!("{line}\n"))
            .collect();
        let bare = r#"
            upstreams.billing.url = "http://127.0.0.1:9000"
            tenants.acme.secrets.stripe = [{ env = "ACME_STRIPE_SECRET" }]
            store.encryption_keys = [{ env = "ONCEWARD_ENCRYPTION_KEY" }]
            [[routes]]
            tenant = "acme"
            name = "stripe"
            path = "/acme/stripe"
            plugin = "stripe"
            upstream = "billing"
            capture = {}
        "#;
        let (whole, bare) = (load_text(&whole), load_text(bare));
        assert_eq!(format!("{:?}", whole.upstreams), format!("{:?}", bare.upstreams));
        assert_eq!(format!("{:?}", whole.tenants), format!("{:?}", bare.tenants));
        let (shown, real) = (&whole.routes[0], &bare.routes[0]);
        assert_eq!(shown.policy, real.policy);
        assert_eq!(format!("{:?}", shown.capture), format!("{:?}", real.capture));
        assert_eq!(
            (&shown.methods, shown.mode, shown.refuse_status, &shown.scope, &shown.allow_from),
            (&real.methods, real.mode, real.refuse_status, &real.scope, &real.allow_from)
        );
    }

    /// The defaults are the promised ones.
    #[test]
    fn the_defaults_are_the_promised_ones() {
        let promised = r#"
            admin = { listen = "127.0.0.1:8081" }
            store = { url = "sqlite:onceward.db", timeout = "1s" }
            plugins = { registry = "file:plugins-registry" }
            [server]
            listen = ["127.0.0.1:8080"]
            max_connections = 10000
            max_body = "1MiB"
            max_headers = "32KiB"
            per_address = { rate = "500/s", connections = 256 }
            timeouts = { header = "10s", body = "30s", idle = "60s" }
            drain = { delay = "0s", deadline = "30s" }
            trusted_proxies = []
            state_dir = "onceward-state"
            [idempotency]
            window = "30d"
            lease = "30s"
            missing_key = "reject"
            in_flight = { wait = "2s", status = 409 }
            mismatch = { status = 409 }
            unknown = "retry"
            failed = "retry"
            max_attempts = 5
            body_alias = false
            failed_window = "30m"
            final = ["2xx"]
            store_down = "reject"
            plugin_failure = "reject"
            keep_request = "never"
            replay = { body = "full", max_body = "256KiB", drop_headers = ["set-cookie"], redact = [], resource_id = "" }
        "#;
        let defaults: toml::Table = toml::from_str(DEFAULT_TOML).unwrap();
        assert_eq!(defaults, toml::from_str::<toml::Table>(promised).unwrap());
    }
}
