//! Gateways whose route reads its deliveries by a plugin that the tenant uploads.

use std::net::SocketAddr;
use std::path::Path;

use onceward::plugin::bundled::bundled;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::client::{Answer, post, send};
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::Upstream;

/// Tokens, as they are presented.
pub const OPS: &str = "operator-token";
pub const T: &str = "tenant-t-token";
pub const OTHER: &str = "tenant-other-token";

/// A gateway over `store` and `registry`: the route `/pay` of tenant `t` is read by `t/orders`, which the tenant uploads. `more` is
/// further TOML.
pub fn config(registry: &str, store: &str, upstream: SocketAddr, more: &str) -> String {
    let digest = |token: &str| hex::encode(Sha256::digest(token));
    format!(
        r#"
plugins.registry = "{registry}"
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
[[routes]]
tenant = "t"
name = "pay"
path = "/pay"
plugin = "t/orders"
plugin_config = {{ key = ["/id"], material = ["/amount"] }}
unsigned = "allow"
upstream = "u"
[[routes]]
tenant = "other"
name = "other"
path = "/other"
plugin = "json"
plugin_config = {{ key = ["/id"], material = ["/amount"] }}
upstream = "u"
{more}
"#,
        digest(OPS),
        digest(T),
        digest(OTHER),
    )
}

/// The bundled plugin `json`, made another version by a section that says nothing.
pub fn version(number: u8) -> Vec<u8> {
    let mut wasm = bundled("json").unwrap().to_vec();
    wasm.extend([0, 3, 1, b'v', number]);
    wasm
}

/// What a version is called.
pub fn digest(wasm: &[u8]) -> String {
    hex::encode(Sha256::digest(wasm))
}

/// Where the plugin `t/orders` is.
pub const ORDERS: &str = "/v1/tenants/t/plugins/orders";

/// Asks a gateway's API.
pub async fn ask(gateway: &Gateway, method: &str, path: &str, token: &str, body: &[u8]) -> Answer {
    let bearer = format!("Bearer {token}");
    send(gateway.admin, method, path, &[("authorization", &bearer)], body).await
}

/// Uploads a version of `t/orders` as its tenant.
pub async fn upload(gateway: &Gateway, wasm: &[u8]) -> Answer {
    ask(gateway, "POST", &format!("{ORDERS}/versions"), T, wasm).await
}

/// Activates a version of `t/orders` as its tenant.
pub async fn activate(gateway: &Gateway, digest: &str) -> Answer {
    let wish = json!({ "digest": digest }).to_string();
    ask(gateway, "POST", &format!("{ORDERS}/activate"), T, wish.as_bytes()).await
}

/// Uploads and activates, and checks that this gateway then serves it.
pub async fn bring_in(gateway: &Gateway, wasm: &[u8]) -> Value {
    let uploaded = upload(gateway, wasm).await;
    assert_eq!(uploaded.status, 201, "{uploaded:?}");
    assert_eq!(uploaded.json()["digest"], digest(wasm));
    let activated = activate(gateway, &digest(wasm)).await;
    assert_eq!(activated.status, 200, "{activated:?}");
    let told = activated.json();
    assert_eq!((&told["serving"], &told["active"]), (&json!(true), &json!(digest(wasm))), "{told}");
    told
}

/// What the API says of `t/orders`.
pub async fn orders(gateway: &Gateway) -> Value {
    let answer = ask(gateway, "GET", ORDERS, T, b"").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

pub async fn pay(gateway: &Gateway, body: &str) -> Answer {
    post(gateway.ingest, "/pay", &[], body).await
}

/// One gateway and one upstream, with a registry in the gateway's own directory.
pub struct Rig {
    pub gateway: Gateway,
    pub upstream: Upstream,
}

impl Rig {
    pub async fn start(more: &str) -> Self {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&config("file:registry", "memory:", upstream.address, more));
        Self { gateway, upstream }
    }

    /// The registry's folder of `t/orders`.
    pub fn registry(&self) -> std::path::PathBuf {
        registry(&self.gateway.home())
    }
}

pub fn registry(home: &Home) -> std::path::PathBuf {
    home.path().join("registry/t/orders")
}

/// The names of the files in a folder, in their order.
pub fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
