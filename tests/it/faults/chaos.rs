//! Random faults against random deliveries, by seed; then calm, redelivery of everything, and the check over the logs.
//!
//! A seed makes the decisions repeat, not the races. `ONCEWARD_SEEDS=7` or `ONCEWARD_SEEDS=1..40` runs others than the usual ones,
//! and `ONCEWARD_FIGURES=FILE` adds a line of figures a run: `scripts/test --long` does both, for `docs/promises.md`.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::census::Census;
use super::checker::{Figures, check};
use super::driver::{Driver, Event, Recording, TENANTS, line, recording};
use super::log::{Kind, Lines, Run, audited};
use super::stores::{self, TestStore};
use super::strike::{Ground, Struck};
use crate::support::gateway::Home;
use crate::support::proxy::Proxy;
use crate::support::random::Random;

pub const LEASE: Duration = Duration::from_millis(800);
const EVENTS: u64 = 30;
const SENDERS: u64 = 6;

/// Events that warm the gateways up, before anything is measured or fails.
const WARMING: std::ops::Range<u64> = 1000..1040;

/// How long faults strike.
const STORM: Duration = Duration::from_secs(10);

/// A store that the faults and the run share.
pub type SharedStore = Arc<Mutex<TestStore>>;

#[tokio::test]
async fn on_sqlite() {
    for seed in seeds() {
        run(seed, stores::sqlite()).await;
    }
}

#[tokio::test]
async fn on_redis() {
    for seed in seeds() {
        run(seed, stores::lasting_redis()).await;
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
        run(seed, stores::cluster_with_replicas()).await;
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

async fn run(seed: u64, store: TestStore) {
    let (name, started) = (format!("{}-{seed}", store.name), Instant::now());
    let dir = TempDir::new().unwrap();
    let at_upstream = recording(seed, &dir.path().join("upstream.log"), &name, started).await;
    let to_upstream = Proxy::before(at_upstream.upstream.address).await;
    let to_store = match store.server_address() {
        Some(address) => Some(Proxy::before(address).await),
        None => None,
    };
    let text = config(&store.url_at(to_store.as_ref().map(|proxy| proxy.address)), to_upstream.address);
    let homes: Vec<_> = (0..if store.shared { 2 } else { 1 }).map(|_| Home::new(&text)).collect();
    let census = Arc::new(Census::new(seed, &homes));
    let mut gateways = Vec::new();
    for gateway in 0..homes.len() {
        // The relay to the store runs on this thread, and a start asks the store.
        let census = Arc::clone(&census);
        gateways.push(tokio::task::spawn_blocking(move || census.start(gateway)).await.unwrap());
    }
    let driver = Arc::new(Driver::new(seed, gateways, Lines::create(&dir.path().join("driver.log"), &name, started)));
    warm_up(&driver, &at_upstream, homes.len()).await;
    census.remember(&driver).await;

    let storm = Instant::now() + STORM;
    let sending = (0..SENDERS).map(|sender| tokio::spawn(send(Arc::clone(&driver), sender, homes.len(), storm)));
    let sending: Vec<_> = sending.collect();
    let (store_name, faults) = (store.name, store.faults(seed));
    let store = Arc::new(Mutex::new(store));
    let ground = Ground {
        driver: &driver,
        census: &census,
        gateways: homes.len(),
        store: &store,
        faults,
        to_store: to_store.as_ref(),
        to_upstream: &to_upstream,
        received: &at_upstream.received,
    };
    let struck = ground.strike(seed, storm).await;
    for sender in sending {
        sender.await.unwrap();
    }

    *at_upstream.healed.lock().unwrap() = true;
    let calm = Instant::now();
    let mut unsettled = Vec::new();
    let usual = (0..TENANTS.len()).flat_map(|tenant| (0..EVENTS).map(move |id| Event { tenant, id, variant: 0 }));
    for event in usual.chain(struck.events.iter().copied()) {
        unsettled.extend(driver.settle(event, Duration::from_secs(15)).await.err());
    }
    let recovery = calm.elapsed();
    let run = collect(&driver, &at_upstream, &homes, &census, &struck).await;
    let (figures, violations) = check(&run);
    let told = told(seed, store_name, &figures, &struck, *at_upstream.faults.lock().unwrap(), recovery);
    if let Some(path) = variable("ONCEWARD_FIGURES") {
        writeln!(File::options().create(true).append(true).open(path).unwrap(), "{told}").unwrap();
    }
    if !violations.is_empty() || !unsettled.is_empty() {
        let kept = dir.keep();
        panic!("seed {seed} on {store_name}: {violations:#?} {unsettled:?}\n{told}\nlogs: {}", kept.display());
    }
    assert!(figures.forwards >= figures.events && struck.kills + struck.stops + struck.stalls > 0, "{told}");
    // Every lease that a fault left behind is over after one; the events are redelivered one after the other.
    assert!(recovery < 2 * LEASE + Duration::from_secs(1), "{recovery:?} to recover: {told}");
}

/// Two tenants with the same route; connections to the upstream that idle are soon gone, so that what is left open is a leak. A
/// store's clock that steps by hours ends no record.
fn config(store: &str, upstream: SocketAddr) -> String {
    let route = |tenant: &str| {
        format!(
            r#"
[[routes]]
tenant = "{tenant}"
name = "pay"
path = "/pay/{tenant}"
plugin = "json"
plugin_config = {{ key = ["/id"], material = ["/amount"] }}
upstream = "u"
[routes.idempotency]
lease = "{}ms"
in_flight = {{ wait = "200ms" }}
failed_window = "30d"
"#,
            LEASE.as_millis()
        )
    };
    format!(
        r#"
[server]
listen = ["127.0.0.1:0"]
state_dir = "{{dir}}/state"
[admin]
listen = "127.0.0.1:0"
[store]
digest_keys = [{{ value = "the same key for ever" }}]
url = "{store}"
[upstreams.u]
url = "http://{upstream}"
timeout = "2s"
idle_timeout = "500ms"
{}"#,
        TENANTS.map(route).concat()
    )
}

/// Every gateway has served a burst, and all that it opened for that has gone idle.
async fn warm_up(driver: &Arc<Driver>, at_upstream: &Recording, gateways: usize) {
    *at_upstream.healed.lock().unwrap() = true;
    let warming = (0..gateways).flat_map(|gateway| WARMING.map(move |id| (gateway, id)));
    let warming = warming.map(|(gateway, id)| {
        let driver = Arc::clone(driver);
        let event = Event { tenant: gateway, id, variant: 0 };
        tokio::spawn(async move {
            // Nothing fails yet, but a machine under load may be slow to connect.
            while !matches!(driver.deliver(gateway, event).await, Some((200, _))) {
                sleep(Duration::from_millis(50)).await;
            }
        })
    });
    for delivery in warming.collect::<Vec<_>>() {
        timeout(Duration::from_secs(20), delivery).await.expect("a gateway that serves").unwrap();
    }
    // Idle connections end by a clock, not by an event that could be awaited.
    sleep(Duration::from_millis(700)).await;
    *at_upstream.healed.lock().unwrap() = false;
}

/// One sender: random events, one after the other, now and then another event under a known key.
async fn send(driver: Arc<Driver>, sender: u64, gateways: usize, until: Instant) {
    let mut random = Random(driver.seed.wrapping_mul(31).wrapping_add(sender));
    while Instant::now() < until {
        let tenant = usize::try_from(random.below(TENANTS.len() as u64)).unwrap();
        let event = Event { tenant, id: random.below(EVENTS), variant: u32::from(random.percent(8)) };
        let gateway = usize::try_from(random.below(gateways as u64)).unwrap();
        driver.deliver(gateway, event).await;
        sleep(Duration::from_millis(random.below(30))).await;
    }
}

/// The logs, once everything that is to be said was said.
async fn collect(driver: &Driver, at_upstream: &Recording, homes: &[Home], census: &Census, struck: &Struck) -> Run {
    let audits = || -> Vec<_> { homes.iter().flat_map(|home| audited(&home.said())).collect() };
    let patience = Instant::now() + Duration::from_secs(8);
    while struck.emptied > 0
        && Instant::now() < patience
        && !audits().iter().any(|audited| audited.kind == Kind::WindowReset)
    {
        sleep(Duration::from_millis(100)).await;
    }
    let processes = census.take(driver).await;
    Run {
        delivered: driver.delivered.lock().unwrap().clone(),
        received: at_upstream.received.lock().unwrap().clone(),
        audited: audits(),
        processes,
        losses: struck.losses.clone(),
    }
}

fn told(seed: u64, store: &str, figures: &Figures, struck: &Struck, upstream: u64, recovery: Duration) -> String {
    line(&[
        ("store", json!(store)),
        ("seed", json!(seed)),
        ("events", json!(figures.events)),
        ("deliveries", json!(figures.deliveries)),
        ("forwards", json!(figures.forwards)),
        ("kills", json!(struck.kills)),
        ("stops", json!(struck.stops + struck.stalls)),
        ("network", json!(struck.network)),
        ("restarts", json!(struck.restarts)),
        ("emptied", json!(struck.emptied)),
        ("failovers", json!(struck.failovers)),
        ("clock_steps", json!(struck.clock_steps)),
        ("upstream", json!(upstream)),
        ("lost", json!(figures.lost)),
        ("reported", json!(figures.reported_extras)),
        ("unreported", json!(figures.unreported_extras)),
        ("amplification", json!(figures.amplification)),
        ("grown_kib", json!(figures.grown_kib)),
        ("recovery_ms", json!(recovery.as_millis())),
    ])
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
