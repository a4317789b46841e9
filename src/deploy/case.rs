//! Case files: a recorded request, the secrets and config it belongs to, and what it should come to. The format is described in
//! `tests/fixtures/providers/README.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::Value;

use crate::event::{Delivery, Secret};
use crate::plugin::certificates::Certificates;
use crate::plugin::{Budget, Grant, Inspected, Plugin};

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
    /// The body's bytes, or `body` instead: its text.
    body_base64: Option<String>,
    body: Option<String>,
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
    pub alias_vs: Vec<(String, Beside)>,
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
    pub outcomes: Vec<Beside>,
}

/// What an event is beside an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beside {
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

/// A case that cannot be run. The text names what is wrong in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CaseFault(String);

/// Says where in the case the cause lies.
fn at<E: std::fmt::Display>(place: impl std::fmt::Display) -> impl FnOnce(E) -> CaseFault {
    move |cause| CaseFault(format!("{place}: {cause}"))
}

impl Case {
    /// Reads one from its JSON.
    ///
    /// # Errors
    /// When it is not a case.
    pub fn parse(json: &[u8]) -> Result<Self, CaseFault> {
        serde_json::from_slice(json).map_err(|error| CaseFault(error.to_string()))
    }

    /// Asks the plugin about the case's config.
    ///
    /// # Errors
    /// When the case's request is none, or the plugin refuses the config.
    pub async fn prepare(&self, plugin: &Plugin, budget: Budget) -> Result<Prepared, CaseFault> {
        let config = self.plugin_config();
        let needs = match plugin.examine(&config).await.map_err(|failure| CaseFault(failure.to_string()))? {
            Ok(needs) => needs,
            Err(faults) => {
                let faults = faults.iter().map(|fault| format!("{}: {}", fault.path, fault.text));
                let faults = faults.collect::<Vec<_>>().join("; ");
                return Err(CaseFault(format!("the plugin refuses the config: {faults}")));
            }
        };
        let secrets = self.secrets.iter().map(|text| Secret::new(text.as_str())).collect();
        let grant = Grant {
            config,
            secrets: [(SECRET.to_owned(), secrets)].into(),
            certificates: self.certificates()?,
            needs,
            allow_unsigned: true,
            budget,
        };
        Ok(Prepared { grant: Arc::new(grant), delivery: Arc::new(self.delivery()?) })
    }

    fn delivery(&self) -> Result<Delivery, CaseFault> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let place = format!("the header {name:?}");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(at(&place))?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(at(&place))?;
            headers.append(name, value);
        }
        let (path, query) = match self.path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (self.path.as_str(), None),
        };
        let authority = headers.get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        Ok(Delivery {
            method: Method::from_bytes(self.method.as_bytes()).map_err(at("`method`"))?,
            scheme: "https",
            authority: authority.to_owned(),
            path: path.to_owned(),
            query,
            params: Vec::new(),
            body: self.body()?.into(),
            received_at_ms: self.now.saturating_mul(1000),
            client_certificate: None,
            headers,
        })
    }

    fn body(&self) -> Result<Vec<u8>, CaseFault> {
        match (&self.body_base64, &self.body) {
            (Some(encoded), None) => STANDARD.decode(encoded).map_err(at("`body_base64`")),
            (None, Some(text)) => Ok(text.clone().into_bytes()),
            _ => Err(CaseFault("a case has either `body` or `body_base64`".to_owned())),
        }
    }

    /// The case's certificates, if it has any, as if they had been fetched.
    fn certificates(&self) -> Result<Option<Arc<Certificates>>, CaseFault> {
        if !self.config.contains_key("certs") {
            return Ok(None);
        }
        let config: HostConfig =
            serde_json::from_value(Value::Object(self.config.clone())).map_err(at("the case's certificates"))?;
        let known = Certificates::new(&config.cert_hosts, &config.cert_names, &config.trust_root_pem);
        let known = known.map_err(at("`trust_root_pem`"))?;
        for (url, pem) in &config.certs {
            known.insert(url, pem).map_err(at(format!("the certificate of {url}")))?;
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

/// A case that is ready to be run again and again.
pub struct Prepared {
    /// Its config and secrets.
    pub grant: Arc<Grant>,
    /// The request.
    pub delivery: Arc<Delivery>,
}

impl Prepared {
    /// Runs it in a fresh instance.
    pub async fn run(&self, plugin: &Plugin) -> Inspected {
        plugin.inspect(&self.grant, &self.delivery).await
    }
}
