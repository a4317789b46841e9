//! The clock that guests are interrupted by: one thread that raises the engine's epoch each millisecond while guests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use wasmtime::EngineWeak;

/// How often a running guest gives way to others, and how exactly its time is bounded.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Ticks without a new call after which the thread sleeps until the next one: an idle gateway wakes nobody.
const IDLE_TICKS: u32 = 200;

/// The thread, which ends and is joined when this is dropped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    calls: AtomicU64,
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

    /// A call begins: ticks go on for a while. Cheap unless the thread sleeps.
    pub(super) fn wake(&self) {
        // The order matters on both sides: count first, then look for a sleeper; announce sleep first, then look at the count.
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
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
        idle = if calls == seen { idle + 1 } else { 0 };
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
