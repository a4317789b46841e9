//! Connections to one server: a few, used by one call at a time each, thrown away when anything about them is in doubt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant, timeout_at};

use crate::store::{StoreError, StoreFault};

use super::fault::{self, Verdict};

/// Connections that one gateway holds at most, whatever its cores: the server has to have room for those of all gateways.
const CONNECTIONS_MAX: usize = 16;

/// After a failed attempt to connect, the next calls fail at once for so long: callers in a crowd make one attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// One that nobody used for so long may have been cut off on the way, in silence: it is not trusted with a call.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Pool {
    options: PgConnectOptions,
    places: Arc<Semaphore>,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// The last used on top, each with the time of its last use.
    idle: Vec<(Instant, PgConnection)>,
    /// Counts the times that all connections were given up: one from before is not put back.
    generation: u64,
    /// When connecting last failed, and how.
    failed: Option<(Instant, StoreFault, String)>,
}

/// A connection for one call. Unless it is [settled](Self::settle), it is closed: whoever gives up a call in the middle leaves a
/// reply on it that nobody else may read.
pub(super) struct Place {
    pub(super) connection: PgConnection,
    generation: u64,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self { options, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), shelf: Mutex::default() }
    }

    /// A connection, made if none is idle.
    ///
    /// # Errors
    /// When none is free or made by the deadline, or the server does not let us in. Nothing was written then.
    pub(super) async fn place(self: &Arc<Self>, deadline: Instant) -> Result<Place, StoreError> {
        let late = |what: &str| StoreError::new(StoreFault::Timeout, what).not_applied();
        let Ok(permit) = timeout_at(deadline, self.places.clone().acquire_owned()).await else {
            return Err(late("all connections stayed in use"));
        };
        let permit = permit.map_err(|closed| StoreError::new(StoreFault::Unreachable, closed).not_applied())?;
        let (idle, generation) = {
            let mut shelf = self.shelf();
            (shelf.idle.pop().filter(|(used, _)| used.elapsed() < IDLE_MAX), shelf.generation)
        };
        let connection = match idle {
            Some((_, connection)) => connection,
            None => self.connect(deadline).await?,
        };
        Ok(Place { connection, generation, pool: self.clone(), _permit: permit })
    }

    async fn connect(&self, deadline: Instant) -> Result<PgConnection, StoreError> {
        if let Some((at, kind, detail)) = &self.shelf().failed
            && at.elapsed() < PAUSE
        {
            return Err(StoreError::new(*kind, detail).not_applied());
        }
        match timeout_at(deadline, self.options.connect()).await {
            Ok(Ok(connection)) => {
                self.shelf().failed = None;
                Ok(connection)
            }
            Ok(Err(error)) => {
                let (kind, detail) = (fault::of(&error).kind, format!("no connection: {error}"));
                self.shelf().failed = Some((Instant::now(), kind, detail.clone()));
                Err(StoreError::new(kind, detail).not_applied())
            }
            // Says nothing to the others: this call may have waited long for its place.
            Err(_) => Err(StoreError::new(StoreFault::Unreachable, "no connection in time").not_applied()),
        }
    }

    /// A std mutex, held for a push or a pop and never across an await.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Gives the connection back, if what came of the call leaves it usable; if not, gives up all: they lead to the same server.
    pub(super) fn settle<T>(self, result: &Result<T, sqlx::Error>) {
        let mut shelf = self.pool.shelf();
        match result.as_ref().map_err(fault::verdict) {
            Err(Verdict::Gone) => {
                shelf.generation += 1;
                shelf.idle.clear();
            }
            _ if shelf.generation == self.generation => shelf.idle.push((Instant::now(), self.connection)),
            _ => {}
        }
    }
}
