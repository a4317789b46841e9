//! A server with a handler that does what the path says, and a client that speaks raw bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use onceward::config::model::{Drain, Timeouts};
use onceward::gateway::Body;
use onceward::server::{self, BodyFault, Bound, Core, Escapes, Handler, Peer, Refused, Server, Settings};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Longer than anything here takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running server and what its handler saw.
pub struct Rig {
    pub address: SocketAddr,
    pub server: Server,
    pub seen: Arc<Seen>,
}

/// What handlers saw and wait for.
pub struct Seen {
    /// Requests that reached a handler.
    pub requests: AtomicUsize,
    /// Handlers that came to their end.
    pub finished: AtomicUsize,
    /// Why bodies broke off.
    pub faults: Mutex<Vec<BodyFault>>,
    /// `/wait` takes one permit before it answers.
    pub gate: Semaphore,
}

pub fn settings() -> Settings {
    Settings {
        cores: NonZeroUsize::new(2).unwrap(),
        max_connections: 1000,
        connections_per_address: 1000,
        trusted_proxies: Vec::new(),
        max_headers: 32 * 1024,
        escapes: Escapes::Plain,
        timeouts: Timeouts { header: PATIENCE, body: PATIENCE, idle: PATIENCE },
    }
}

impl Rig {
    pub fn start() -> Self {
        Self::with(settings(), None)
    }

    pub fn with(settings: Settings, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seen = Arc::new(Seen {
            requests: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            faults: Mutex::default(),
            gate: Semaphore::new(0),
        });
        let for_cores = Arc::clone(&seen);
        let make_handler = move |core: Core| {
            let seen = Arc::clone(&for_cores);
            let handler: Handler =
                Arc::new(move |request, peer| serve(Arc::clone(&seen), core.tasks.clone(), request, peer).boxed());
            futures::future::ready(handler).boxed()
        };
        let server = wait(server::start(vec![Bound { listener, tls }], settings, make_handler, refuse)).unwrap();
        let address = server.addresses()[0];
        Self { address, server, seen }
    }

    pub fn connect(&self) -> Client {
        Client::new(self.address)
    }

    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// Stops at once and says how many requests were cut.
    pub fn stop(self, deadline: Duration) -> usize {
        self.server.shutdown(Drain { delay: Duration::ZERO, deadline });
        wait(self.server.wait())
    }
}

/// Waits on this thread.
pub fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Polls until it is so.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never came about: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn refuse(refused: Refused) -> Response<Bytes> {
    let (status, text) = match refused {
        Refused::BadRequest(text) => (400, text),
        Refused::HeadersTooLarge => (431, "headers too large"),
        Refused::UriTooLong => (414, "uri too long"),
        Refused::HeaderTimeout => (408, "timeout"),
        Refused::Overloaded => (503, "overloaded"),
        Refused::Panicked => (500, "internal"),
    };
    Response::builder().status(status).header("x-refused", "yes").body(Bytes::from(text)).unwrap()
}

fn answer(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

async fn serve(seen: Arc<Seen>, tasks: TaskTracker, request: Request<Body>, peer: Peer) -> Response<Body> {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    let path = request.uri().path().to_owned();
    let answer = match path.as_str() {
        "/refuse" => {
            drop(request);
            answer(StatusCode::PAYLOAD_TOO_LARGE, "too large")
        }
        "/refuse-at-length" => {
            drop(request);
            answer(StatusCode::PAYLOAD_TOO_LARGE, vec![b'x'; 16 << 20])
        }
        "/later" => {
            let seen = Arc::clone(&seen);
            tasks.spawn(async move {
                seen.gate.acquire().await.unwrap().forget();
                seen.finished.fetch_add(1, Ordering::SeqCst);
            });
            answer(StatusCode::ACCEPTED, "")
        }
        "/broken" => {
            let pieces = [Ok(http_body::Frame::data(Bytes::from("half"))), Err("broke off".into())];
            Response::new(http_body_util::StreamBody::new(futures::stream::iter(pieces)).boxed_unsync())
        }
        "/panic" => panic!("asked to"),
        "/who" => answer(StatusCode::OK, format!("{} {}", peer.tls, peer.certificate.is_some())),
        _ => {
            let trailers = match request.into_body().collect().await {
                Ok(body) => Ok((body.trailers().is_some(), body.to_bytes())),
                Err(error) => Err(*error.downcast::<BodyFault>().expect("the body's error is a BodyFault")),
            };
            if path == "/wait" {
                seen.gate.acquire().await.unwrap().forget();
            }
            match trailers {
                Ok((false, body)) => answer(StatusCode::OK, body),
                Ok((true, _)) => answer(StatusCode::INTERNAL_SERVER_ERROR, "trailers came through"),
                Err(fault) => {
                    seen.faults.lock().unwrap().push(fault);
                    let status = if fault == BodyFault::TimedOut { 408 } else { 400 };
                    answer(StatusCode::from_u16(status).unwrap(), fault.to_string())
                }
            }
        }
    };
    seen.finished.fetch_add(1, Ordering::SeqCst);
    answer
}

/// An answer as it came over the wire.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn closes(&self) -> bool {
        self.head.to_ascii_lowercase().contains("\r\nconnection: close\r\n")
    }
}

/// Raw bytes out, answers in.
pub struct Client {
    pub stream: TcpStream,
    buffered: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, buffered: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// A whole request with a body of known length.
    pub fn post(&mut self, path: &str, body: &[u8]) {
        self.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        self.send(body);
    }

    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next answer; its body has a `Content-Length`.
    pub fn answer(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.buffered.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more() > 0, "closed before an answer: {:?}", String::from_utf8_lossy(&self.buffered));
        };
        let head = String::from_utf8(self.buffered.drain(..end).collect()).unwrap();
        let status = head[9..12].parse().unwrap();
        let lower = head.to_ascii_lowercase();
        let length =
            lower.split("content-length: ").nth(1).map_or(0, |rest| rest.split('\r').next().unwrap().parse().unwrap());
        while self.buffered.len() < length {
            assert!(self.more() > 0, "closed within an answer");
        }
        let body = self.buffered.drain(..length).collect();
        Answer { status, head, body }
    }

    /// What comes until the server closes, which must not be by a reset.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() > 0 {}
        std::mem::take(&mut self.buffered)
    }

    fn more(&mut self) -> usize {
        let mut space = [0; 65536];
        let read = self.stream.read(&mut space).expect("the server neither closes nor answers in time, or resets");
        self.buffered.extend_from_slice(&space[..read]);
        read
    }
}
