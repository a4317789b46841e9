//! The composition root: the only place that names every concrete type. Listeners and shutdown are arguments.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use futures::FutureExt;
use http::Response;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Health};
use crate::config::Fault;
use crate::config::model::{Config, StoreUrl};
use crate::gateway::Gateway;
use crate::gateway::admission::{Limits, Peer};
use crate::gateway::dedupe::{Dedupe, Shared};
use crate::gateway::identity::DigestKeys;
use crate::gateway::keyring::Keyring;
use crate::gateway::limits::Rates;
use crate::gateway::rejection::Rejection;
use crate::gateway::route::Routes;
use crate::gateway::upstream::Upstreams;
use crate::plugin::HostError;
use crate::server::{self, Bound, Core, Handler, Refused, Settings};
use crate::store::{Backend, OpenError, Stores};

pub mod assemble;

/// Why the gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration is fine on its face, but its plugins or routes are not.
    #[error("{}", .0.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
    /// The plugin host has no room.
    #[error(transparent)]
    Plugins(#[from] HostError),
    /// No waiting will make the store usable.
    #[error(transparent)]
    Store(#[from] OpenError),
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
    let routes = Arc::new(assemble::routes(&config).await?);
    let stores = Stores::open(backend(&config.store.url), config.store.timeout).await?;
    let stores = Arc::new(match config.store.front.as_ref().map(backend) {
        Some(Backend::Redis(front)) => stores.behind(&front)?,
        _ => stores,
    });
    let health = Health::new(stores.handle());
    let admin_address = listeners.admin.local_addr()?;
    let admin = admin::serve(listeners.admin, health.clone())?;

    let keyring = Keyring::new(digest_keys(&config));
    let keeping = tokio::spawn({
        let (keyring, store) = (keyring.clone(), stores.handle());
        async move { keyring.keep(store).await }
    });
    let rates = Rates::new(&config.server, &config.tenants);
    let forgetting = tokio::spawn({
        let rates = rates.clone();
        async move { rates.forget().await }
    });
    let parts = Parts { rates, shared: Shared::new(keyring), routes, stores, config: Arc::new(config) };
    let drain = parts.config.server.drain;
    let settings = Settings::from(&parts.config.server);
    let make = move |core: Core| parts.clone().handler(core.tasks).boxed();
    let server = server::start(listeners.ingest, settings, make, refuse).await?;
    started(&Running { ingest: server.addresses().to_vec(), admin: admin_address });

    shutdown.await;
    health.drain();
    tracing::info!(delay = ?drain.delay, deadline = ?drain.deadline, "draining: not ready any more; work in flight goes on");
    server.shutdown(drain);
    let cut = server.wait().await;
    admin.abort();
    keeping.abort();
    forgetting.abort();
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
    stores: Arc<Stores>,
    shared: Shared,
    rates: Rates,
}

impl Parts {
    /// Runs on the core's own runtime, so that its pools and its store connection live there.
    async fn handler(self, tasks: TaskTracker) -> Handler {
        let gateway = Arc::new(Gateway {
            limits: Limits::of(&self.config.server),
            upstreams: Upstreams::new(&self.config.upstreams),
            dedupe: Dedupe::new(self.stores.handle(), self.shared, tasks),
            routes: self.routes,
            rates: self.rates,
        });
        Arc::new(move |request, peer| {
            let peer = Peer { address: peer.address.ip(), tls: peer.tls };
            Arc::clone(&gateway).handle(request, peer).boxed()
        })
    }
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
