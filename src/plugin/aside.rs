//! Where calls run that take long: on threads of their own, so that nobody else's delivery waits behind them.
//!
//! A call begins on its delivery's core, where an honest one ends within microseconds. One that does not goes on here, and so do
//! the next calls of its tenant from their beginning, until they are short again. The system interrupts these threads at any
//! instruction, and they are fewer than the processors, so that a core that has work finds one free. Yielding at ticks alone would
//! not do: a guest that fills its memory holds a thread for milliseconds between two ticks, and many that loop give way to one
//! another more often than to the others. The threads have the priority of all others: one that is put off while it holds the lock
//! of the process's memory puts everybody off.
//!
//! Tenants take turns, a tick each. A tenant's own calls run one after the other, so that it holds no more of the host's slots and
//! memory than there are threads, and no guest that waits for its turn is half run.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use tokio::sync::oneshot;

use super::call::{Grant, Inspected};
use super::failure::{Failure, FailureKind, Stage};
use super::host::processor_time;
use super::load::Plugin;
use crate::event::Delivery;

/// What a call may use of its core's processor time: many times what an honest one needs for an event of a few KiB.
const QUANTUM: Duration = Duration::from_millis(2);

/// How long after a long call a tenant's next ones begin here.
const SLOW_FOR: Duration = Duration::from_secs(1);

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
    /// Starts the threads beside so many cores: half as many.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(cores: NonZeroUsize) -> io::Result<Self> {
        let owner = Owner { shared: Arc::default(), began: Instant::now() };
        for number in 0..cores.get().div_ceil(2) {
            let shared = Arc::clone(&owner.shared);
            let work = move || {
                while let Some(task) = shared.next() {
                    task.run();
                }
            };
            thread::Builder::new().name(format!("plugins-{number}")).spawn(work)?;
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
            let usage = super::Usage::default();
            Inspected { result: Err(lost), verified: false, usage, teardown: Duration::ZERO, log: Vec::new() }
        });
        if self.is_slow(line) && Duration::from_micros(inspected.usage.wall_us.used) >= QUANTUM {
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
        let job: Job = Box::pin(async move {
            let done = match select(pin!(tell.closed()), call).await {
                Either::Left(_) => return,
                Either::Right((done, _)) => done,
            };
            // Nobody waits any more, at this very moment.
            let _ = tell.send(done);
        });
        let task = Task { line: Arc::clone(line), shared: Arc::clone(&self.0.shared), job: Mutex::new(Some(job)) };
        self.0.shared.queue().push(Arc::new(task), false);
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

/// A call that runs here, a tick at a time.
struct Task {
    line: Arc<Line>,
    shared: Arc<Shared>,
    /// None: it has ended.
    job: Mutex<Option<Job>>,
}

impl Task {
    fn run(self: &Arc<Self>) {
        // It may be woken, and so taken by another thread, before this poll has ended: that one waits for the lock.
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = job.as_mut() else { return };
        let waker = Waker::from(Arc::clone(self));
        // A call turns its own panics into failures. Whatever panics beside it costs that call alone.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut Context::from_waker(&waker))));
        if !matches!(polled, Ok(Poll::Pending)) {
            *job = None;
        }
    }
}

impl Wake for Task {
    /// It goes on in its tenant's next turn, before the calls that have not begun.
    fn wake(self: Arc<Self>) {
        self.shared.queue().push(Arc::clone(&self), true);
        self.shared.more.notify_one();
    }
}

impl Shared {
    /// Waits for a call; none when there will be no more.
    fn next(&self) -> Option<Arc<Task>> {
        let mut queue = self.queue();
        loop {
            if let Some(task) = queue.pop() {
                return Some(task);
            }
            if queue.closed {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Calls only, each whole: after a panic elsewhere they are still right.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waits: tenants in turn, each with its calls in order. A gateway admits so many deliveries of a tenant at once, and a delivery
/// waits for one call at a time, so that bounds this too.
#[derive(Default)]
struct Queue {
    lines: VecDeque<(Arc<Line>, VecDeque<Arc<Task>>)>,
    closed: bool,
}

impl Queue {
    /// In its tenant's next turn: before the tenant's other calls, or after them.
    fn push(&mut self, task: Arc<Task>, first: bool) {
        match self.lines.iter_mut().find(|(line, _)| Arc::ptr_eq(line, &task.line)) {
            Some((_, tasks)) if first => tasks.push_front(task),
            Some((_, tasks)) => tasks.push_back(task),
            None => self.lines.push_back((Arc::clone(&task.line), [task].into())),
        }
    }

    fn pop(&mut self) -> Option<Arc<Task>> {
        let (line, mut tasks) = self.lines.pop_front()?;
        let task = tasks.pop_front();
        if !tasks.is_empty() {
            self.lines.push_back((line, tasks));
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// A tenant with many calls does not keep another one's from running, nor does a long call; and one has at most one begun.
    #[test]
    fn tenants_take_turns() {
        let ran = Arc::<Mutex<Vec<&str>>>::default();
        let shared = Arc::<Shared>::default();
        let push = |line: &Arc<Line>, name: &'static str, slices: u32| {
            let ran = Arc::clone(&ran);
            let job: Job = Box::pin(async move {
                for _ in 0..slices {
                    ran.lock().unwrap().push(name);
                    tokio::task::yield_now().await;
                }
            });
            let task = Task { line: Arc::clone(line), shared: Arc::clone(&shared), job: Mutex::new(Some(job)) };
            shared.queue().push(Arc::new(task), false);
        };
        let (loud, quiet) = (Arc::<Line>::default(), Arc::<Line>::default());
        push(&loud, "loud 1", 3);
        push(&loud, "loud 2", 1);
        push(&quiet, "quiet 1", 1);
        push(&quiet, "quiet 2", 1);
        loop {
            let Some(task) = shared.queue().pop() else { break };
            task.run();
        }
        let expected = ["loud 1", "quiet 1", "loud 1", "quiet 2", "loud 1", "loud 2"];
        let mut told = ran.lock().unwrap().clone();
        // The turn in which a call finds that it has ended is nobody's slice.
        assert_eq!(told.len(), expected.len());
        told.sort_by_key(|name| !name.starts_with("loud"));
        assert_eq!(told, ["loud 1", "loud 1", "loud 1", "loud 2", "quiet 1", "quiet 2"], "in order within a tenant");
        assert_eq!(ran.lock().unwrap()[..2], ["loud 1", "quiet 1"]);
        assert!(ran.lock().unwrap().iter().position(|name| *name == "quiet 2") < Some(5));
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
