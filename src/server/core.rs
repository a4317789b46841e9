//! One data-plane thread: a current-thread runtime, its handler, its connections, and their end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::server::conn::http1;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accept::{Accepted, Lane};
use super::connection::{Context, serve};
use super::guard::Limits;
use super::{Core, Handler, RefuseFn, Settings};
use crate::config::model::Drain;

/// The most that hyper buffers in one direction, in bytes, unless a head may be larger.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// A thread that was started.
pub(super) struct Started {
    /// Takes connections.
    pub lane: Lane,
    /// Resolves when its handler is there; fails when the thread ended instead.
    pub ready: oneshot::Receiver<()>,
    /// Resolves when it has stopped, with the number of requests that were cut off.
    pub done: oneshot::Receiver<usize>,
}

/// Starts one thread. It stops when its lane's sender is gone, within the drain that `stopping` then holds.
///
/// # Errors
/// When a runtime or a thread cannot be had.
pub(super) fn start<M>(
    index: usize,
    settings: &Settings,
    make_handler: Arc<M>,
    refuse: RefuseFn,
    stopping: watch::Receiver<Option<Drain>>,
) -> io::Result<Started>
where
    M: Fn(Core) -> BoxFuture<'static, Handler> + Send + Sync + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, receiver) = mpsc::unbounded_channel();
    let (ready_sender, ready) = oneshot::channel();
    let (done_sender, done) = oneshot::channel();
    let settings = settings.clone();
    thread::Builder::new().name(format!("core-{index}")).spawn(move || {
        let cut = runtime.block_on(async {
            let tasks = TaskTracker::new();
            let handler = make_handler(Core { index, tasks: tasks.clone() }).await;
            let context = Arc::new(context(&settings, handler, refuse, tasks));
            // Whoever started the server may have gone away; then the lane is closed too.
            let _ = ready_sender.send(());
            run(context, receiver, stopping).await
        });
        // Whatever is left is cut off now; a blocking call of a plugin or a driver is not waited for.
        runtime.shutdown_background();
        let _ = done_sender.send(cut);
    })?;
    Ok(Started { lane: Lane { sender, load: Arc::default() }, ready, done })
}

fn context(settings: &Settings, handler: Handler, refuse: RefuseFn, tasks: TaskTracker) -> Context {
    let mut http = http1::Builder::new();
    http.half_close(true)
        .header_read_timeout(None)
        .max_buf_size(BUFFER_BYTES_MAX.max(settings.max_headers.saturating_add(8 * 1024)));
    Context {
        http,
        handler,
        refuse,
        limits: Limits {
            head_bytes_max: settings.max_headers,
            escapes: settings.escapes,
            header_timeout: settings.timeouts.header,
            idle_timeout: settings.timeouts.idle,
        },
        body_time_max: settings.timeouts.body,
        draining: CancellationToken::new(),
        tasks,
        in_flight: Arc::new(AtomicUsize::new(0)),
    }
}

/// Serves until no more connections come, then waits for those there are. Returns how many requests were cut off.
async fn run(
    context: Arc<Context>,
    mut connections: mpsc::UnboundedReceiver<Accepted>,
    stopping: watch::Receiver<Option<Drain>>,
) -> usize {
    let tracker = TaskTracker::new();
    while let Some(accepted) = connections.recv().await {
        tracker.spawn(serve(Arc::clone(&context), accepted));
    }
    context.draining.cancel();
    tracker.close();
    context.tasks.close();
    let deadline = stopping.borrow().map_or(Duration::ZERO, |drain| drain.deadline);
    // A tracker may grow while it is waited for, but not after the connections are gone.
    let all = async {
        tracker.wait().await;
        context.tasks.wait().await;
    };
    if timeout(deadline, all).await.is_ok() {
        return 0;
    }
    context.in_flight.load(Ordering::Relaxed)
}
