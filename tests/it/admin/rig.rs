//! A gateway of two tenants with tokens, and a caller of its API.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use crate::support::client::{Answer, post, send};
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;

/// Tokens, as they are presented.
pub const OPS: &str = "operator-token";
pub const T: &str = "tenant-t-token";
pub const OTHER: &str = "tenant-other-token";

/// Where event `id` of tenant `t`'s route `pay` stands.
pub fn place(id: &str) -> String {
    format!("/v1/tenants/t/events/pay/{id}")
}

/// A gateway over `store`: tenant `t` has the routes `/pay` (with these idempotency keys) and `/items` (keys of two parts), tenant
/// `other` has `/other`.
pub fn config(store: &str, upstream: SocketAddr, idempotency: &str) -> String {
    let digest = |token: &str| hex::encode(Sha256::digest(token));
    let route = |tenant: &str, name: &str, key: &str, idempotency: &str| {
        format!(
            r#"
[[routes]]
tenant = "{tenant}"
name = "{name}"
path = "/{name}"
plugin = "json"
plugin_config = {{ key = {key}, material = ["/amount"] }}
upstream = "u"
[routes.idempotency]
{idempotency}
"#
        )
    };
    format!(
        r#"
[server]
listen = ["127.0.0.1:0"]
state_dir = "{{dir}}/state"
[admin]
listen = "127.0.0.1:0"
tokens = [
  {{ name = "ops", sha256 = "{}", scope = "operator" }},
  {{ name = "t-ci", sha256 = "{}", scope = "tenant:t" }},
  {{ name = "other-ci", sha256 = "{}", scope = "tenant:other" }},
]
[store]
url = "{store}"
[upstreams.u]
url = "http://{upstream}"
timeout = "400ms"
{}{}{}"#,
        digest(OPS),
        digest(T),
        digest(OTHER),
        route("t", "pay", r#"["/id"]"#, idempotency),
        route("t", "items", r#"["/id", "/item"]"#, ""),
        route("other", "other", r#"["/id"]"#, ""),
    )
}

/// One gateway and one upstream.
pub struct Rig {
    pub gateway: Gateway,
    pub upstream: Upstream,
}

impl Rig {
    pub fn over(store: &str, upstream: Upstream, idempotency: &str) -> Self {
        Self { gateway: Gateway::start(&config(store, upstream.address, idempotency)), upstream }
    }

    /// In this process's memory, with an upstream that answers each call with its number.
    pub async fn start(idempotency: &str) -> Self {
        Self::over("memory:", Upstream::counting().await, idempotency)
    }

    pub async fn pay(&self, body: &str) -> Answer {
        post(self.gateway.ingest, "/pay", &[], body).await
    }

    /// Asks the API with a token.
    pub async fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        send(self.gateway.admin, method, path, &[("authorization", &bearer)], body.as_bytes()).await
    }

    /// GETs as the operator.
    pub async fn see(&self, path: &str) -> Answer {
        self.ask("GET", path, OPS, "").await
    }

    /// POSTs as the operator.
    pub async fn act(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, OPS, body).await
    }

    /// All samples by name with labels.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        metrics(&self.gateway).await
    }

    /// Lines of the audit, of one kind.
    pub fn audit(&self, kind: &str) -> Vec<serde_json::Value> {
        audit(&self.gateway, kind)
    }
}

pub async fn metrics(gateway: &Gateway) -> BTreeMap<String, f64> {
    let answer = crate::support::client::get(gateway.admin, "/metrics").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{answer:?}");
    let text = String::from_utf8(answer.body).unwrap();
    let sample = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).filter_map(sample).collect()
}

pub fn audit(gateway: &Gateway, kind: &str) -> Vec<serde_json::Value> {
    let lines = logged(gateway, "onceward::audit");
    lines.into_iter().filter(|line| line["kind"] == kind).collect()
}

/// The log's lines of one target.
pub fn logged(gateway: &Gateway, target: &str) -> Vec<serde_json::Value> {
    let lines = gateway.log();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter(|line| line["target"] == target).collect()
}
