//! The clock that guests are interrupted by: one thread that raises the engine's epoch each millisecond while guests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wasmtime::EngineWeak;

/// How often a running guest gives way to others, and how exactly its time is bounded.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Ticks without a call after which the thread sleeps until the next one: an idle gateway wakes nobody.
const IDLE_TICKS: u32 = 200;

/// The thread, which ends and is joined when this is dropped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Calls ever begun.
    calls: AtomicU64,
    /// Calls now running.
    running: AtomicU64,
    parked: AtomicBool,
    stopped: AtomicBool,
}

impl Ticker {
    /// Starts the thread. It holds the engine weakly, since one that keeps its engine alive never ends.
    pub(super) fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("plugin-ticker".into()).spawn(move || tick(&engine, &theirs))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A call begins: ticks go on while it runs, and for a while after. Cheap unless the thread sleeps.
    pub(super) fn begin(&self) -> Running {
        // The order matters on both sides: count first, then look for a sleeper; announce sleep first, then look at the counts.
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            self.unpark();
        }
        Running(Arc::clone(&self.shared))
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// A call that needs the ticks, until it is dropped.
pub(super) struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            // It only panics if the engine does, and has nothing to report then.
            thread.join().ok();
        }
    }
}

fn tick(engine: &EngineWeak, shared: &Shared) {
    let mut seen = 0;
    let mut idle = 0;
    while !shared.stopped.load(Ordering::SeqCst) {
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        drop(engine);

        let calls = shared.calls.load(Ordering::SeqCst);
        let quiet = calls == seen && shared.running.load(Ordering::SeqCst) == 0;
        idle = if quiet { idle + 1 } else { 0 };
        seen = calls;
        if idle < IDLE_TICKS {
            thread::park_timeout(TICK);
            continue;
        }
        shared.parked.store(true, Ordering::SeqCst);
        if shared.calls.load(Ordering::SeqCst) == seen && !shared.stopped.load(Ordering::SeqCst) {
            thread::park();
        }
        shared.parked.store(false, Ordering::SeqCst);
        idle = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::{IDLE_TICKS, TICK, Ticker};

    fn engine() -> wasmtime::Engine {
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        wasmtime::Engine::new(&config).unwrap()
    }

    fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < deadline, "it never came");
            std::thread::yield_now();
        }
    }

    /// The thread keeps no engine alive, and is gone when the ticker is.
    #[test]
    fn it_ends_with_its_ticker() {
        let engine = engine();
        let weak = engine.weak();
        let ticker = Ticker::start(engine.weak()).unwrap();
        let shared = std::sync::Arc::downgrade(&ticker.shared);
        drop(ticker);
        assert!(shared.upgrade().is_none(), "the thread still holds its part");
        drop(engine);
        assert!(weak.upgrade().is_none());
    }

    /// An idle gateway wakes nobody; the next call starts the ticks again, each time.
    #[test]
    fn it_sleeps_when_idle_and_wakes_for_a_call() {
        let engine = engine();
        let ticker = Ticker::start(engine.weak()).unwrap();
        for _ in 0..3 {
            until(|| ticker.shared.parked.load(Ordering::SeqCst));
            let running = ticker.begin();
            until(|| !ticker.shared.parked.load(Ordering::SeqCst));
            // A guest that gave way to others for long is still timed.
            std::thread::park_timeout(2 * TICK * IDLE_TICKS);
            assert!(!ticker.shared.parked.load(Ordering::SeqCst));
            drop(running);
        }
    }
}
