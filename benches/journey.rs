//! What the whole journey costs over Redis: the real binary, a real `redis-server`, an upstream that answers at once, and senders
//! on kept connections. First-seen events and replays, one sender and sixteen; medians of one run, to be compared with each other.

#![expect(clippy::expect_used, reason = "a benchmark that cannot start has nothing else to do")]
#![expect(clippy::disallowed_macros, reason = "a benchmark prints its result")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../tests/it/support/faketime.rs"]
#[expect(dead_code, reason = "the servers of this measurement run on time")]
mod faketime;
#[path = "../tests/it/support/redis.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod redis;

/// Requests of one sender in one round.
const EVENTS: usize = 1_000;

fn main() {
    // `cargo test --all-targets` runs benchmarks to see that they work: a short round is enough for that.
    let events = if std::env::args().any(|argument| argument == "--bench") { EVENTS } else { 20 };
    let redis = redis::RedisServer::start();
    let upstream = upstream();
    let gateway = Gateway::start(&redis.url(), upstream);
    for senders in [1, 16] {
        let direct = round(upstream, senders, events, "direct");
        let first = round(gateway.address, senders, events, &format!("run{senders}"));
        let replay = round(gateway.address, senders, events, &format!("run{senders}"));
        println!("{senders:>2} senders   p50      p99      events/s");
        for (name, round) in [("upstream alone", direct), ("first-seen", first), ("replay", replay)] {
            println!("  {name:<15}{:>6} µs {:>6} µs {:>8.0}", round.p50.as_micros(), round.p99.as_micros(), round.rate);
        }
    }
}

struct Round {
    p50: Duration,
    p99: Duration,
    rate: f64,
}

/// Each sender sends its own events, one after the other.
fn round(to: SocketAddr, senders: usize, events: usize, run: &str) -> Round {
    let started = Instant::now();
    let sending: Vec<_> = (0..senders)
        .map(|sender| {
            let run = run.to_owned();
            thread::spawn(move || {
                let mut socket = TcpStream::connect(to).expect("a connection");
                socket.set_nodelay(true).expect("a socket option");
                let mut reader = BufReader::new(socket.try_clone().expect("a second handle"));
                let send = |at| exchange(&mut socket, &mut reader, &format!("{run}-{sender}-{at}"));
                (0..events).map(send).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut times: Vec<Duration> = sending.into_iter().flat_map(|sender| sender.join().expect("a sender")).collect();
    let rate = times.len() as f64 / started.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    Round { p50: at(50), p99: at(99), rate }
}

fn exchange(socket: &mut TcpStream, reader: &mut BufReader<TcpStream>, id: &str) -> Duration {
    let body = format!(r#"{{"id":"{id}","amount":12500,"currency":"EUR","text":"{}"}}"#, "x".repeat(1400));
    let request = format!("POST /pay HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let started = Instant::now();
    socket.write_all(request.as_bytes()).expect("sent");
    let (head, _) = message(reader).expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    started.elapsed()
}

/// One message with a Content-Length: its head and its body.
fn message(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head.ends_with("\r\n\r\n") {
            break;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Answers every request at once, on a thread a connection.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let _ = socket.set_nodelay(true);
                let Ok(mut writer) = socket.try_clone() else { return };
                let mut reader = BufReader::new(socket);
                while message(&mut reader).is_some() {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";
                    if writer.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

struct Gateway {
    child: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Gateway {
    fn start(store: &str, upstream: SocketAddr) -> Self {
        let directory = tempfile::TempDir::new().expect("a directory");
        let config = format!(
            r#"
            server.listen = ["127.0.0.1:0"]
            server.per_address = {{ rate = "1000000/s", connections = 1000 }}
            admin.listen = "127.0.0.1:0"
            store.url = "{store}"
            upstreams.u.url = "http://{upstream}"
            tenants.t.limits = {{ rate = "1000000/s" }}
            [[routes]]
            tenant = "t"
            name = "pay"
            path = "/pay"
            plugin = "json"
            plugin_config = {{ key = ["/id"], material = ["/amount", "/currency"] }}
            upstream = "u"
            "#
        );
        let path = directory.path().join("onceward.toml");
        std::fs::write(&path, config).expect("a config file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .args(["--log", "warn", "serve", "--config"])
            .arg(&path)
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the gateway");
        let stdout = child.stdout.take().expect("a pipe");
        let listens = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("Onceward listens on http://")?.trim().parse().ok());
        Self { child, address: listens.expect("a banner"), _directory: directory }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
