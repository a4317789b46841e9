//! A relay between a client and a server that loses the reply to a chosen request.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Listens on a port of its own until the test's runtime ends.
pub struct Relay {
    port: u16,
    wanted: Arc<Mutex<Option<Wanted>>>,
}

/// The request whose reply is to be lost.
struct Wanted {
    marker: Vec<u8>,
    /// How many such requests pass unharmed before it.
    passes: usize,
}

impl Relay {
    /// A relay to a port of this machine.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let relay = Self { port: listener.local_addr().expect("its address").port(), wanted: Arc::default() };
        let wanted = relay.wanted.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                    tokio::spawn(pass(client, server, wanted.clone()));
                }
            }
        });
        relay
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Of the requests that contain the marker, lets so many pass, then loses the reply to one: the server has answered, and
    /// the connection ends before the client learns of it.
    pub fn lose_a_reply(&self, marker: &str, passes: usize) {
        *self.wanted.lock().expect("unpoisoned") = Some(Wanted { marker: marker.into(), passes });
    }

    /// Whether the reply was lost.
    pub fn lost(&self) -> bool {
        self.wanted.lock().expect("unpoisoned").is_none()
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, wanted: Arc<Mutex<Option<Wanted>>>) {
    let (mut asked, mut replied) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut doomed = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read {
                Ok(length) if length > 0 => {
                    doomed |= is_wanted(&asked[..length], &wanted);
                    if server.write_all(&asked[..length]).await.is_err() { return }
                }
                _ => return,
            },
            read = server.read(&mut replied) => match read {
                Ok(length) if length > 0 && !doomed => {
                    if client.write_all(&replied[..length]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}

fn is_wanted(request: &[u8], wanted: &Mutex<Option<Wanted>>) -> bool {
    let mut wanted = wanted.lock().expect("unpoisoned");
    let Some(request_wanted) = wanted.as_mut() else { return false };
    let marker = &request_wanted.marker;
    if !request.windows(marker.len()).any(|octets| octets == marker) {
        return false;
    }
    if request_wanted.passes > 0 {
        request_wanted.passes -= 1;
        return false;
    }
    *wanted = None;
    true
}
