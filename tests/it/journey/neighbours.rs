//! What a tenant whose plugins do their worst costs another one: the slowest hundredth of its deliveries, side by side in one run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::rig::event;
use crate::admin::rig::metrics;
use crate::plugins::guest::GuestCode;
use crate::support::config::{SQLITE, config};
use crate::support::gateway::{Gateway, Home};

/// How long one stretch of sending is. Stretches with and without the hostile tenant alternate, so that both meet the same machine.
const STRETCH: Duration = Duration::from_secs(2);
const STRETCHES: usize = 5;
/// How long the upstream takes, as a quick one does.
const UPSTREAM: Duration = Duration::from_millis(10);
const VICTIM_RATE: u32 = 100;
/// As much as one address may send.
const HOSTILE_RATE: u32 = 500;
const HOSTILE_SENDERS: u32 = 25;

const ROUTE: &str = "upstream = \"u\"\nplugin_config = {}\n";

/// What the hostile tenant's plugins do, each by a route of its own.
fn hostile() -> [(&'static str, GuestCode); 4] {
    let spin = "(loop $again (br $again)) (unreachable)";
    // To the limit of memory at once, then over all of it again and again: little fuel, much time.
    let fill = "(drop (memory.grow (i32.const 1000))) \
                (loop $again (memory.fill (i32.const 262144) (i32.const 1) (i32.const 65000000)) (br $again)) (unreachable)";
    let mut flood = GuestCode::new();
    let line = flood.memory().put(b"a line of a flood");
    let write = format!("(call $log (i32.const 3) (i32.const {}) (i32.const {}))", line.at, line.len).repeat(300);
    [
        ("spin", GuestCode::new().extract(spin)),
        ("fill", GuestCode::new().extract(fill)),
        (
            "grow",
            GuestCode::new().extract("(loop $more (drop (memory.grow (i32.const 100))) (br $more)) (unreachable)"),
        ),
        ("flood", flood.first(&write)),
    ]
}

fn start(upstream: SocketAddr) -> Gateway {
    let mut text = config(SQLITE, upstream, "").replace("[admin]", "trusted_proxies = [\"127.0.0.0/8\"]\n[admin]");
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

/// A hostile tenant that sends all it may costs its neighbour at most half as much again.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_tenant_costs_its_neighbour_little() {
    let gateway = start(upstream());
    let to = gateway.ingest;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    // The first deliveries pay for connections and pages.
    victim(to, "warm");
    for stretch in 0..STRETCHES {
        alone.extend(victim(to, &format!("a{stretch}")));
        let (stop, stopped) = mpsc::channel::<()>();
        let hostile = thread::spawn(move || attack(to, &stopped));
        beside.extend(victim(to, &format!("b{stretch}")));
        drop(stop);
        let sent = hostile.join().unwrap();
        assert!(sent > 100, "the hostile tenant sent {sent}");
    }
    let counted = metrics(&gateway).await;
    let failures: Vec<_> = counted
        .iter()
        .filter(|(name, _)| name.starts_with("onceward_plugin_failures_total") || name.starts_with("onceward_limited"))
        .collect();
    let p = |times: &mut Vec<Duration>, share: usize| {
        times.sort_unstable();
        times[times.len() * share / 1000]
    };
    let report = format!(
        "p50 {:?} → {:?}, p90 {:?} → {:?} p99 {:?} → {:?} max {:?} → {:?} {failures:?}",
        p(&mut alone, 500),
        p(&mut beside, 500),
        p(&mut alone, 900),
        p(&mut beside, 900),
        p(&mut alone, 990),
        p(&mut beside, 990),
        alone.last(),
        beside.last()
    );
    eprintln!("{report}");
    assert!(p(&mut beside, 990) <= p(&mut alone, 990) * 3 / 2, "{report}");
}

/// Sends at its rate, and says how long each delivery took from the moment it was due.
fn victim(to: SocketAddr, run: &str) -> Vec<Duration> {
    let mut sender = Sender::new(to);
    let begun = Instant::now();
    let mut times = Vec::new();
    for at in 0..VICTIM_RATE * STRETCH.as_secs() as u32 {
        let due = begun + Duration::from_secs(1) / VICTIM_RATE * at;
        wait_until(due);
        let status = sender.send("/pay", "198.51.100.1", &event(&format!("{run}-{at}"), 1));
        assert_eq!(status, 200);
        times.push(due.elapsed());
    }
    times
}

/// Sends to all routes of the hostile tenant in turn until it is stopped; says how often.
fn attack(to: SocketAddr, stopped: &mpsc::Receiver<()>) -> usize {
    let mut jobs = Vec::new();
    let senders: Vec<_> = (0..HOSTILE_SENDERS)
        .map(|number| {
            let (job, taken) = mpsc::channel::<()>();
            jobs.push(job);
            thread::spawn(move || {
                let mut sender = Sender::new(to);
                let names = hostile().map(|(name, _)| format!("/{name}"));
                let mut sent = 0;
                for path in names.iter().cycle().skip(number as usize) {
                    if taken.recv().is_err() {
                        return sent;
                    }
                    let status = sender.send(path, "203.0.113.66", "now");
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
