//! Where calls run that take long: on threads of their own, so that nobody else's delivery waits behind them.
//!
//! A call begins on its delivery's core, where an honest one ends within microseconds. One that does not goes on here, and so do
//! the next calls of its tenant from their beginning, until they are short again. The system runs these threads when no core wants
//! the processor, and interrupts them at any instruction. Yielding at ticks alone would not do: a guest that fills its memory holds
//! a thread for milliseconds between two ticks, and many that loop give way to one another more often than to the others.
//!
//! Tenants take turns, one call each. A call that has begun runs to its end, so that a tenant holds no more of the host's slots and
//! memory than there are threads, and no guest that waits for its turn is half run.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::call::{Grant, Inspected};
use super::failure::{Failure, FailureKind, Stage};
use super::host::processor_time;
use super::load::Plugin;
use crate::event::Delivery;

/// What a call may use of its core's processor time: ten times what an honest one needs for an event of a few KiB.
const QUANTUM: Duration = Duration::from_millis(2);

/// How long after a long call a tenant's next ones begin here.
const SLOW_FOR: Duration = Duration::from_secs(1);

/// How much the threads stand back for the cores.
const NICENESS: i32 = 10;

/// The threads. Cheap to clone; they end with the last clone.
#[derive(Clone)]
pub struct Aside(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    began: Instant,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

/// One tenant's calls, told apart from the others'.
#[derive(Debug, Default)]
pub struct Line {
    /// Until when its calls begin aside, in nanoseconds since the threads began.
    slow_until: AtomicU64,
}

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Aside {
    /// Starts so many threads.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(threads: NonZeroUsize) -> io::Result<Self> {
        let owner = Owner { shared: Arc::default(), began: Instant::now() };
        for number in 0..threads.get() {
            let shared = Arc::clone(&owner.shared);
            let runtime = Builder::new_current_thread().build()?;
            thread::Builder::new().name(format!("plugins-{number}")).spawn(move || work(&shared, &runtime))?;
        }
        Ok(Self(Arc::new(owner)))
    }

    /// Looks at a delivery, here or aside. `slow` is told when the call turns out to be one that takes long. When the future is
    /// dropped, a call that has not begun is forgotten; one that has ends at its next tick.
    pub async fn inspect(
        &self,
        line: &Arc<Line>,
        plugin: &Plugin,
        grant: &Arc<Grant>,
        delivery: &Arc<Delivery>,
        slow: impl FnOnce(),
    ) -> Inspected {
        let call = {
            let (plugin, grant, delivery) = (plugin.clone(), Arc::clone(grant), Arc::clone(delivery));
            async move { plugin.inspect(&grant, &delivery).await }
        };
        let inspected = self.run(line, call, slow).await.unwrap_or_else(|| {
            let lost = Failure::new(FailureKind::Host, Stage::Verify, "the host lost the call");
            Inspected { result: Err(lost), verified: false, usage: super::Usage::default(), log: Vec::new() }
        });
        if Duration::from_micros(inspected.usage.wall_us.used) >= QUANTUM {
            self.slow(line);
        }
        inspected
    }

    async fn run<T: Send + 'static>(
        &self,
        line: &Arc<Line>,
        call: impl Future<Output = T> + Send + 'static,
        slow: impl FnOnce(),
    ) -> Option<T> {
        let mut call = Box::pin(call);
        let mut used = Duration::ZERO;
        while !self.is_slow(line) && used < QUANTUM {
            let begun = processor_time();
            if let Poll::Ready(done) = futures::poll!(call.as_mut()) {
                return Some(done);
            }
            used += processor_time().saturating_sub(begun);
            // It gave way at a tick, and has seen to it that this task is woken.
            if used < QUANTUM {
                once_woken().await;
            }
        }
        self.slow(line);
        slow();
        let (mut tell, told) = oneshot::channel();
        let job = Box::pin(async move {
            let done = match select(pin!(tell.closed()), call).await {
                Either::Left(_) => return,
                Either::Right((done, _)) => done,
            };
            // Nobody waits any more, at this very moment.
            let _ = tell.send(done);
        });
        self.0.shared.queue().push(line, job);
        self.0.shared.more.notify_one();
        told.await.ok()
    }

    fn is_slow(&self, line: &Line) -> bool {
        self.now() < line.slow_until.load(Ordering::Relaxed)
    }

    fn slow(&self, line: &Line) {
        let until = self.now().saturating_add(u64::try_from(SLOW_FOR.as_nanos()).unwrap_or(u64::MAX));
        line.slow_until.fetch_max(until, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.more.notify_all();
    }
}

/// Pending until the task is woken by whom it told before.
async fn once_woken() {
    let mut polled = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// One thread.
fn work(shared: &Shared, runtime: &Runtime) {
    // The system may know no such thing; then these threads only share the processor evenly.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    while let Some(job) = shared.next() {
        // A call turns its own panics into failures. Whatever panics beside it costs that call alone.
        let _ = catch_unwind(AssertUnwindSafe(|| runtime.block_on(job)));
    }
}

impl Shared {
    /// Waits for a job; none when there will be no more.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.pop() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Jobs only, each whole: after a panic elsewhere they are still right.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits: tenants in turn, each with its calls in order. A gateway admits so many deliveries of a tenant at once, and a delivery
/// waits for one call at a time, so that bounds this too.
#[derive(Default)]
struct Queue {
    lines: VecDeque<(Arc<Line>, VecDeque<Job>)>,
    closed: bool,
}

impl Queue {
    fn push(&mut self, line: &Arc<Line>, job: Job) {
        match self.lines.iter_mut().find(|(known, _)| Arc::ptr_eq(known, line)) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.lines.push_back((Arc::clone(line), [job].into())),
        }
    }

    fn pop(&mut self) -> Option<Job> {
        let (line, mut jobs) = self.lines.pop_front()?;
        let job = jobs.pop_front();
        if !jobs.is_empty() {
            self.lines.push_back((line, jobs));
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// A tenant with many calls does not keep another one's from running.
    #[test]
    fn tenants_take_turns() {
        let ran = Arc::<Mutex<Vec<&str>>>::default();
        let job = |name: &'static str| -> Job {
            let ran = Arc::clone(&ran);
            Box::pin(async move { ran.lock().unwrap().push(name) })
        };
        let (loud, quiet) = (Arc::<Line>::default(), Arc::<Line>::default());
        let mut queue = Queue::default();
        (0..3).for_each(|_| queue.push(&loud, job("loud")));
        (0..2).for_each(|_| queue.push(&quiet, job("quiet")));
        let runtime = runtime();
        while let Some(job) = queue.pop() {
            runtime.block_on(job);
        }
        assert_eq!(*ran.lock().unwrap(), ["loud", "quiet", "loud", "quiet", "loud"]);
    }

    fn spin(time: Duration) {
        let begun = processor_time();
        while processor_time() - begun < time {}
    }

    /// A short call stays; one that overruns goes on aside, and the next ones begin there.
    #[test]
    fn who_takes_long_goes_aside() {
        let aside = Aside::start(NonZeroUsize::MIN).unwrap();
        let (line, here) = (Arc::<Line>::default(), thread::current().id());
        let threads = move |slices: u32| async move {
            let mut ran = Vec::new();
            for _ in 0..slices {
                ran.push(thread::current().id() == here);
                spin(QUANTUM * 2 / 3);
                tokio::task::yield_now().await;
            }
            ran
        };
        runtime().block_on(async {
            assert_eq!(aside.run(&line, threads(1), || panic!("slow")).await, Some(vec![true]));
            let mut told = false;
            assert_eq!(aside.run(&line, threads(4), || told = true).await, Some(vec![true, true, false, false]));
            assert!(told);
            assert_eq!(aside.run(&line, threads(1), || ()).await, Some(vec![false]));
            line.slow_until.store(0, Ordering::Relaxed);
            assert_eq!(aside.run(&line, threads(1), || panic!("slow")).await, Some(vec![true]));
        });
    }

    /// A call that nobody waits for is not begun, and a panic costs no thread.
    #[test]
    fn what_is_lost_is_lost_alone() {
        let aside = Aside::start(NonZeroUsize::MIN).unwrap();
        let line = Arc::<Line>::default();
        runtime().block_on(async {
            aside.slow(&line);
            assert_eq!(aside.run(&line, async { panic!("as it happens") }, || ()).await, None::<()>);
            let begun = Arc::new(AtomicU64::new(0));
            let (open, opened) = std::sync::mpsc::channel::<()>();
            let blocking = aside.run(&line, async move { opened.recv().is_ok() }, || ());
            let forgotten = {
                let begun = Arc::clone(&begun);
                aside.run(&line, async move { begun.fetch_add(1, Ordering::Relaxed) }, || ())
            };
            let (mut blocking, mut forgotten) = (Box::pin(blocking), Box::pin(forgotten));
            assert!(futures::poll!(blocking.as_mut()).is_pending() && futures::poll!(forgotten.as_mut()).is_pending());
            drop(forgotten);
            open.send(()).unwrap();
            assert_eq!(blocking.await, Some(true));
            assert_eq!(aside.run(&line, async { 7 }, || ()).await, Some(7));
            assert_eq!(begun.load(Ordering::Relaxed), 0);
        });
    }
}
