//! The acceptor: one thread that takes connections within the limits and hands each to the least loaded core.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::poll_fn;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;

use super::{Bound, Settings};
use crate::config::model::Drain;

/// How long accepting pauses when the system has no more file descriptors or memory for it.
const PAUSE: Duration = Duration::from_millis(100);

/// Clients over their limit that are told so at once; the others are closed without a word.
const TURNED_AWAY_MAX: usize = 64;

/// The way to one core.
pub(super) struct Lane {
    /// Takes connections; bounded by the permits that they hold.
    pub sender: mpsc::UnboundedSender<Accepted>,
    /// Connections on that core.
    pub load: Arc<AtomicUsize>,
}

/// A connection on its way to a core.
pub(super) struct Accepted {
    /// Belongs to no runtime yet.
    pub stream: std::net::TcpStream,
    /// The other end.
    pub address: SocketAddr,
    /// Encrypts it.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Over its address's limit: only to be told so.
    pub turned_away: bool,
    /// To hold as long as the connection lives.
    pub places: Places,
}

/// What a connection takes up, given back on drop.
pub(super) struct Places {
    _permit: OwnedSemaphorePermit,
    _address: Option<AddressPlace>,
    _load: LoadPlace,
}

struct LoadPlace(Arc<AtomicUsize>);

impl Drop for LoadPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct AddressPlace {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

struct Acceptor {
    listeners: Vec<(TcpListener, Option<Arc<rustls::ServerConfig>>)>,
    /// Where the next look starts, so that a busy listener starves no other.
    next_listener: usize,
    lanes: Vec<Lane>,
    connections: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    per_address_max: usize,
    per_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    trusted_proxies: Vec<IpNet>,
}

/// Starts the acceptor. It ends when `stopping` says so and its delay is over; the lanes then close.
///
/// # Errors
/// When a socket, a thread or a runtime cannot be had.
pub(super) fn start(
    listeners: Vec<Bound>,
    settings: &Settings,
    lanes: Vec<Lane>,
    stopping: watch::Receiver<Option<Drain>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let listeners = listeners.into_iter().map(|Bound { listener, tls }| {
        listener.set_nonblocking(true)?;
        Ok((TcpListener::from_std(listener)?, tls))
    });
    let acceptor = Acceptor {
        listeners: listeners.collect::<io::Result<_>>()?,
        next_listener: 0,
        lanes,
        connections: Arc::new(Semaphore::new(settings.max_connections.min(Semaphore::MAX_PERMITS))),
        turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        per_address_max: settings.connections_per_address,
        per_address: Arc::default(),
        trusted_proxies: settings.trusted_proxies.clone(),
    };
    drop(entered);
    thread::Builder::new().name("accept".to_owned()).spawn(move || runtime.block_on(run(acceptor, stopping)))?;
    Ok(())
}

async fn run(mut acceptor: Acceptor, mut stopping: watch::Receiver<Option<Drain>>) {
    let mut stopped = pin!(async {
        // Without a sender there is nobody who could ask for a delay.
        let delay = stopping.wait_for(Option::is_some).await.ok().and_then(|drain| drain.map(|drain| drain.delay));
        sleep(delay.unwrap_or_default()).await;
    });
    loop {
        tokio::select! {
            () = &mut stopped => break,
            () = acceptor.accept() => (),
        }
    }
    // Closing a listener resets what waits in its queue; those clients have connected already. A flood does not hold this up: a
    // task's turn has an end.
    while acceptor.accept().now_or_never().is_some() {}
}

impl Acceptor {
    async fn accept(&mut self) {
        // The permit comes first: a connection that cannot be served stays in the system's queue.
        let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return };
        match poll_fn(|cx| self.poll_accept(cx)).await {
            Ok((stream, address, listener)) => self.hand_over(stream, address, listener, permit),
            Err(error) if is_connections_own(&error) => (),
            Err(error) => {
                tracing::warn!(%error, "cannot accept; pausing");
                sleep(PAUSE).await;
            }
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr, usize)>> {
        let count = self.listeners.len();
        for step in 0..count {
            let index = (self.next_listener + step) % count;
            let Some((listener, _)) = self.listeners.get(index) else { continue };
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                self.next_listener = index + 1;
                return Poll::Ready(accepted.map(|(stream, address)| (stream, address, index)));
            }
        }
        Poll::Pending
    }

    fn hand_over(&self, stream: TcpStream, address: SocketAddr, listener: usize, permit: OwnedSemaphorePermit) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let tls = self.listeners.get(listener).and_then(|(_, tls)| tls.clone());
        let (permit, place, turned_away) = match self.place_for(address.ip()) {
            Ok(place) => (permit, place, false),
            // Those hold a permit of their own few, so that one address cannot keep all others out.
            Err(Full) => match Arc::clone(&self.turned_away).try_acquire_owned() {
                Ok(permit) => (permit, None, true),
                Err(_) => return,
            },
        };
        // A socket that fails here is gone already.
        let Ok(stream) = stream.set_nodelay(true).and_then(|()| stream.into_std()) else { return };
        let Some(lane) = self.lanes.iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed)) else { return };
        lane.load.fetch_add(1, Ordering::Relaxed);
        let places = Places { _permit: permit, _address: place, _load: LoadPlace(Arc::clone(&lane.load)) };
        // A core that died closes its connections, these too.
        let _ = lane.sender.send(Accepted { stream, address, tls, turned_away, places });
    }

    /// A place among the address's connections; none is needed for a proxy, which speaks for many.
    fn place_for(&self, address: IpAddr) -> Result<Option<AddressPlace>, Full> {
        if self.trusted_proxies.iter().any(|network| network.contains(&address)) {
            return Ok(None);
        }
        let mut counts = self.per_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_insert(0);
        if *count >= self.per_address_max {
            return Err(Full);
        }
        *count += 1;
        Ok(Some(AddressPlace { counts: Arc::clone(&self.per_address), address }))
    }
}

/// The address has all the connections it may have.
struct Full;

/// Whether the failure was one connection's and not the listener's.
fn is_connections_own(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
