//! Raw requests that a route keeps for a while (`capture`), so that a new version of its plugin can be tried on them: verified ones
//! only, encrypted, capped in number, bytes and age, in `server.state_dir` of this process's machine.
//!
//! Invariants: a delivery never waits for its capture; what does not fit the queue is left out and counted. Nothing is kept of a
//! route that does not say so, also of what an earlier configuration kept.

mod files;
mod replay;

pub use replay::{Pair, Replayed};

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use metrics::counter;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::model::Route;
use crate::event::Delivery;
use crate::store::SealingKeys;

use super::admission::{Admitted, Sender as From, wall_clock_ms};
use super::keep::write_down;
use super::route::Captures as Params;

use files::{Place, Ring};

/// Requests that wait to be written, of the whole process.
const WAITING_MAX: usize = 128;

/// How often what is too old is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What the routes of a process keep. Cheap to clone.
#[derive(Clone)]
pub struct Captures(Arc<Inner>);

struct Inner {
    root: PathBuf,
    keys: SealingKeys,
    jobs: Option<Sender<Job>>,
    waiting: AtomicUsize,
    /// One at a time, so that no number of them takes the machine.
    replaying: tokio::sync::Mutex<()>,
}

enum Job {
    Keep(Box<Request>),
    Erase { tenant: String, route: String, done: oneshot::Sender<io::Result<usize>> },
}

/// A request to be kept.
struct Request {
    route: Arc<Route>,
    delivery: Arc<Delivery>,
    params: Params,
    sender: From,
    event: String,
}

impl Captures {
    /// Below this directory, for these routes. What is there of others, which kept requests once, is deleted now.
    ///
    /// # Errors
    /// When the directory cannot be read or cleared, or the system gives no thread.
    pub fn open(state_dir: &Path, keys: SealingKeys, routes: &[Arc<Route>]) -> io::Result<Self> {
        let root = state_dir.join("captures");
        let mut rings = Vec::new();
        for route in routes {
            if let Some(limits) = route.capture {
                rings.push(Ring::open(Place::new(&root, &route.tenant, &route.name), limits)?);
            }
        }
        forget_others(&root, &rings)?;
        let mut inner =
            Inner { root, keys, jobs: None, waiting: AtomicUsize::new(0), replaying: tokio::sync::Mutex::new(()) };
        if rings.is_empty() {
            return Ok(Self(Arc::new(inner)));
        }
        let (jobs, work) = channel();
        inner.jobs = Some(jobs);
        let captures = Arc::new(inner);
        // Weak, so that the thread ends with the last clone.
        let shared = Arc::downgrade(&captures);
        let keys = captures.keys.clone();
        let done = move || {
            if let Some(shared) = shared.upgrade() {
                shared.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || Keeper { rings, keys, failing: false }.run(&work, &done))?;
        Ok(Self(captures))
    }

    /// Keeps a request of a route that wants that. Returns at once.
    pub fn offer(&self, admitted: &Admitted, event: &str) {
        let route = &admitted.route.config;
        let (Some(_), Some(jobs)) = (route.capture, &self.0.jobs) else { return };
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
            return count(route, "dropped");
        }
        let request = Request {
            route: Arc::clone(route),
            delivery: Arc::clone(&admitted.delivery),
            params: admitted.captures.clone(),
            sender: admitted.sender.clone(),
            event: event.to_owned(),
        };
        // The thread lives as long as the sender.
        let _ = jobs.send(Job::Keep(Box::new(request)));
    }

    /// Deletes what a route keeps on this machine; how many requests that were.
    ///
    /// # Errors
    /// When the files cannot be deleted.
    pub async fn erase(&self, tenant: &str, route: &str) -> io::Result<usize> {
        // Behind what waits to be written, so that nothing comes after it.
        let Some(jobs) = &self.0.jobs else { return Ok(0) };
        let (done, told) = oneshot::channel();
        let gone = || io::Error::other("the capture's thread has ended");
        jobs.send(Job::Erase { tenant: tenant.to_owned(), route: route.to_owned(), done }).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

/// Owns the files.
struct Keeper {
    rings: Vec<Ring>,
    keys: SealingKeys,
    /// Whether the last request could not be written: said once, not with each.
    failing: bool,
}

impl Keeper {
    fn run(mut self, work: &Receiver<Job>, done: &impl Fn()) {
        // At once, since what expired while no gateway ran is still there.
        let mut next_sweep = Instant::now();
        loop {
            let now = Instant::now();
            if now >= next_sweep {
                self.sweep();
                next_sweep = now + SWEEP_EVERY;
            }
            match work.recv_timeout(next_sweep.saturating_duration_since(now)) {
                Ok(Job::Keep(request)) => {
                    self.keep(&request);
                    done();
                }
                Ok(Job::Erase { tenant, route, done }) => {
                    let erased = self.ring(&tenant, &route).map_or(Ok(0), Ring::erase);
                    // Whoever asked may be gone.
                    let _ = done.send(erased);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn keep(&mut self, request: &Request) {
        let Request { route, delivery, params, sender, event } = request;
        let octets = write_down(delivery, params, sender, 0);
        let keys = self.keys.clone();
        let Some(ring) = self.ring(&route.tenant, &route.name) else { return };
        match ring.keep(&keys, delivery.received_at_ms, event, octets.into()) {
            Ok(()) => {
                self.failing = false;
                count(route, "kept");
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(tenant = route.tenant, route = route.name, event, %error, "requests are not captured");
                }
                count(route, "failed");
            }
        }
    }

    fn sweep(&mut self) {
        let now_ms = wall_clock_ms();
        for ring in &mut self.rings {
            if let Err(error) = ring.expire(now_ms) {
                let Place { tenant, route, .. } = &ring.place;
                tracing::error!(tenant, route, %error, "captured requests that are too old could not be deleted");
            }
        }
    }

    fn ring(&mut self, tenant: &str, route: &str) -> Option<&mut Ring> {
        self.rings.iter_mut().find(|ring| ring.place.tenant == tenant && ring.place.route == route)
    }
}

/// Deletes what routes keep no longer.
fn forget_others(root: &Path, rings: &[Ring]) -> io::Result<()> {
    let wanted: HashSet<&Path> = rings.iter().map(|ring| ring.place.dir.as_path()).collect();
    for tenant in folders(root)? {
        for route in folders(&tenant)? {
            if !wanted.contains(route.as_path()) {
                fs::remove_dir_all(&route)?;
                tracing::info!(dir = %route.display(), "captured requests of a route that keeps none now were deleted");
            }
        }
    }
    Ok(())
}

fn folders(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        // A state directory that is none holds nothing either; who needs one says so.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

fn count(route: &Route, result: &'static str) {
    counter!("onceward_captures_total", "tenant" => route.tenant.clone(), "route" => route.name.clone(), "result" => result)
        .increment(1);
}
