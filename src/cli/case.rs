//! Case files: a recorded request, the secrets and config it belongs to, and what it should come to. The format is described in
//! `tests/fixtures/providers/README.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value;

use crate::event::{Delivery, Secret};
use crate::plugin::certificates::Certificates;
use crate::plugin::{self, Engine, Grant, Inspected, Plugin};

/// The name of the one secret that a case's plugin has.
const SECRET: &str = "case";

/// What a case configures of the gateway rather than of the plugin.
const HOST_KEYS: [&str; 4] = ["certs", "cert_hosts", "cert_names", "trust_root_pem"];

/// One case.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// `provider/NN-what`.
    pub name: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body_base64: String,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    config: serde_json::Map<String, Value>,
    /// Unix seconds.
    now: u64,
    /// What it should come to; a case that is only run needs none.
    #[serde(default)]
    pub expect: Expect,
}

/// What a case should come to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Expect {
    /// Whether the sender is who it should be.
    pub verified: bool,
    /// Why not; `expired` is the one that counts.
    pub reason: String,
    /// One per event.
    pub items: Vec<Item>,
    /// Outcomes where another case came before, by key.
    pub vs: Vec<Versus>,
    /// Outcome where another case came before, by alias.
    pub alias_vs: Vec<(String, Outcome)>,
    /// `handshake` or `thin-ping`: not an event.
    pub kind: Option<String>,
    /// What the sender counts as success.
    pub respond: Respond,
    /// A clean refusal passes too.
    pub reject_ok: bool,
}

/// One event of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct Item {
    /// The key in parts.
    pub key_parts: Vec<String>,
}

/// What each event of a case is where only another case came before.
#[derive(Clone, Debug, Deserialize)]
pub struct Versus {
    /// The other case's name.
    pub case: String,
    /// One per event.
    pub outcomes: Vec<Outcome>,
}

/// What an event is beside an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Same key, same material.
    Duplicate,
    /// Same key, other material.
    Conflict,
    /// Another key.
    New,
}

/// What a sender counts as success.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Respond {
    /// The exact status.
    pub status: Option<u16>,
    /// A class, `2xx`.
    pub success: Option<String>,
}

impl Case {
    /// Reads one file.
    ///
    /// # Errors
    /// When it is not there or not a case.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a case file", path.display()))
    }

    /// Reads all `.json` files of a directory, in the order of their names.
    ///
    /// # Errors
    /// When the directory cannot be read, holds no case, or one that is none.
    pub fn read_all(directory: &Path) -> anyhow::Result<Vec<Self>> {
        let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
        let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        ensure!(!paths.is_empty(), "{} holds no case file (*.json)", directory.display());
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn delivery(&self) -> anyhow::Result<Delivery> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name =
                HeaderName::from_bytes(name.as_bytes()).with_context(|| format!("{name:?} is no header name"))?;
            let value = HeaderValue::from_bytes(value.as_bytes()).with_context(|| format!("the value of {name}"))?;
            headers.append(name, value);
        }
        let (path, query) = match self.path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (self.path.as_str(), None),
        };
        let authority = headers.get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        Ok(Delivery {
            method: Method::from_bytes(self.method.as_bytes()).context("the method")?,
            scheme: "https",
            authority: authority.to_owned(),
            path: path.to_owned(),
            query,
            params: Vec::new(),
            body: STANDARD.decode(&self.body_base64).context("body_base64")?.into(),
            received_at_ms: self.now.saturating_mul(1000),
            client_certificate: None,
            headers,
        })
    }

    /// The case's certificates, if it has any, as if they had been fetched.
    fn certificates(&self) -> anyhow::Result<Option<Arc<Certificates>>> {
        if !self.config.contains_key("certs") {
            return Ok(None);
        }
        let config: HostConfig =
            serde_json::from_value(Value::Object(self.config.clone())).context("the case's certificates")?;
        let known = Certificates::new(&config.cert_hosts, &config.cert_names, &config.trust_root_pem);
        let known = known.context("trust_root_pem")?;
        for (url, pem) in &config.certs {
            known.insert(url, pem).with_context(|| format!("the certificate of {url}"))?;
        }
        Ok(Some(Arc::new(known)))
    }

    /// The plugin's config: the case's, with the name of its secret if it has one.
    fn plugin_config(&self) -> String {
        let mut config = self.config.clone();
        config.retain(|key, _| !HOST_KEYS.contains(&key.as_str()));
        if !self.secrets.is_empty() || !self.config.contains_key("certs") {
            config.insert("secret".into(), SECRET.into());
        }
        Value::Object(config).to_string()
    }
}

/// What a case configures of the host's certificates.
#[derive(Deserialize)]
struct HostConfig {
    certs: BTreeMap<String, String>,
    #[serde(default)]
    cert_hosts: Vec<String>,
    #[serde(default)]
    cert_names: Vec<String>,
    trust_root_pem: String,
}

/// A plugin and where to run it.
pub struct Bench {
    plugin: Plugin,
    runtime: tokio::runtime::Runtime,
}

/// A case that is ready to be run again and again.
pub struct Prepared {
    grant: Arc<Grant>,
    /// The request.
    pub delivery: Arc<Delivery>,
}

impl Bench {
    /// Loads a bundled plugin by its name, or a component from its file.
    ///
    /// # Errors
    /// When there is no such plugin, or it is none.
    pub fn new(plugin: &str) -> anyhow::Result<Self> {
        let engine = Engine::new(plugin::Settings { concurrency: 4, ..plugin::Settings::default() })?;
        let plugin = match plugin::bundled::bundled(plugin) {
            Some(wasm) => engine.load(plugin, wasm)?,
            None if Path::new(plugin).extension().is_some_and(|extension| extension == "wasm") => {
                let wasm = std::fs::read(plugin).with_context(|| format!("cannot read {plugin}"))?;
                engine.load(plugin, &wasm).with_context(|| plugin.to_owned())?
            }
            None => bail!(
                "there is no bundled plugin {plugin:?} (there are {}); a file's name ends in .wasm",
                plugin::bundled::NAMES.join(", ")
            ),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self { plugin, runtime })
    }

    /// The plugin.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    /// Asks the plugin about the case's config.
    ///
    /// # Errors
    /// When the case's request is none, or the plugin refuses the config.
    pub fn prepare(&self, case: &Case) -> anyhow::Result<Prepared> {
        let config = case.plugin_config();
        let needs = match self.runtime.block_on(self.plugin.examine(&config))? {
            Ok(needs) => needs,
            Err(faults) => {
                let faults = faults.iter().map(|fault| format!("{}: {}", fault.path, fault.text));
                bail!("the plugin refuses the config: {}", faults.collect::<Vec<_>>().join("; "))
            }
        };
        let secrets = case.secrets.iter().map(|text| Secret::new(text.as_str())).collect();
        let grant = Grant {
            config,
            secrets: [(SECRET.to_owned(), secrets)].into(),
            certificates: case.certificates()?,
            needs,
            allow_unsigned: true,
            budget: plugin::Budget::default(),
        };
        Ok(Prepared { grant: Arc::new(grant), delivery: Arc::new(case.delivery()?) })
    }

    /// Runs a case in a fresh instance.
    pub fn run(&self, case: &Prepared) -> Inspected {
        let inspected = self.runtime.block_on(self.plugin.inspect(&case.grant, &case.delivery));
        self.plugin.report(&inspected.log);
        inspected
    }
}
