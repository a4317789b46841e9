//! Random faults against random deliveries, by seed; then calm, redelivery of everything, and the check over the logs.
//!
//! A seed makes the decisions repeat, not the races. `ONCEWARD_SEEDS=7` or `ONCEWARD_SEEDS=1..40` runs others than the usual ones,
//! and `ONCEWARD_FIGURES=FILE` adds a line of figures a run: `scripts/test --long` does both, for `docs/promises.md`.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::checker::check;
use super::driver::{Driver, Event, Recording, line, recording};
use super::log::{Audited, Lines, Run, audited};
use super::stores::{self, TestStore};
use crate::support::config::config_with;
use crate::support::gateway::{Gateway, Home};
use crate::support::proxy::{Mode, Proxy};
use crate::support::random::Random;

const LEASE: Duration = Duration::from_millis(800);
const POLICY: &str = "lease = \"800ms\"\nin_flight = { wait = \"200ms\" }";
const EVENTS: u64 = 60;
const SENDERS: u64 = 6;

/// How long faults strike.
const STORM: Duration = Duration::from_secs(10);

#[tokio::test]
async fn on_sqlite() {
    for seed in seeds() {
        run(seed, stores::sqlite()).await;
    }
}

#[tokio::test]
async fn on_redis() {
    for seed in seeds() {
        run(seed, stores::redis()).await;
    }
}

#[tokio::test]
async fn on_postgres() {
    for seed in seeds() {
        run(seed, stores::postgres()).await;
    }
}

#[tokio::test]
async fn behind_sentinels() {
    for seed in seeds() {
        run(seed, stores::sentinel()).await;
    }
}

#[tokio::test]
async fn in_a_cluster() {
    for seed in seeds() {
        run(seed, stores::cluster()).await;
    }
}

#[tokio::test]
async fn with_a_front() {
    for seed in seeds() {
        run(seed, stores::front()).await;
    }
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "what a test run is asked for, no configuration of the gateway")]
    std::env::var(name).ok()
}

fn seeds() -> Vec<u64> {
    let wanted = variable("ONCEWARD_SEEDS").unwrap_or_else(|| "1..2".to_owned());
    let number = |text: &str| text.trim().parse::<u64>().expect("ONCEWARD_SEEDS is a number, or FIRST..LAST");
    match wanted.split_once("..") {
        Some((first, last)) => (number(first)..=number(last)).collect(),
        None => vec![number(&wanted)],
    }
}

/// How often each kind of fault struck.
#[derive(Debug, Default)]
struct Struck {
    kills: u64,
    stops: u64,
    network: u64,
}

async fn run(seed: u64, store: TestStore) {
    let (name, started) = (format!("{}-{seed}", store.name), Instant::now());
    let dir = TempDir::new().unwrap();
    let at_upstream = recording(seed, &dir.path().join("upstream.log"), &name, started).await;
    let to_upstream = Proxy::before(at_upstream.upstream.address).await;
    let to_store = match store.server_address() {
        Some(address) => Some(Proxy::before(address).await),
        None => None,
    };
    let url = store.url_at(to_store.as_ref().map(|proxy| proxy.address));
    let text = config_with(&url, to_upstream.address, "timeout = \"2s\"", POLICY);
    let homes: Vec<_> = (0..if store.shared { 2 } else { 1 }).map(|_| Home::new(&text)).collect();
    let gateways = homes.iter().map(Home::start).collect();
    let driver = Arc::new(Driver::new(seed, gateways, Lines::create(&dir.path().join("driver.log"), &name, started)));

    let storm = Instant::now() + STORM;
    let sending = (0..SENDERS).map(|sender| tokio::spawn(send(Arc::clone(&driver), sender, homes.len(), storm)));
    let sending: Vec<_> = sending.collect();
    let struck = strike(seed, &driver, &homes, to_store.as_ref(), &to_upstream, storm).await;
    for sender in sending {
        sender.await.unwrap();
    }

    *at_upstream.healed.lock().unwrap() = true;
    let calm = Instant::now();
    let mut unsettled = Vec::new();
    for id in 0..EVENTS {
        unsettled.extend(driver.settle(id, Duration::from_secs(15)).await.err());
    }
    let recovery = calm.elapsed();
    let run = collect(&driver, &at_upstream, &homes);
    let (figures, violations) = check(&run);
    let told = line(&[
        ("store", json!(store.name)),
        ("seed", json!(seed)),
        ("events", json!(figures.events)),
        ("deliveries", json!(figures.deliveries)),
        ("forwards", json!(figures.forwards)),
        ("kills", json!(struck.kills)),
        ("stops", json!(struck.stops)),
        ("network", json!(struck.network)),
        ("upstream", json!(*at_upstream.faults.lock().unwrap())),
        ("lost", json!(figures.lost)),
        ("reported", json!(figures.reported_extras)),
        ("unreported", json!(figures.unreported_extras)),
        ("recovery_ms", json!(recovery.as_millis())),
    ]);
    if let Some(path) = variable("ONCEWARD_FIGURES") {
        writeln!(File::options().create(true).append(true).open(path).unwrap(), "{told}").unwrap();
    }
    if !violations.is_empty() || !unsettled.is_empty() {
        let kept = dir.keep();
        panic!("seed {seed} on {}: {violations:#?} {unsettled:?}\n{told}\nlogs: {}", store.name, kept.display());
    }
    assert!(figures.forwards >= EVENTS as usize && struck.kills + struck.stops > 0, "nothing happened: {told}");
    // Every lease that a fault left behind is over after one; the events are redelivered one after the other.
    assert!(recovery < 2 * LEASE + Duration::from_secs(1), "{recovery:?} to recover: {told}");
}

/// One sender: random events, one after the other, now and then another event under a known key.
async fn send(driver: Arc<Driver>, sender: u64, gateways: usize, until: Instant) {
    let mut random = Random(driver.seed.wrapping_mul(31).wrapping_add(sender));
    while Instant::now() < until {
        let event = Event { id: random.below(EVENTS), variant: u32::from(random.percent(8)) };
        let gateway = usize::try_from(random.below(gateways as u64)).unwrap();
        driver.deliver(gateway, event).await;
        sleep(Duration::from_millis(random.below(30))).await;
    }
}

/// Faults, one after the other, until the time is over; everything runs and passes again when it returns.
async fn strike(
    seed: u64,
    driver: &Driver,
    homes: &[Home],
    to_store: Option<&Proxy>,
    to_upstream: &Proxy,
    until: Instant,
) -> Struck {
    let mut random = Random(!seed);
    let mut struck = Struck::default();
    while Instant::now() < until {
        sleep(Duration::from_millis(200 + random.below(500))).await;
        let victim = usize::try_from(random.below(homes.len() as u64)).unwrap();
        let pause = Duration::from_millis(100 + random.below(700));
        let proxy = if random.percent(60) { to_store.unwrap_or(to_upstream) } else { to_upstream };
        match random.below(8) {
            0 | 1 => {
                struck.kills += 1;
                kill(driver, homes, victim, pause).await;
            }
            2 => {
                struck.stops += 1;
                signal(driver, victim, Signal::STOP);
                sleep(2 * LEASE).await;
                signal(driver, victim, Signal::CONT);
            }
            kind => {
                struck.network += 1;
                match kind {
                    3 => proxy.cut(),
                    4 => proxy.set(Mode::Delay(pause / 2)),
                    5 => proxy.set(Mode::Refuse),
                    6 => proxy.set(Mode::BlackHole),
                    _ => proxy.set(Mode::DropReplyTo(b"processing".to_vec(), Box::new(Mode::Pass))),
                }
                sleep(pause).await;
                let was = proxy.mode();
                proxy.set(Mode::Pass);
                if was != Mode::Pass {
                    proxy.cut();
                }
            }
        }
    }
    struck
}

async fn kill(driver: &Driver, homes: &[Home], victim: usize, pause: Duration) {
    let gateway = driver.gateways.lock().unwrap()[victim].take();
    drop(gateway.map(Gateway::kill));
    sleep(pause).await;
    let home = homes[victim].clone();
    let again = tokio::task::spawn_blocking(move || home.start()).await.unwrap();
    driver.gateways.lock().unwrap()[victim] = Some(again);
}

fn signal(driver: &Driver, victim: usize, signal: Signal) {
    if let Some(gateway) = &driver.gateways.lock().unwrap()[victim] {
        gateway.signal(signal);
    }
}

fn collect(driver: &Driver, at_upstream: &Recording, homes: &[Home]) -> Run {
    let said = |home: &Home| -> Vec<Audited> { audited(&home.said()) };
    Run {
        delivered: driver.delivered.lock().unwrap().clone(),
        received: at_upstream.received.lock().unwrap().clone(),
        audited: homes.iter().flat_map(said).collect(),
    }
}

impl TestStore {
    /// The store's URL by way of a relay.
    fn url_at(&self, relay: Option<SocketAddr>) -> String {
        match (self.server_address(), relay) {
            (Some(own), Some(relay)) => self.url.replace(&own.to_string(), &relay.to_string()),
            _ => self.url.clone(),
        }
    }
}
