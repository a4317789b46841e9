//! A scripted upstream: raw sockets, so that it can answer, wait, break off or say nonsense at any byte. It records every request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One request as it arrived.
#[derive(Clone, Debug, Default)]
pub struct Hit {
    pub method: String,
    pub target: String,
    /// Names in lower case; each char of a value is one octet.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The head's own bytes, to the empty line.
    pub head: Vec<u8>,
    /// Bytes that came behind it before it was answered.
    pub surplus: usize,
}

impl Hit {
    /// The only value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} came more than once: {:?}", self.headers);
        first
    }
}

/// What the upstream does with a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Writes these bytes and keeps the connection.
    Write(Vec<u8>),
    /// Writes these bytes, then closes.
    WriteAndClose(Vec<u8>),
    /// Closes with a reset.
    Reset,
    /// Waits, then goes on.
    After(Duration, Box<Act>),
    /// Says nothing until the gateway gives up.
    Silence,
}

/// An answer with a body.
pub fn answer(status: u16, fields: &[(&str, &str)], body: &[u8]) -> Act {
    let mut bytes = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    for (name, value) in fields {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    Act::Write(bytes)
}

/// An answer after a while.
pub fn later(millis: u64, act: Act) -> Act {
    Act::After(Duration::from_millis(millis), Box::new(act))
}

/// A running upstream; ends with the guard.
pub struct Upstream {
    pub address: SocketAddr,
    hits: Arc<Mutex<Vec<Hit>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Upstream {
    /// `script` gets each request and its number, from 0.
    pub async fn start(script: impl Fn(&Hit, usize) -> Act + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub async fn start_at(address: SocketAddr, script: impl Fn(&Hit, usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let hits = Arc::<Mutex<Vec<Hit>>>::default();
        let (record, script) = (Arc::clone(&hits), Arc::new(script));
        let serving = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(socket, Arc::clone(&record), script.clone()));
            }
        });
        Self { address, hits, serving }
    }

    /// One that answers each call with its number.
    pub async fn counting() -> Self {
        Self::start(|_, at| answer(200, &[("x-call", &at.to_string())], format!("call {at}").as_bytes())).await
    }

    pub fn hits(&self) -> Vec<Hit> {
        self.hits.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.hits.lock().unwrap().len()
    }

    /// Waits until so many requests have arrived.
    pub async fn arrived(&self, count: usize) {
        super::eventually("the upstream is called", || async { self.count() >= count }).await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut socket: TcpStream, hits: Arc<Mutex<Vec<Hit>>>, script: Arc<impl Fn(&Hit, usize) -> Act>) {
    let mut buffer = Vec::new();
    while let Some(hit) = read(&mut socket, &mut buffer).await {
        let at = {
            let mut hits = hits.lock().unwrap();
            hits.push(hit.clone());
            hits.len() - 1
        };
        let mut act = script(&hit, at);
        while let Act::After(pause, then) = act {
            tokio::time::sleep(pause).await;
            act = *then;
        }
        match act {
            Act::Write(bytes) => {
                if socket.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::WriteAndClose(bytes) => {
                let _ = socket.write_all(&bytes).await;
                let _ = socket.shutdown().await;
                return;
            }
            Act::Reset => {
                socket.set_zero_linger().unwrap();
                return;
            }
            Act::Silence => {
                let _ = socket.read(&mut [0; 1]).await;
                return;
            }
            Act::After(..) => unreachable!(),
        }
    }
}

async fn read(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Hit> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let raw: Vec<u8> = buffer.drain(..end).collect();
    let head: String = raw.iter().copied().map(char::from).collect();
    let mut lines = head.lines();
    let mut start = lines.next()?.split(' ');
    let mut hit = Hit { method: start.next()?.to_owned(), target: start.next()?.to_owned(), ..Hit::default() };
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        hit.headers.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    // The first one, and none for nonsense: who looks at the head finds out.
    let length = hit.headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
    while buffer.len() < length {
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    hit.body = buffer.drain(..length).collect();
    (hit.head, hit.surplus) = (raw, buffer.len());
    Some(hit)
}
