//! What is counted of a route and of a plugin. Made once with the route, so that counting costs no look-up by label.
//!
//! Invariant: labels come from the configuration and from words of this program, never from a request.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use crate::plugin::Inspected;

/// Words of one label that are found without a look-up by label.
const WORDS_MAX: usize = 64;

/// The counters of one route.
pub struct RouteMeters {
    /// By the decision of the log line.
    pub requests: Words,
    /// By what the engine met.
    pub claims: Words,
    /// Kept answers given again.
    pub replays: Counter,
    /// Other events under a known key.
    pub mismatches: Counter,
    /// Duplicates of a running event that were told to come again.
    pub in_flight_conflicts: Counter,
    /// Claims over an attempt whose outcome nobody knew.
    pub takeovers: Counter,
    /// A request's whole time.
    pub request_seconds: Histogram,
    upstream_seconds: Histogram,
    processing: Gauge,
    processing_oldest: Gauge,
    running: Mutex<Running>,
}

/// The claims of a route that are at work.
#[derive(Default)]
struct Running {
    /// By number, so oldest first.
    here: BTreeMap<u64, (Instant, usize)>,
    /// Found in the store, with their leases over: how many, and when the oldest one began.
    orphans: usize,
    orphaned_since: Option<Instant>,
}

impl RouteMeters {
    /// For a route; both names are empty for requests without one.
    pub fn new(tenant: &str, route: &str) -> Self {
        let labels = [("tenant", tenant.to_owned()), ("route", route.to_owned())];
        if !route.is_empty() {
            // There from the start, so that the first one is seen as a rise.
            for rare in super::audit::COUNTERS {
                counter!(rare, &labels).increment(0);
            }
        }
        let by_outcome = labels.clone();
        let by_result = labels.clone();
        Self {
            requests: Words::new(move |word| counter("onceward_requests_total", &by_outcome, "outcome", word)),
            claims: Words::new(move |word| counter("onceward_claims_total", &by_result, "result", word)),
            replays: counter!("onceward_replays_total", &labels),
            mismatches: counter!("onceward_mismatches_total", &labels),
            in_flight_conflicts: counter!("onceward_in_flight_conflicts_total", &labels),
            takeovers: counter!("onceward_takeovers_total", &labels),
            request_seconds: histogram!("onceward_request_seconds", &labels),
            upstream_seconds: histogram!("onceward_upstream_seconds", &labels),
            processing: gauge!("onceward_processing", &labels),
            processing_oldest: gauge!("onceward_processing_oldest_seconds", &labels),
            running: Mutex::default(),
        }
    }

    /// Runs an exchange with the upstream and measures it.
    pub async fn upstream<T>(&self, exchange: impl Future<Output = T>) -> T {
        let started = Instant::now();
        let ended = exchange.await;
        self.upstream_seconds.record(started.elapsed());
        ended
    }

    /// So many claims are at work until the guard is dropped.
    pub fn working(self: &Arc<Self>, claims: usize) -> Working {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.running().here.insert(number, (Instant::now(), claims));
        Working { meters: Arc::clone(self), number }
    }

    /// What the store was found to hold of claims whose leases are over, and the age of the oldest.
    pub fn orphans(&self, count: usize, oldest: Duration) {
        let mut running = self.running();
        running.orphans = count;
        running.orphaned_since = (count > 0).then(|| Instant::now().checked_sub(oldest)).flatten();
    }

    /// Brings the gauges up to now, for a reader.
    pub fn refresh(&self) {
        let running = self.running();
        let here: usize = running.here.values().map(|(_, claims)| claims).sum();
        let oldest = running.here.values().next().map(|(since, _)| *since);
        let oldest = oldest.into_iter().chain(running.orphaned_since).min();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        self.processing.set((here + running.orphans) as f64);
        self.processing_oldest.set(oldest.map_or(0.0, |since| since.elapsed().as_secs_f64()));
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // Numbers only: after a panic elsewhere they are still right.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for RouteMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RouteMeters")
    }
}

/// Claims at work.
pub struct Working {
    meters: Arc<RouteMeters>,
    number: u64,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.meters.running().here.remove(&self.number);
    }
}

/// What is counted of a plugin.
pub struct PluginMeters {
    seconds: Histogram,
    fuel: Histogram,
    failures: Words,
}

impl PluginMeters {
    /// By the name that routes use.
    pub fn new(plugin: &str) -> Self {
        let labels = [("plugin", plugin.to_owned())];
        let by_kind = labels.clone();
        Self {
            seconds: histogram!("onceward_plugin_seconds", &labels),
            fuel: histogram!("onceward_plugin_fuel", &labels),
            failures: Words::new(move |word| counter("onceward_plugin_failures_total", &by_kind, "kind", word)),
        }
    }

    /// One call.
    pub fn called(&self, inspected: &Inspected) {
        self.seconds.record(Duration::from_micros(inspected.usage.wall_us.used));
        #[expect(clippy::cast_precision_loss, reason = "a histogram's observations are floats")]
        self.fuel.record(inspected.usage.fuel.used as f64);
        if let Err(failure) = &inspected.result {
            self.failures.count(failure.kind.as_str());
        }
    }
}

/// A counter for each word of one label, made when the word first comes. Words are of this program, so they are few.
pub struct Words {
    slots: Box<[OnceLock<(&'static str, Counter)>]>,
    make: Box<dyn Fn(&'static str) -> Counter + Send + Sync>,
}

impl Words {
    /// `make` gives a word's counter.
    pub(super) fn new(make: impl Fn(&'static str) -> Counter + Send + Sync + 'static) -> Self {
        Self { slots: std::iter::repeat_with(OnceLock::new).take(WORDS_MAX).collect(), make: Box::new(make) }
    }

    /// One more.
    pub fn count(&self, word: &'static str) {
        for slot in &self.slots {
            let (known, counter) = slot.get_or_init(|| (word, (self.make)(word)));
            if *known == word {
                return counter.increment(1);
            }
        }
        (self.make)(word).increment(1);
    }
}

pub(super) fn counter(
    name: &'static str,
    labels: &[(&'static str, String)],
    label: &'static str,
    word: &'static str,
) -> Counter {
    let labels: Vec<_> = labels.iter().cloned().chain([(label, word.to_owned())]).collect();
    counter!(name, &labels)
}
