//! The server: accepts connections, checks what comes in byte by byte, hands whole requests to a function, and stops without
//! losing an answer.
//!
//! One acceptor hands each connection to the least loaded of N data-plane threads, each one current-thread runtime: a request never
//! changes its thread.
//!
//! Invariants: it knows no route, store or plugin. It renders no body of its own: what it refuses is worded by the given
//! [`RefuseFn`]. No byte of a refused head reaches a handler.

mod accept;
mod body;
mod chunked;
mod close;
mod connection;
mod core;
mod guard;
mod head;
pub mod nofile;
mod target;
pub mod tls;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ipnet::IpNet;
use rustls_pki_types::CertificateDer;
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use crate::config::model::{self, Drain, Timeouts};
use crate::gateway::Body;

pub use crate::gateway::BodyFault;
pub use target::Escapes;

/// What a data-plane thread does with a request. It runs in its own task: it goes on when the client hangs up.
///
/// A body that it drops unread is discarded, up to a limit, while the answer goes out. The body's error is a [`BodyFault`].
pub type Handler = Arc<dyn Fn(http::Request<Body>, Peer) -> BoxFuture<'static, http::Response<Body>> + Send + Sync>;

/// Words the answer to what is refused here. `Content-Length`, `Connection` and `Date` are added.
pub type RefuseFn = fn(Refused) -> http::Response<Bytes>;

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The other end of the socket; an IPv4 address is never mapped into IPv6.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The client's certificate, verified against the listener's `client_ca`.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Why a request gets no handler's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 400: the head is not one that every reader reads alike. The text may be shown to the sender.
    BadRequest(&'static str),
    /// 431: too many bytes or lines.
    HeadersTooLarge,
    /// 414.
    UriTooLong,
    /// 408: the head took too long.
    HeaderTimeout,
    /// 503: too many connections from one address.
    Overloaded,
    /// 500: the handler panicked.
    Panicked,
}

/// A bound socket.
#[derive(Debug)]
pub struct Bound {
    /// Already listening.
    pub listener: std::net::TcpListener,
    /// Encrypts its connections.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

/// What the server needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Data-plane threads.
    pub cores: NonZeroUsize,
    /// Connections served at once; above it accepting pauses.
    pub max_connections: usize,
    /// Connections at once from one address, trusted proxies excepted.
    pub connections_per_address: usize,
    /// Who speaks for many senders.
    pub trusted_proxies: Vec<IpNet>,
    /// Bytes of a request's head.
    pub max_headers: usize,
    /// What a path may hold.
    pub escapes: Escapes,
    /// How long a client may take.
    pub timeouts: Timeouts,
}

impl From<&model::Server> for Settings {
    fn from(config: &model::Server) -> Self {
        Self {
            cores: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            max_connections: config.max_connections,
            connections_per_address: config.per_address.connections,
            trusted_proxies: config.trusted_proxies.clone(),
            max_headers: config.max_headers,
            escapes: Escapes::Plain,
            timeouts: config.timeouts,
        }
    }
}

/// One data-plane thread, as its handler's maker sees it. The maker runs on that thread's runtime.
#[derive(Clone, Debug)]
pub struct Core {
    /// From 0.
    pub index: usize,
    /// What is spawned through it is waited for when the server stops, as requests are.
    pub tasks: TaskTracker,
}

/// A running server. Dropping it stops it at once.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<Option<Drain>>,
    cores: Vec<oneshot::Receiver<usize>>,
}

/// Starts the threads, waits for every core's handler, then accepts.
///
/// # Errors
/// When a socket, a thread or a runtime cannot be had, or a handler's maker panicked.
pub async fn start<M>(
    listeners: Vec<Bound>,
    settings: Settings,
    make_handler: M,
    refuse: RefuseFn,
) -> io::Result<Server>
where
    M: Fn(Core) -> BoxFuture<'static, Handler> + Send + Sync + 'static,
{
    let addresses = listeners.iter().map(|bound| bound.listener.local_addr()).collect::<io::Result<_>>()?;
    let (stop, stopping) = watch::channel(None);
    let make_handler = Arc::new(make_handler);
    let mut lanes = Vec::new();
    let mut cores = Vec::new();
    let mut ready = Vec::new();
    for index in 0..settings.cores.get() {
        let started = core::start(index, &settings, Arc::clone(&make_handler), refuse, stopping.clone())?;
        lanes.push(started.lane);
        cores.push(started.done);
        ready.push(started.ready);
    }
    for ready in ready {
        ready.await.map_err(|_| io::Error::other("a data-plane thread ended while it started"))?;
    }
    accept::start(listeners, &settings, lanes, stopping)?;
    Ok(Server { addresses, stop, cores })
}

impl Server {
    /// Where it listens, in the listeners' order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Begins to stop. For `drain.delay` nothing changes; then nothing more is accepted, connections without a whole request head
    /// are closed, and what is in flight has `drain.deadline` to finish.
    pub fn shutdown(&self, drain: Drain) {
        self.stop.send_replace(Some(drain));
    }

    /// Waits for the end, which only [`Server::shutdown`] brings about. Says how many requests were cut off by the deadline.
    pub async fn wait(self) -> usize {
        let mut cut = 0;
        for core in self.cores {
            // A core that died had nothing left to count.
            cut += core.await.unwrap_or(0);
        }
        cut
    }
}
