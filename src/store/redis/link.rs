//! One connection to a Redis, made when it is first needed and made anew when it is no longer good.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisError};
use tokio::time::Instant;

use crate::store::{StoreError, StoreFault};

use super::target::{Commands, Target};

/// Calls that wait for the socket; more of them wait for a place, each to its own deadline.
const QUEUED_MAX: usize = 1024;

const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The way to one Redis. Calls share a connection; a caller that gives up costs the connection, never a mixed-up reply.
pub(super) struct Link {
    target: Target,
    live: Mutex<Option<Connection>>,
    /// Held while a connection is made, so that a crowd of callers makes one.
    last_attempt: tokio::sync::Mutex<Option<Instant>>,
    /// Attempts to connect since a command last succeeded. Not reset by a connection alone: a demoted master accepts those.
    attempts: AtomicU32,
}

/// A connection, and whether anyone found it unfit.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) commands: Commands,
    broken: Arc<AtomicBool>,
}

impl Link {
    /// Another link to the same Redis.
    pub(super) fn another(&self) -> Self {
        Self::to(self.target.clone())
    }

    /// To this Redis; connects nowhere yet.
    pub(super) fn to(target: Target) -> Self {
        Self {
            target,
            live: Mutex::new(None),
            last_attempt: tokio::sync::Mutex::new(None),
            attempts: AtomicU32::new(0),
        }
    }

    /// What it leads to.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// The connection, made now if there is none. The caller's deadline bounds the wait.
    ///
    /// # Errors
    /// [`StoreFault::Unreachable`], and nothing was written. Between failed attempts it comes without another attempt.
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        if let Some(connection) = self.fit() {
            return Ok(connection);
        }
        let mut last_attempt = self.last_attempt.lock().await;
        if let Some(connection) = self.fit() {
            return Ok(connection);
        }
        let unreachable = |why: &dyn std::fmt::Display| StoreError::new(StoreFault::Unreachable, why).not_applied();
        let attempts = self.attempts.load(Ordering::Relaxed);
        if last_attempt.is_some_and(|last| last.elapsed() < backoff(attempts)) {
            return Err(unreachable(&"no connection; the next attempt is due shortly"));
        }
        // Counted before the outcome: this future may be dropped at its caller's deadline.
        *last_attempt = Some(Instant::now());
        self.attempts.store(attempts.saturating_add(1), Ordering::Relaxed);
        let connection = self.connect(attempts).await.map_err(|error| unreachable(&error))?;
        *self.live() = Some(connection.clone());
        Ok(connection)
    }

    async fn connect(&self, attempt: u32) -> Result<Connection, RedisError> {
        let broken = Arc::new(AtomicBool::new(false));
        let closed = broken.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUED_MAX)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.store(true, Ordering::Relaxed);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let commands = self.target.connect(attempt, &config).await?;
        Ok(Connection { commands, broken })
    }

    /// Gives up a connection: later calls get another one. Those that wait on it still get their own replies.
    pub(super) fn retire(&self, connection: &Connection) {
        connection.broken.store(true, Ordering::Relaxed);
    }

    /// Notes that the server did what it was asked.
    pub(super) fn succeeded(&self) {
        self.attempts.store(0, Ordering::Relaxed);
    }

    fn fit(&self) -> Option<Connection> {
        let mut live = self.live();
        if live.as_ref().is_some_and(|connection| connection.broken.load(Ordering::Relaxed)) {
            *live = None;
        }
        live.clone()
    }

    /// A std mutex, held for a clone and never across an await.
    fn live(&self) -> MutexGuard<'_, Option<Connection>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long after an attempt the next one may follow: doubled each time, then shortened by up to half at random, so that gateways
/// which lost the same server do not come back in step.
fn backoff(attempts: u32) -> Duration {
    if attempts == 0 {
        return Duration::ZERO;
    }
    let full = BACKOFF_FIRST.saturating_mul(1 << attempts.min(10)).min(BACKOFF_MAX);
    let random = getrandom::u32().unwrap_or(u32::MAX);
    full / 2 + (full / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}
