//! What a tenant whose plugins do their worst costs another one: the slowest hundredth of its deliveries, with and without it in turn,
//! so that both meet the same machine. `cargo bench --bench neighbours -- fill` runs one of the hostile plugins alone.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that cannot start has nothing else to do"
)]
#![expect(clippy::disallowed_macros, reason = "a benchmark prints its result")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use config::config;
use gateway::{Gateway, Home};
use guest::GuestCode;

#[path = "../tests/it/support/config.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod config;
#[path = "../tests/it/support/gateway.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod gateway;
#[path = "../tests/it/plugins/guest.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod guest;

/// How long one stretch of sending is. Stretches with and without the hostile tenant alternate, so that both meet the same machine.
const STRETCH: Duration = Duration::from_secs(1);
const STRETCHES: usize = 11;
/// How long the upstream takes, as a quick one does.
const UPSTREAM: Duration = Duration::from_millis(5);
/// Of each of its senders, a second.
const VICTIM_RATE: u32 = 40;
const VICTIM_SENDERS: u32 = 3;
/// As much as one address may send.
const HOSTILE_RATE: u32 = 100;
const HOSTILE_SENDERS: u32 = 25;

const ROUTE: &str = "upstream = \"u\"\nplugin_config = {}\n";

/// What the hostile tenant's plugins do, each by a route of its own, without ever failing on a genuine delivery: or they would soon be
/// left alone.
fn hostile() -> [(&'static str, GuestCode); 4] {
    let until = |step: u32, end: u32| {
        format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const {step}))) (br_if $again (i32.lt_u (global.get $calls) (i32.const {end})))"
        )
    };
    // Nearly all of its fuel.
    let spin = format!("(loop $again {})", until(1, 500_000));
    // To the limit of memory, and a byte of each page: the system has to find and clear them all.
    let fill = format!(
        "(drop (memory.grow (i32.const 1000))) (global.set $calls (i32.const 262144)) \
         (loop $again (i32.store8 (global.get $calls) (i32.const 1)) {})",
        until(4096, 65_000_000)
    );
    let mut flood = GuestCode::new();
    let line = flood.memory().put(b"a line of a flood");
    let write = format!("(call $log (i32.const 3) (i32.const {}) (i32.const {}))", line.at, line.len).repeat(300);
    [
        ("spin", GuestCode::new().first(&spin)),
        ("fill", GuestCode::new().first(&fill)),
        ("flood", flood.first(&write)),
        ("junk", GuestCode::new().verify("(loop $again (br $again)) (unreachable)")),
    ]
}

fn start(upstream: SocketAddr) -> Gateway {
    let mut text = config("memory:", upstream, "").replace("[admin]", "trusted_proxies = [\"127.0.0.0/8\"]\n[admin]");
    text += "[tenants.t]\nlimits = { rate = \"100000/s\" }\n";
    for (name, _) in hostile() {
        text += &format!(
            "[[routes]]\ntenant = \"h\"\nname = \"{name}\"\npath = \"/{name}\"\nplugin = \"file:{{dir}}/{name}.wasm\"\n{ROUTE}"
        );
    }
    let home = Home::new(&text);
    for (name, code) in hostile() {
        std::fs::write(home.path().join(format!("{name}.wasm")), code.build()).unwrap();
    }
    home.start()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    // `cargo test --all-targets` runs benchmarks to see that they work: one stretch is enough for that.
    let stretches = if std::env::args().any(|argument| argument == "--bench") { STRETCHES } else { 1 };
    let names = hostile().map(|(name, _)| name);
    let paths: Vec<String> = names
        .into_iter()
        .filter(|name| arguments.is_empty() || arguments.iter().any(|wanted| wanted == name))
        .map(|name| format!("/{name}"))
        .collect();
    let gateway = start(upstream());
    let to = gateway.ingest;
    let (mut alone, mut beside, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first deliveries pay for connections and pages.
    victim(to, "warm");
    for stretch in 0..stretches {
        let mut without = victim(to, &format!("a{stretch}"));
        let (stop, stopped) = mpsc::channel::<()>();
        let paths = paths.clone();
        let hostile = thread::spawn(move || attack(to, &paths, &stopped));
        let mut with = victim(to, &format!("b{stretch}"));
        drop(stop);
        let sent = hostile.join().unwrap();
        assert!(sent > 20, "the hostile tenant sent {sent}");
        ratios.push(slowest(&mut with).as_secs_f64() / slowest(&mut without).as_secs_f64());
        alone.append(&mut without);
        beside.append(&mut with);
    }
    ratios.sort_by(f64::total_cmp);
    alone.sort_unstable();
    beside.sort_unstable();
    println!("{:<10} alone    beside {paths:?}", "");
    for (name, share) in [("p50", 500), ("p90", 900), ("p99", 990)] {
        let at = |times: &[Duration]| times[times.len() * share / 1000].as_secs_f64() * 1e3;
        println!("{name:<10} {:>5.1} ms {:>5.1} ms", at(&alone), at(&beside));
    }
    println!("median of the stretches' ratios of p99: {:.2}", ratios[ratios.len() / 2]);
}

/// The hundredth of the deliveries that took longest begins here.
fn slowest(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Its senders send at their rate, and say how long each delivery took from the moment it was due.
fn victim(to: SocketAddr, run: &str) -> Vec<Duration> {
    let begun = Instant::now();
    let senders: Vec<_> = (0..VICTIM_SENDERS)
        .map(|number| {
            let run = run.to_owned();
            thread::spawn(move || {
                let mut sender = Sender::new(to);
                let send = |at: u32| {
                    let due = begun
                        + Duration::from_secs(1) / (VICTIM_RATE * VICTIM_SENDERS) * (at * VICTIM_SENDERS + number);
                    wait_until(due);
                    let status =
                        sender.send("/pay", "198.51.100.1", &format!(r#"{{"id":"{run}-{number}-{at}","amount":1}}"#));
                    assert_eq!(status, 200);
                    due.elapsed()
                };
                (0..VICTIM_RATE * STRETCH.as_secs() as u32).map(send).collect::<Vec<_>>()
            })
        })
        .collect();
    senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
}

/// Sends to all routes of the hostile tenant in turn until it is stopped; says how often.
fn attack(to: SocketAddr, paths: &[String], stopped: &mpsc::Receiver<()>) -> usize {
    let mut jobs = Vec::new();
    let senders: Vec<_> = (0..HOSTILE_SENDERS)
        .map(|number| {
            let (job, taken) = mpsc::channel::<()>();
            jobs.push(job);
            let paths = paths.to_vec();
            thread::spawn(move || {
                let mut sender = Sender::new(to);
                let mut sent = 0;
                for path in paths.iter().cycle().skip(number as usize) {
                    if taken.recv().is_err() {
                        return sent;
                    }
                    let status =
                        sender.send(path, if path == "/junk" { "203.0.113.67" } else { "203.0.113.66" }, "now");
                    assert!([200, 429, 503].contains(&status), "{status}");
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    let begun = Instant::now();
    for at in 0.. {
        let due = begun + Duration::from_secs(1) / HOSTILE_RATE * at;
        match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => break,
        }
        jobs[(at % HOSTILE_SENDERS) as usize].send(()).unwrap();
    }
    drop(jobs);
    senders.into_iter().map(|sender| sender.join().unwrap()).sum()
}

fn wait_until(due: Instant) {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

/// A kept connection.
struct Sender {
    socket: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Sender {
    fn new(to: SocketAddr) -> Self {
        let socket = TcpStream::connect(to).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(socket.try_clone().unwrap()), socket }
    }

    fn send(&mut self, path: &str, from: &str, body: &str) -> u16 {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: h\r\nx-forwarded-for: {from}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
        message(&mut self.reader).unwrap()[9..12].parse().unwrap()
    }
}

/// The head of a message; its body is read and left.
fn message(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
    Some(head)
}

/// Answers each request after [`UPSTREAM`], on a thread a connection.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                socket.set_nodelay(true).unwrap();
                let mut writer = socket.try_clone().unwrap();
                let mut reader = BufReader::new(socket);
                while message(&mut reader).is_some() {
                    wait_until(Instant::now() + UPSTREAM);
                    if writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
