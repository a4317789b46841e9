//! What the host holds for one call: the request, the limits, the log, and the measure of what was used.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{ResourceLimiter, StoreContextMut, UpdateDeadline};

use super::call::{Budget, Grant};
use super::certificates::Certificates;
use super::engine::{INSTANCES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};
use super::failure::printable;
use crate::event::{Delivery, Secret};

/// So much used of so much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Used.
    pub used: u64,
    /// Allowed.
    pub limit: u64,
}

/// What a call used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Units of work, the same on every machine for the same input.
    pub fuel: Used,
    /// The largest the guest's memory was, in bytes.
    pub memory_bytes: Used,
    /// What it returned, in bytes of text and 4 for each item.
    pub output_bytes: Used,
    /// What it logged, in bytes.
    pub log_bytes: Used,
    /// Time in the call, in microseconds, without the time that others ran.
    pub wall_us: Used,
    /// Log lines that did not fit.
    pub log_dropped: u64,
    /// Tags that it had made with a secret.
    pub signatures: u32,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For the plugin's author.
    Debug,
    /// Worth a line.
    Info,
    /// Somebody should look.
    Warn,
    /// Something is wrong.
    Error,
}

/// A line that a plugin logged, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub text: String,
}

/// The store's data: one a call.
pub(super) struct Ctx {
    /// What the guest may use; nothing while it is only asked about itself.
    pub(super) request: Option<(Arc<Grant>, Arc<Delivery>)>,
    pub(super) limits: Limits,
    pub(super) log: Log,
    pub(super) meter: Arc<Meter>,
    /// How often it had something signed.
    pub(super) signatures: u32,
}

impl Ctx {
    pub(super) fn new(request: Option<(Arc<Grant>, Arc<Delivery>)>, budget: &Budget) -> Self {
        Self {
            request,
            limits: Limits { memory_max: budget.memory_bytes, memory_peak: 0, exceeded: false },
            log: Log { lines: Vec::new(), used: 0, max: budget.log_bytes, dropped: 0 },
            meter: Arc::new(Meter::new()),
            signatures: 0,
        }
    }

    /// The request's body.
    pub(super) fn body(&self) -> &[u8] {
        self.request.as_ref().map_or(&[], |(_, delivery)| &delivery.body)
    }

    /// The route's certificates, and when the request arrived in Unix time.
    pub(super) fn certificates(&self) -> Option<(&Certificates, Duration)> {
        let (grant, delivery) = self.request.as_ref()?;
        grant.certificates.as_deref().map(|known| (known, Duration::from_millis(delivery.received_at_ms)))
    }

    /// The secrets behind a name, if the route grants it.
    pub(super) fn secrets(&self, name: &str) -> Option<&[Secret]> {
        self.request.as_ref()?.0.secrets.get(name).map(Vec::as_slice)
    }
}

/// Bounds what a guest may grow to. Growth beyond is a trap, not a refusal: a guest that goes on without the memory it asked for is
/// of no use, and the kind of failure stays clear.
pub(super) struct Limits {
    memory_max: usize,
    pub(super) memory_peak: usize,
    /// Whether a growth was refused.
    pub(super) exceeded: bool,
}

impl Limits {
    fn refuse(&mut self, what: &str) -> wasmtime::Error {
        self.exceeded = true;
        wasmtime::Error::msg(format!("{what} would grow beyond its limit"))
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.memory_max || maximum.is_some_and(|most| desired > most) {
            return Err(self.refuse("the memory"));
        }
        self.memory_peak = self.memory_peak.max(desired);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(self.refuse("the memory"))
    }

    fn table_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > TABLE_ELEMENTS_MAX || maximum.is_some_and(|most| desired > most) {
            return Err(self.refuse("a table"));
        }
        Ok(true)
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(self.refuse("a table"))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        1
    }
}

/// What a guest said, up to a limit.
pub(super) struct Log {
    pub(super) lines: Vec<LogLine>,
    pub(super) used: usize,
    max: usize,
    pub(super) dropped: u64,
}

/// What a line counts beside its text, so that empty lines are not free.
const LINE_OVERHEAD: usize = 16;

impl Log {
    /// How long a line can be to be kept, in bytes.
    pub(super) fn room(&self) -> usize {
        self.max.saturating_sub(self.used).saturating_sub(LINE_OVERHEAD)
    }

    /// Keeps a line, or counts it as dropped when it does not fit whole.
    pub(super) fn write(&mut self, level: Level, text: &str) {
        if text.len() > self.room() || self.max.saturating_sub(self.used) < LINE_OVERHEAD {
            self.dropped += 1;
            return;
        }
        // An escaped line is longer than what the guest wrote; it is the longer one that takes memory here and room in the log.
        let text = printable(text, self.room());
        self.used = self.max.min(self.used + text.len() + LINE_OVERHEAD);
        self.lines.push(LogLine { level, text });
    }
}

/// The processor time of this thread.
pub(super) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// Measures the time that a call itself takes: on the processor, so that neither the calls it gave way to nor a busy machine ends
/// an honest guest.
pub(super) struct Meter {
    /// Nanoseconds of finished slices.
    busy: AtomicU64,
    /// When the running slice began, in nanoseconds of its thread's processor time.
    slice: AtomicU64,
}

impl Meter {
    fn new() -> Self {
        Self { busy: AtomicU64::new(0), slice: AtomicU64::new(0) }
    }

    /// A slice begins and ends on one thread, and its ticks come there too.
    fn now() -> u64 {
        u64::try_from(processor_time().as_nanos()).unwrap_or(u64::MAX)
    }

    fn running(&self) -> Duration {
        let slice = Self::now().saturating_sub(self.slice.load(Ordering::Relaxed));
        Duration::from_nanos(self.busy.load(Ordering::Relaxed).saturating_add(slice))
    }

    /// The time taken so far, as seen between slices.
    pub(super) fn used(&self) -> Duration {
        Duration::from_nanos(self.busy.load(Ordering::Relaxed))
    }

    /// What an epoch tick does to the guest: ends it when its time is over, else lets others run first, if it `yields`.
    pub(super) fn on_tick(
        wall: Duration,
        yields: bool,
    ) -> impl FnMut(StoreContextMut<'_, Ctx>) -> wasmtime::Result<UpdateDeadline> + Send + Sync + 'static {
        move |store| {
            Ok(if store.data().meter.running() >= wall {
                UpdateDeadline::Interrupt
            } else if yields {
                // Tokio's own yield lets the reactor be polled in between; Wasmtime's would only rotate the run queue.
                UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))
            } else {
                UpdateDeadline::Continue(1)
            })
        }
    }
}

/// A future whose polls are measured.
pub(super) struct Metered<F> {
    inner: Pin<Box<F>>,
    meter: Arc<Meter>,
}

impl<F> Metered<F> {
    pub(super) fn new(meter: Arc<Meter>, inner: F) -> Self {
        Self { inner: Box::pin(inner), meter }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let start = Meter::now();
        self.meter.slice.store(start, Ordering::Relaxed);
        let polled = self.inner.as_mut().poll(context);
        let spent = Meter::now().saturating_sub(start);
        self.meter.busy.fetch_add(spent, Ordering::Relaxed);
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Log};

    /// A log flood costs at most the log's limit, and is counted.
    #[test]
    fn a_log_keeps_what_fits() {
        let mut log = Log { lines: Vec::new(), used: 0, max: 100, dropped: 0 };
        for _ in 0..10 {
            log.write(Level::Info, "");
        }
        log.write(Level::Info, &"x".repeat(1 << 20));
        assert_eq!((log.lines.len(), log.dropped, log.used), (6, 5, 96));
    }

    #[test]
    fn escapes_count_as_what_they_become() {
        let mut log = Log { lines: Vec::new(), used: 0, max: 100, dropped: 0 };
        log.write(Level::Warn, &"\u{1b}".repeat(50));
        assert!(log.lines[0].text.len() <= 90, "{:?}", log.lines);
        log.write(Level::Warn, "x");
        assert_eq!(log.dropped, 1);
    }
}
