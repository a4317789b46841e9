//! The gateway processes of a run: from where in the log each speaks, what it counted and what it used.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::across::is_back;
use super::driver::{Driver, canaries};
use super::log::{Process, Resources, counted, counters, logged};
use crate::support::client::{exchange, request};
use crate::support::gateway::{Gateway, Home};

/// How long a process may take to fall quiet: what it says of orphans in the store is as old as its last search, up to 15 s.
const QUIET_WITHIN: Duration = Duration::from_secs(20);

/// All processes of a run, in the order of their starts.
pub struct Census {
    seed: u64,
    homes: Vec<Home>,
    seen: Mutex<Vec<Seen>>,
    warm: Mutex<Vec<Resources>>,
}

/// One process.
struct Seen {
    gateway: usize,
    /// Where its lines begin in the log of its home.
    from: usize,
    /// Its metrics before it was killed; none while it runs.
    killed: Option<String>,
}

impl Census {
    pub fn new(seed: u64, homes: &[Home]) -> Self {
        Self { seed, homes: homes.to_vec(), seen: Mutex::default(), warm: Mutex::default() }
    }

    /// Starts a gateway's next process.
    pub fn start(&self, gateway: usize) -> Gateway {
        let from = self.said(gateway).len();
        self.seen.lock().unwrap().push(Seen { gateway, from, killed: None });
        self.homes[gateway].start()
    }

    /// What is not there yet has said nothing.
    fn said(&self, gateway: usize) -> String {
        if self.homes[gateway].path().join("stderr.log").exists() { self.homes[gateway].said() } else { String::new() }
    }

    /// kill -9, after a last look at its counters.
    pub async fn kill(&self, driver: &Driver, gateway: usize) {
        let admin = driver.gateways.lock().unwrap()[gateway].as_ref().map(|gateway| gateway.admin);
        let told = match admin {
            Some(admin) => page(admin, "/metrics").await.map(|(_, text)| text),
            None => None,
        };
        let process = driver.gateways.lock().unwrap()[gateway].take();
        drop(process.map(Gateway::kill));
        if let Some(seen) = self.seen.lock().unwrap().iter_mut().rfind(|seen| seen.gateway == gateway) {
            seen.killed = Some(told.unwrap_or_default());
        }
    }

    /// Remembers what the processes use that run now: the baseline of those that run at the end.
    pub async fn remember(&self, driver: &Driver) {
        for gateway in 0..self.homes.len() {
            let (used, _) = self.ask(driver, gateway).await;
            self.warm.lock().unwrap().push(used);
        }
    }

    /// What a running process uses, and its metrics.
    async fn ask(&self, driver: &Driver, gateway: usize) -> (Resources, String) {
        let (admin, (rss_kib, fds, threads)) = {
            let gateways = driver.gateways.lock().unwrap();
            let gateway = gateways[gateway].as_ref().expect("it runs");
            (gateway.admin, gateway.uses())
        };
        let ready = page(admin, "/readyz").await.is_some_and(|(status, _)| status == 200);
        let metrics = page(admin, "/metrics").await.map(|(_, text)| text).unwrap_or_default();
        let processing = metrics.lines().filter(|line| line.starts_with("onceward_processing{"));
        let processing = processing.filter(|line| !line.ends_with(" 0")).count();
        (Resources { rss_kib, fds, threads, processing: u64::try_from(processing).unwrap(), ready }, metrics)
    }

    /// All of them, once those that run are quiet.
    pub async fn take(&self, driver: &Driver) -> Vec<Process> {
        let count = self.seen.lock().unwrap().len();
        let mut all = Vec::new();
        for at in 0..count {
            all.push(self.process(driver, at).await);
        }
        all
    }

    async fn process(&self, driver: &Driver, at: usize) -> Process {
        let end = Instant::now() + QUIET_WITHIN;
        loop {
            let (gateway, killed, from, until) = {
                let seen = self.seen.lock().unwrap();
                let (this, later) = (&seen[at], &seen[at + 1..]);
                let next = later.iter().find(|next| next.gateway == this.gateway).map(|next| next.from);
                (this.gateway, this.killed.clone(), this.from, next)
            };
            let (used, metrics) = match &killed {
                Some(metrics) => (None, metrics.clone()),
                None => {
                    let (after, metrics) = self.ask(driver, gateway).await;
                    (Some((self.warm.lock().unwrap()[gateway], after)), metrics)
                }
            };
            let log = self.said(gateway);
            let log = &log[from..until.unwrap_or(log.len())];
            let process = Process {
                killed: killed.is_some(),
                logged: logged(log),
                lines: counted(log),
                counters: counters(&metrics),
                canaries: [canaries(self.seed, log.as_bytes()), canaries(self.seed, metrics.as_bytes())].concat(),
                used,
            };
            let is_quiet =
                process.lines == process.counters && used.is_none_or(|(before, after)| is_back(before, after));
            if is_quiet || killed.is_some() || Instant::now() > end {
                return process;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A page of the admin listener, if it comes soon.
async fn page(admin: std::net::SocketAddr, path: &str) -> Option<(u16, String)> {
    let bytes = request(admin, "GET", path, &[], &[]);
    let answer = timeout(Duration::from_secs(2), exchange(admin, &bytes)).await.ok()?.ok()?;
    Some((answer.status, String::from_utf8(answer.body).ok()?))
}
