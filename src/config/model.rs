//! The checked configuration: types that cannot hold a fault. What each key means stands in `config/default.toml`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

pub use crate::event::Secret;
use crate::idempotency::Policy;

/// A whole configuration that passed every check that needs no plugin code.
#[derive(Clone, Debug)]
pub struct Config {
    /// The ingest listener.
    pub server: Server,
    /// The admin listener.
    pub admin: Admin,
    /// The shared store.
    pub store: Store,
    /// Where uploaded plugins live.
    pub plugin_registry: Registry,
    /// Upstream services by name.
    pub upstreams: BTreeMap<String, Arc<Upstream>>,
    /// Tenants by name. A tenant that only routes name is here too, with defaults.
    pub tenants: BTreeMap<String, Arc<Tenant>>,
    /// In the file's order. Every `upstream` and `tenant` named here exists above.
    pub routes: Vec<Arc<Route>>,
    /// Key paths of the secrets that stand in the configuration itself, which only tests should have.
    pub inline_secrets: Vec<String>,
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// Addresses to listen on; at least one.
    pub listen: Vec<SocketAddr>,
    /// Connections served at once.
    pub max_connections: usize,
    /// Bytes.
    pub max_body: usize,
    /// Bytes of a request's head.
    pub max_headers: usize,
    /// Before anything is verified.
    pub per_address: PerAddress,
    /// How long a client may take.
    pub timeouts: Timeouts,
    /// How the server stops.
    pub drain: Drain,
    /// Networks whose `X-Forwarded-*` are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Compiled plugins and journals.
    pub state_dir: PathBuf,
    /// TLS on the ingest listener.
    pub tls: Option<Tls>,
}

/// Limits on one client address.
#[derive(Clone, Copy, Debug)]
pub struct PerAddress {
    /// Requests.
    pub rate: Rate,
    /// Connections at once.
    pub connections: usize,
}

/// So many per so long: `"500/s"`, `"20/h"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub count: u32,
    /// One second, minute, hour or day.
    pub per: Duration,
}

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From a head's first byte to its last.
    pub header: Duration,
    /// For the whole body.
    pub body: Duration,
    /// Between requests, and before the first.
    pub idle: Duration,
}

/// How the server stops.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// How long it goes on accepting after the signal, not ready.
    pub delay: Duration,
    /// How long after that it waits for work in flight.
    pub deadline: Duration,
}

/// Certificate files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// PEM chain.
    pub cert: PathBuf,
    /// PEM key.
    pub key: PathBuf,
    /// PEM roots of client certificates.
    pub client_ca: Option<PathBuf>,
}

/// `[admin]`.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The admin listener's address.
    pub listen: SocketAddr,
    /// Who may use the API.
    pub tokens: Vec<Token>,
}

/// One admin token, by its digest only.
#[derive(Clone, Debug)]
pub struct Token {
    /// Who holds it, for the audit log.
    pub name: String,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// What it may do.
    pub scope: TokenScope,
}

/// What a token may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenScope {
    /// Everything.
    Operator,
    /// One tenant's own.
    Tenant(String),
}

/// `[store]`.
#[derive(Clone, Debug)]
pub struct Store {
    /// Which back-end and where.
    pub url: StoreUrl,
    /// One store call.
    pub timeout: Duration,
    /// A fast guard in front of a SQL store.
    pub front: Option<StoreUrl>,
    /// Keys of the fingerprints, newest first; none: the key in the store's meta record.
    pub digest_keys: Vec<Secret>,
    /// Keys of stored answers, newest first.
    pub encryption_keys: Vec<Secret>,
}

/// `[plugins] registry`.
#[derive(Clone, Debug)]
pub struct Registry {
    /// `file:DIR`, `s3://…`, `gs://…` or `az://…`.
    pub url: String,
    /// What the environment says of a bucket, under the names that its own tools use: credentials, region, endpoint.
    pub options: Vec<(String, Secret)>,
}

/// A store's address. Its text may hold a password, so it is never printed whole.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory:`
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `redis://…` or `rediss://…`
    Redis(String),
    /// `redis+sentinel://h1,h2/master`
    RedisSentinel(String),
    /// `redis+cluster://h1,h2`
    RedisCluster(String),
    /// `postgres://…`
    Postgres(String),
}

/// `[upstreams.NAME]`.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its key in `[upstreams]`.
    pub name: String,
    /// Where it is.
    pub target: Target,
    /// To connect.
    pub connect_timeout: Duration,
    /// The longest one forward may take, whole.
    pub timeout: Duration,
    /// How long a pooled connection may idle.
    pub idle_timeout: Duration,
    /// `Host`: the sender's (true) or the upstream's authority.
    pub preserve_host: bool,
}

/// Where an upstream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The built-in echo service, for trying out.
    Echo,
    /// An HTTP service; the path, if any, is prefixed and has no trailing slash.
    Http {
        /// `http` or `https`.
        scheme: http::uri::Scheme,
        /// Host and port.
        authority: http::uri::Authority,
        /// `""` or `/…`.
        prefix: String,
    },
}

/// `[tenants.NAME]`.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its key in `[tenants]`.
    pub name: String,
    /// By name, newest first, never empty.
    pub secrets: BTreeMap<String, Vec<Secret>>,
    /// What it may use.
    pub limits: Limits,
    /// May upload plugins that need the WASI engine.
    pub compat: bool,
}

/// What a tenant may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Verified events.
    pub rate: Rate,
    /// Requests at once.
    pub concurrency: usize,
    /// Time in plugins, per wall time.
    pub plugin_time: TimeShare,
    /// Uploaded versions kept per plugin.
    pub versions: usize,
    /// Bytes of uploaded code.
    pub code: usize,
    /// Uploads.
    pub uploads: Rate,
}

impl Limits {
    /// What a tenant without limits of its own may use.
    pub const DEFAULT: Self = Self {
        rate: Rate { count: 200, per: Duration::from_secs(1) },
        concurrency: 64,
        plugin_time: TimeShare { time: Duration::from_millis(500), per: Duration::from_secs(1) },
        versions: 5,
        code: 64 << 20,
        uploads: Rate { count: 20, per: Duration::from_hours(1) },
    };
}

/// So much time per so long: `"500ms/s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeShare {
    /// Time used.
    pub time: Duration,
    /// Per this.
    pub per: Duration,
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StoreUrl {
    /// The kind and, for a file, its path: an address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Redis(url) => write!(f, "redis at {}", without_user_info(url)),
            Self::RedisSentinel(url) => write!(f, "redis sentinel at {}", without_user_info(url)),
            Self::RedisCluster(url) => write!(f, "redis cluster at {}", without_user_info(url)),
            Self::Postgres(url) => write!(f, "postgres at {}", without_user_info(url)),
        }
    }
}

/// Host part of an address: what stands between user info and path.
fn without_user_info(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// `[[routes]]`.
#[derive(Clone, Debug)]
pub struct Route {
    /// The tenant's name.
    pub tenant: String,
    /// Unique within the tenant.
    pub name: String,
    /// `/a/{b}/{*rest}`.
    pub path: String,
    /// Upper case, at least one.
    pub methods: Vec<http::Method>,
    /// Only for this host.
    pub host: Option<String>,
    /// Which code reads its deliveries.
    pub plugin: PluginRef,
    /// Passed to the plugin as JSON.
    pub plugin_config: serde_json::Value,
    /// Decide and obey, or decide and only record.
    pub mode: Mode,
    /// Whether a sender that signs nothing is accepted; none: by the plugin (`json` without `verify` is).
    pub unsigned: Option<Unsigned>,
    /// For unverified senders, a 4xx.
    pub refuse_status: u16,
    /// Its key in `[upstreams]`.
    pub upstream: String,
    /// The upstream's path, with captures as `{name}` (the tail too), all of which `path` has; none: as received.
    pub upstream_path: Option<String>,
    /// Where its keys live; routes of one tenant may share one.
    pub scope: String,
    /// Networks that may send; empty: all.
    pub allow_from: Vec<IpNet>,
    /// Keeps raw requests to try a new plugin version on.
    pub capture: Option<Capture>,
    /// For plugins that verify by certificate URL.
    pub certificates: Certificates,
    /// The defaults of `[idempotency]` under the route's own keys.
    pub policy: Policy,
}

/// Which code reads a route's deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PluginRef {
    /// `"stripe"`
    Bundled(String),
    /// `"acme/orders"`
    Uploaded {
        /// Whose.
        tenant: String,
        /// Its name.
        name: String,
    },
    /// `"file:PATH.wasm"`
    File(PathBuf),
}

/// Whether decisions are obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Yes.
    Dedupe,
    /// Everything is forwarded.
    Observe,
}

/// Whether a sender that signs nothing is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsigned {
    /// No.
    Reject,
    /// Yes.
    Allow,
}

/// How many raw requests are kept and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    /// Requests.
    pub max: usize,
    /// Each.
    pub ttl: Duration,
}

/// Where certificates may come from and whom they must name.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// Exact hosts.
    pub hosts: Vec<String>,
    /// Accepted subject names.
    pub names: Vec<String>,
    /// PEM file of trusted roots.
    pub roots: Option<PathBuf>,
}
