//! A candidate beside the active version: it reads the same deliveries, after the answer's way has gone on, and what it makes of
//! them is only compared.
//!
//! Invariants: nothing that a candidate does or takes changes an answer or delays it, and nothing of it counts against the active
//! version. All candidates of a process run on one thread, which gets only the time that the data plane leaves.

mod comparison;
mod memory;
mod report;
mod said;
mod times;

pub use comparison::{Comparison, Reading, Side};
pub use report::{Counts, Example, Report, Summary};
pub use said::{Difference, Said};
pub use times::{Quantiles, Sizes};

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use metrics::counter;

use crate::config::model;
use crate::event::Delivery;
use crate::plugin::{Failure, FailureKind, Inspected, Inspection, Usage};

use super::admission::Admitted;
use super::deployed::Runner;

/// Deliveries that wait for their candidates, of the whole process; beyond, they are skipped.
const WAITING_MAX: usize = 64;

/// Of one candidate on one route, so that a slow one leaves room for others.
const WAITING_EACH_MAX: usize = 16;

/// The least of the scheduler's priorities.
const LEAST_PRIORITY: i32 = 19;

/// A candidate for a route.
pub struct Shadow {
    candidate: Arc<Runner>,
    comparison: Arc<Comparison>,
    shadows: Shadows,
    waiting: AtomicUsize,
}

/// The thread on which candidates run. Cheap to clone; it ends with the last clone.
#[derive(Clone)]
pub struct Shadows(SyncSender<Job>);

/// One delivery, and what the active version made of it.
struct Job {
    shadow: Arc<Shadow>,
    route: Arc<model::Route>,
    delivery: Arc<Delivery>,
    event: String,
    active: Arc<Runner>,
    told: Result<Inspection, Failure>,
    usage: Usage,
}

impl Shadows {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn start() -> io::Result<Self> {
        let (jobs, work) = sync_channel(WAITING_MAX);
        std::thread::Builder::new().name("shadow".to_owned()).spawn(move || run_all(&work))?;
        Ok(Self(jobs))
    }
}

/// Runs what comes, one at a time. Wasmtime needs nothing of Tokio but its tasks' way of giving way.
fn run_all(work: &Receiver<Job>) {
    yield_to_others();
    let runtime = match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "candidates do not run: there is no runtime for them"),
    };
    while let Ok(job) = work.recv() {
        // A call turns its own panics into failures. Whatever panics beside it costs that delivery alone.
        let _ = catch_unwind(AssertUnwindSafe(|| runtime.block_on(job.run())));
    }
}

/// This thread runs when nothing else wants to. On Linux a priority is a thread's own.
pub(super) fn yield_to_others() {
    if let Err(error) = rustix::process::setpriority_process(None, LEAST_PRIORITY) {
        tracing::warn!(%error, "candidates run with the priority of live traffic");
    }
}

impl Shadow {
    /// Beside the active version of a route; `comparison` is shared by all routes of the plugin.
    pub fn new(candidate: Arc<Runner>, comparison: Arc<Comparison>, shadows: Shadows) -> Self {
        Self { candidate, comparison, shadows, waiting: AtomicUsize::new(0) }
    }

    /// What was found so far.
    pub fn comparison(&self) -> &Arc<Comparison> {
        &self.comparison
    }

    /// Leaves a delivery to the candidate, unless it is busy.
    pub fn offer(self: &Arc<Self>, admitted: &Admitted, inspected: &Inspected, event: &str) {
        let job = Job {
            shadow: Arc::clone(self),
            route: Arc::clone(&admitted.route.config),
            delivery: Arc::clone(&admitted.delivery),
            event: event.to_owned(),
            active: Arc::clone(&admitted.code.active),
            told: inspected.result.clone(),
            usage: inspected.usage,
        };
        let taken =
            self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_EACH_MAX && self.shadows.0.try_send(job).is_ok();
        if !taken {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.comparison.skipped();
            self.count(&admitted.route.config.tenant, "skipped");
        }
    }

    fn count(&self, tenant: &str, result: &'static str) {
        let plugin = self.candidate.version.name.clone();
        counter!("onceward_plugin_shadow_total", "tenant" => tenant.to_owned(), "plugin" => plugin, "result" => result)
            .increment(1);
    }
}

impl Job {
    async fn run(self) {
        let Self { shadow, route, delivery, event, active, told, usage } = self;
        let candidate = &shadow.candidate;
        // Its log lines go nowhere: they would double the active version's.
        let inspected = candidate.plugin.inspect(&candidate.grant, &delivery).await;
        shadow.waiting.fetch_sub(1, Ordering::Relaxed);
        if is_busy(&inspected) {
            shadow.comparison.skipped();
            return shadow.count(&route.tenant, "skipped");
        }
        let active = Reading { said: Said::of(&active, &route, &delivery, &told), usage };
        let candidate = Reading::of(candidate, &route, &delivery, &inspected);
        let result = shadow.comparison.compare(&route.name, &event, &active, &candidate);
        shadow.count(&route.tenant, result);
    }
}

impl Reading {
    /// By `runner`, of a delivery of `route`.
    pub(super) fn of(runner: &Runner, route: &model::Route, delivery: &Delivery, inspected: &Inspected) -> Self {
        Self { said: Said::of(runner, route, delivery, &inspected.result), usage: inspected.usage }
    }
}

/// The host had no room: that says nothing of the plugin.
pub(super) fn is_busy(inspected: &Inspected) -> bool {
    matches!(&inspected.result, Err(failure) if failure.kind == FailureKind::HostBusy)
}

/// Whether a delivery's sender is one that the route trusts: what others send proves nothing about a plugin, and is not kept.
pub(super) fn is_evidence(inspected: &Inspected) -> bool {
    let past_the_check = matches!(
        inspected.result,
        // Past `verify`, or the route takes senders that sign nothing.
        Ok(Inspection::Events(_) | Inspection::Pass(_) | Inspection::Reject { .. })
    );
    inspected.verified || past_the_check
}
