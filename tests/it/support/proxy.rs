//! A TCP relay that does wrong on demand: between a gateway and its store, or its upstream.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// What it does with what passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Pass,
    /// Holds every piece back so long, both ways.
    Delay(Duration),
    /// Takes everything and passes nothing on, both ways: half-open.
    BlackHole,
    /// Resets whoever connects.
    Refuse,
    /// Passes so many bytes of a connection's replies, then resets it.
    CutRepliesAfter(usize),
    /// Passes so many bytes of a connection's requests, then resets it.
    CutRequestsAfter(usize),
    /// Passes a request that holds these bytes, swallows the reply and resets the connection; then does as the mode behind it.
    DropReplyTo(Vec<u8>, Box<Mode>),
}

/// A running relay; ends with the guard.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<()>,
}

struct Shared {
    mode: watch::Sender<Mode>,
    target: Mutex<SocketAddr>,
    /// Counts up: every connection of before is reset.
    cut: watch::Sender<u64>,
}

impl Proxy {
    /// In front of `target`, passing everything.
    pub async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            mode: watch::Sender::new(Mode::Pass),
            target: Mutex::new(target),
            cut: watch::Sender::new(0),
        });
        let relaying = Arc::clone(&shared);
        let serving = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(relay(client, Arc::clone(&relaying)));
            }
        });
        Self { address, shared, serving }
    }

    /// Does so from now on, on open connections too.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// What it does now.
    pub fn mode(&self) -> Mode {
        self.shared.mode.borrow().clone()
    }

    /// Resets every open connection.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|count| *count += 1);
    }

    /// Another server stands there from now on.
    pub fn switch_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
        self.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
        self.cut();
    }
}

/// One connection, both ways, until an end or a fault.
async fn relay(mut client: TcpStream, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let target = *shared.target.lock().unwrap();
    let refuses = *shared.mode.borrow() == Mode::Refuse;
    let ended = match TcpStream::connect(target).await {
        Ok(mut server) if !refuses => tokio::select! {
            ended = pump(&mut client, &mut server, &shared) => ended,
            _ = cut.changed() => false,
        },
        _ => false,
    };
    if !ended {
        // Reset, not closed: what is under way is lost.
        client.set_zero_linger().unwrap();
    }
}

/// True when one side ended properly, false when the connection is to be reset.
async fn pump(client: &mut TcpStream, server: &mut TcpStream, shared: &Shared) -> bool {
    let (mut from_client, mut from_server) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let (mut requests, mut replies, mut swallow) = (0, 0, false);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return read.is_ok() };
                let bytes = &from_client[..count];
                let Some(pass) = through(shared, |mode| if let Mode::CutRequestsAfter(most) = mode { Some(*most) } else { None }, requests, count).await
                else { return false };
                let mode = shared.mode.borrow().clone();
                if let Mode::DropReplyTo(pattern, then) = mode
                    && bytes.windows(pattern.len()).any(|window| window == pattern)
                {
                    swallow = true;
                    shared.mode.send_replace(*then);
                }
                requests += pass;
                if server.write_all(&bytes[..pass]).await.is_err() || pass < count {
                    return false;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return read.is_ok() };
                if swallow {
                    return false;
                }
                let Some(pass) = through(shared, |mode| if let Mode::CutRepliesAfter(most) = mode { Some(*most) } else { None }, replies, count).await
                else { return false };
                replies += pass;
                if client.write_all(&from_server[..pass]).await.is_err() || pass < count {
                    return false;
                }
            }
        }
    }
}

/// How many of `count` further bytes may pass, after a pause where one is due; none: the connection is refused.
async fn through(shared: &Shared, most: impl Fn(&Mode) -> Option<usize>, passed: usize, count: usize) -> Option<usize> {
    let mode = shared.mode.borrow().clone();
    match &mode {
        Mode::Delay(pause) => sleep(*pause).await,
        Mode::BlackHole => {
            let mut changes = shared.mode.subscribe();
            let _ = changes.wait_for(|mode| *mode != Mode::BlackHole).await;
        }
        Mode::Refuse => return None,
        _ => {}
    }
    Some(most(&mode).map_or(count, |most| count.min(most.saturating_sub(passed))))
}
