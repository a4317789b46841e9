//! Embedded defaults < file < environment, merged by figment and handed to the checks.

use std::fs;
use std::path::Path;

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::Deserialize;

use super::check;
use super::environment::Environment;
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
    for (name, keys, value) in env.settings(&TABLES) {
        match Layer::variable(name, &keys, value.to_str()) {
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

    fn variable(name: &str, keys: &[String], text: Option<&str>) -> Result<Self, Fault> {
        let source = format!("environment variable {name}");
        let fault = |problem: &str, hint: &str| Fault {
            hint: Some(hint.to_owned()),
            source: Some(source.clone()),
            ..Fault::new(keys.join("."), problem)
        };
        let [table, rest @ ..] = keys else { return Err(fault("names no key", "write ONCEWARD_TABLE__KEY")) };
        if table == "routes" {
            return Err(fault("routes are a list, which a variable cannot reach into", "write them in the file"));
        }
        let text = text.ok_or_else(|| fault("is not UTF-8", "write UTF-8 text"))?;
        let nested =
            rest.iter().rev().fold(toml_or_text(text), |value, key| Value::from(Map::from([(key.clone(), value)])));
        Ok(Self { name: source, values: Dict::from([(table.clone(), nested)]) })
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
