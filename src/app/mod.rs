//! The composition root: the only place that names every concrete type. Listeners and shutdown are arguments.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::Response;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::admin::{Api, Health};
use crate::config::Fault;
use crate::config::model::{Config, Drain, StoreUrl};
use crate::deploy::Desk;
use crate::gateway::Gateway;
use crate::gateway::admission::{Limits, Peer};
use crate::gateway::capture::Captures;
use crate::gateway::dedupe::{Dedupe, Shared};
use crate::gateway::epochs::Epochs;
use crate::gateway::identity::DigestKeys;
use crate::gateway::journal::{Journal, JournalError};
use crate::gateway::keyring::Keyring;
use crate::gateway::limits::Rates;
use crate::gateway::meters::RouteMeters;
use crate::gateway::rejection::Rejection;
use crate::gateway::route::Routes;
use crate::gateway::upstream::Upstreams;
use crate::gateway::watch::{Unfit, Watch};
use crate::idempotency::policy::OnStoreDown;
use crate::plugin::HostError;
use crate::plugin::aside::Aside;
use crate::plugin::registry::RegistryError;
use crate::server::{self, Bound, Core, Escapes, Handler, Refused, Settings};
use crate::store::{Backend, OpenError, SealedStores, SealingKeys, Stores};
use crate::telemetry::metrics::Metrics;

pub mod assemble;

/// Connections of operators, probes and scrapers at once.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// How often what was measured is tidied.
const TIDY_EVERY: Duration = Duration::from_secs(5);

/// How long a start waits for the store to take what an earlier run could not write.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(5);

/// How long a start waits for the registry of uploaded plugins, and for code that is compiled anew.
const PLUGINS_PATIENCE: Duration = Duration::from_secs(20);

/// Why the gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration is fine on its face, but its plugins or routes are not.
    #[error("{}", .0.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
    /// The plugin host has no room.
    #[error(transparent)]
    Plugins(#[from] HostError),
    /// The registry of uploaded plugins has an address that leads nowhere.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No waiting will make the store usable.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store answers, and must not be relied on.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Nothing can be measured.
    #[error("the metrics cannot be started: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
    /// A route may forward without the store, and nothing could be written down of that.
    #[error("{0}; a route has store_down = \"forward\": give the gateway a server.state_dir that it can write to")]
    Journal(#[from] JournalError),
    /// Where captured requests are, or would be.
    #[error("captured requests in {} cannot be kept or deleted: {source}", dir.display())]
    Captures {
        /// `server.state_dir`.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// TLS material that cannot be used.
    #[error(transparent)]
    Tls(#[from] server::tls::TlsError),
    /// The system gave no thread, socket or runtime.
    #[error("the server cannot run: {0}")]
    Server(#[from] io::Error),
}

/// Sockets that listen already.
pub struct Listeners {
    ingest: Vec<Bound>,
    admin: TcpListener,
}

/// Where a running gateway listens.
pub struct Running {
    /// The ingest listeners, in the config's order.
    pub ingest: Vec<SocketAddr>,
    /// Health and metrics.
    pub admin: SocketAddr,
}

/// Binds what the configuration names.
///
/// # Errors
/// When an address cannot be had, or the TLS files cannot be used.
pub fn bind(config: &Config) -> Result<Listeners, AppError> {
    let listen =
        |address: SocketAddr| TcpListener::bind(address).map_err(|source| AppError::Listen { address, source });
    let tls = config.server.tls.as_ref().map(server::tls::load).transpose()?;
    let mut ingest = Vec::new();
    for address in &config.server.listen {
        ingest.push(Bound { listener: listen(*address)?, tls: tls.clone() });
    }
    Ok(Listeners { ingest, admin: listen(config.admin.listen)? })
}

/// Runs the gateway until `shutdown` resolves and what is in flight has ended; says how many requests the deadline cut off.
///
/// # Errors
/// [`AppError`], before anything is served.
pub async fn run(
    config: Config,
    listeners: Listeners,
    started: impl FnOnce(&Running),
    shutdown: impl Future<Output = ()>,
) -> Result<usize, AppError> {
    // First: what registers before there is a recorder is not measured.
    let metrics = Metrics::start()?;
    let config = Arc::new(config);
    let engine = assemble::engine(&config)?;
    let routes = Arc::new(assemble::routes(&config, &engine).await?);
    let deployer = assemble::deployer(&config, engine, &routes)?;
    let keys = SealingKeys::new(&config.store.encryption_keys);
    let captures = captures(&config, keys.clone())?;
    let opened = Stores::open(backend(&config.store.url), config.store.timeout).await?;
    let opened = match config.store.front.as_ref().map(backend) {
        Some(Backend::Redis(front)) => opened.behind(&front)?,
        _ => opened,
    };
    let stores = Arc::new(SealedStores::new(opened, keys.clone()));
    let journal = journal(&config, keys).await?;
    let keyring = Keyring::new(digest_keys(&config));
    let mut watch = Watch::new(stores.handle(), keyring.clone(), epochs(&config), Arc::clone(&routes));
    watch.first().await?;
    // A sender that comes at once finds the code that was active before.
    deployer.first(PLUGINS_PATIENCE).await;
    let health = Health::new(watch.standing());
    let rates = Rates::new(&config.server, &config.tenants);
    let aside = Aside::start(Settings::from(&config.server).cores)?;
    let mut background = JoinSet::new();
    background.spawn(watch.run());
    background.spawn(deployer.clone().run());
    background.spawn(tidy(metrics.clone()));
    background.spawn({
        let rates = rates.clone();
        async move { rates.forget().await }
    });
    // Before anything is served: a redelivery may not meet a claim whose outcome is known here.
    journal.catch_up(&*stores.handle(), JOURNAL_PATIENCE).await;
    background.spawn(journal.clone().keep(stores.handle()));
    let unrouted = Arc::new(RouteMeters::new("", ""));
    let shared = Shared::new(keyring, journal);
    let desk = Desk::new(deployer, captures.clone());
    let parts = Parts { rates, aside, shared, captures, routes, stores, unrouted, config };
    let drain = parts.config.server.drain;
    let admin = serve_admin(listeners.admin, parts.clone(), desk, health.clone(), metrics).await?;
    let settings = Settings::from(&parts.config.server);
    let make = move |core: Core| {
        let gateway = parts.clone().gateway(core.tasks);
        async move { serving(gateway) }.boxed()
    };
    let server = server::start(listeners.ingest, settings, make, refuse).await?;
    metrics::gauge!("onceward_config_generation").set(1.0);
    started(&Running { ingest: server.addresses().to_vec(), admin: first(admin.addresses())? });

    shutdown.await;
    health.drain();
    tracing::info!(delay = ?drain.delay, deadline = ?drain.deadline, "draining: not ready any more; work in flight goes on");
    server.shutdown(drain);
    let cut = server.wait().await;
    background.shutdown().await;
    // What an operator began may end.
    admin.shutdown(Drain { delay: Duration::ZERO, ..drain });
    admin.wait().await;
    if cut > 0 {
        tracing::warn!(cut, "the deadline cut requests off; their claims are left to their leases");
    }
    Ok(cut)
}

/// What every core builds its gateway from.
#[derive(Clone)]
struct Parts {
    config: Arc<Config>,
    routes: Arc<Routes>,
    stores: Arc<SealedStores>,
    shared: Shared,
    rates: Rates,
    aside: Aside,
    captures: Captures,
    unrouted: Arc<RouteMeters>,
}

impl Parts {
    /// Made on the core's own runtime, so that its pools and its store connection live there.
    fn gateway(self, tasks: TaskTracker) -> Arc<Gateway> {
        Arc::new(Gateway {
            limits: Limits::of(&self.config.server),
            upstreams: Upstreams::new(&self.config.upstreams),
            dedupe: Dedupe::new(self.stores.handle(), self.shared, tasks),
            routes: self.routes,
            rates: self.rates,
            aside: self.aside,
            captures: self.captures,
            unrouted: self.unrouted,
        })
    }
}

fn serving(gateway: Arc<Gateway>) -> Handler {
    Arc::new(move |request, peer| {
        let peer = Peer { address: peer.address.ip(), tls: peer.tls };
        Arc::clone(&gateway).handle(request, peer).boxed()
    })
}

/// The admin listener on a thread of its own, behind the same checks of what comes in: health answers while the data plane is busy.
async fn serve_admin(
    listener: TcpListener,
    parts: Parts,
    desk: Desk,
    health: Health,
    metrics: Metrics,
) -> Result<server::Server, AppError> {
    let settings = Settings {
        cores: NonZeroUsize::MIN,
        max_connections: ADMIN_CONNECTIONS_MAX,
        connections_per_address: ADMIN_CONNECTIONS_MAX,
        escapes: Escapes::All,
        ..Settings::from(&parts.config.server)
    };
    let make = move |core: Core| {
        let tokens = parts.config.admin.tokens.clone().into();
        let gateway = parts.clone().gateway(core.tasks);
        let api = Api { gateway, desk: desk.clone(), health: health.clone(), tokens, metrics: metrics.clone() };
        async move {
            let answer = api.handler();
            let handler: Handler = Arc::new(move |request, _| answer(request));
            handler
        }
        .boxed()
    };
    Ok(server::start(vec![Bound { listener, tls: None }], settings, make, refuse).await?)
}

fn first(addresses: &[SocketAddr]) -> Result<SocketAddr, AppError> {
    addresses.first().copied().ok_or_else(|| io::Error::other("no admin listener").into())
}

/// Keeps what is measured from piling up between two readings. Never ends.
async fn tidy(metrics: Metrics) {
    let mut tick = tokio::time::interval(TIDY_EVERY);
    loop {
        tick.tick().await;
        metrics.tidy();
    }
}

/// What earlier runs saw of the store. One in memory is new with each process.
fn epochs(config: &Config) -> Epochs {
    let url = &config.store.url;
    let state_dir = (*url != StoreUrl::Memory).then_some(config.server.state_dir.as_path());
    Epochs::open(state_dir, &url.to_string())
}

/// A store to look into while another process may be serving from it.
///
/// # Errors
/// When the store is another process's memory, or cannot be opened.
pub async fn look(config: &Config) -> Result<SealedStores, AppError> {
    let stores = Stores::look(backend(&config.store.url), config.store.timeout).await?;
    Ok(SealedStores::new(stores, SealingKeys::new(&config.store.encryption_keys)))
}

fn backend(url: &StoreUrl) -> Backend {
    match url {
        StoreUrl::Memory => Backend::Memory,
        StoreUrl::Sqlite(path) => Backend::Sqlite(path.clone()),
        StoreUrl::Redis(url) | StoreUrl::RedisSentinel(url) | StoreUrl::RedisCluster(url) => {
            Backend::Redis(url.clone())
        }
        StoreUrl::Postgres(url) => Backend::Postgres(url.clone()),
    }
}

/// What the store did not take. A route that forwards without the store does so only where that can be written down.
async fn journal(config: &Config, keys: SealingKeys) -> Result<Journal, AppError> {
    let journal = Journal::open(&config.server.state_dir.join("journal"), keys)?;
    if config.routes.iter().any(|route| route.policy.store_down == OnStoreDown::Forward) {
        journal.check().await?;
    }
    Ok(journal)
}

/// What the routes keep of their requests. A directory that cannot be had stops the start, since what is too old in it must go.
fn captures(config: &Config, keys: SealingKeys) -> Result<Captures, AppError> {
    let state_dir = &config.server.state_dir;
    Captures::open(state_dir, keys, &config.routes)
        .map_err(|source| AppError::Captures { dir: state_dir.clone(), source })
}

fn digest_keys(config: &Config) -> Option<DigestKeys> {
    let (newest, older) = config.store.digest_keys.split_first()?;
    let bytes = |key: &crate::event::Secret| key.expose().as_bytes().to_vec();
    Some(DigestKeys::new(&bytes(newest), older.iter().map(bytes)))
}

/// What the server refuses before the gateway sees it, in the gateway's words.
fn refuse(refused: Refused) -> Response<bytes::Bytes> {
    let rejection = match refused {
        Refused::BadRequest(detail) => Rejection::BadRequest(detail),
        Refused::HeadersTooLarge => Rejection::HeadersTooLarge,
        Refused::UriTooLong => Rejection::UriTooLong,
        Refused::HeaderTimeout => Rejection::ClientTimeout,
        Refused::Overloaded => Rejection::Overloaded,
        Refused::Panicked => Rejection::Internal,
    };
    rejection.into_response(None)
}
