//! Records in a file: one writer that commits many writes at once, and readers that never wait for it.

mod file;
mod listing;
mod reserve;
mod row;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::event::ScopeKey;
use crate::idempotency::{Draft, Expect};

use super::clock::WallClock;
use super::sql::PATIENCE;
use super::{Entry, Facts, Filter, Found, Listed, Meta, OpenError, Role, Seen, Store, StoreError, StoreFault, Swap};
use reserve::Reserve;
use writer::{Job, Reply, SwapJob, Writer};

/// Writes that wait for their commit; more wait for a place, each to its own deadline.
const QUEUED_MAX: usize = 1024;

/// Reads at a time.
const READERS: u32 = 4;

/// A handle on a database file, to be shared by all runtimes.
///
/// The file's connections live on a thread and runtime of their own, so that a core's end does not take them along. Dropping the
/// handle waits for the writes that were queued, then gives the lock back.
pub struct Sqlite {
    runtime: Handle,
    readers: SqlitePool,
    clock: Arc<WallClock>,
    timeout: Duration,
    jobs: Option<mpsc::Sender<Job>>,
    /// None once joined.
    thread: Option<JoinHandle<()>>,
}

impl Sqlite {
    /// Opens the file to serve from, making it if need be, and keeps every other process from doing so. `timeout` is the longest
    /// that one call may take.
    ///
    /// # Errors
    /// [`OpenError`]: in use by another process, written by a later version, or not to be opened.
    pub async fn open(path: &Path, timeout: Duration) -> Result<Self, OpenError> {
        Self::start(path.to_owned(), timeout, true).await
    }

    /// Opens the file to look into, beside a process that serves from it. Every write is refused.
    ///
    /// # Errors
    /// [`OpenError`], also when there is no such file.
    pub async fn look(path: &Path, timeout: Duration) -> Result<Self, OpenError> {
        Self::start(path.to_owned(), timeout, false).await
    }

    async fn start(path: PathBuf, timeout: Duration, serve: bool) -> Result<Self, OpenError> {
        let shown = file::show(&path);
        let failed = |error: &dyn std::fmt::Display| OpenError::File { path: shown.clone(), detail: error.to_string() };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        let handle = runtime.handle().clone();
        let (ready, opened) = oneshot::channel();
        let (jobs, queue) = mpsc::channel(QUEUED_MAX);
        let clock = Arc::new(WallClock::default());
        let life = Life { path, timeout, clock: clock.clone(), serve };
        let thread = std::thread::Builder::new().name("onceward-sqlite".to_owned());
        let thread = thread.spawn(move || runtime.block_on(life.live(ready, queue))).map_err(|error| failed(&error))?;
        let readers = opened.await.map_err(|_| failed(&"its thread ended early"))??;
        Ok(Self { runtime: handle, readers, clock, timeout, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Hands a job to the writer and waits for its commit, both within the deadline.
    async fn write<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, StoreError> {
        let deadline = tokio::time::Instant::now() + self.timeout;
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::new(StoreFault::Unreachable, "the store is closed");
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        match tokio::time::timeout_at(deadline, jobs.send(job(reply))).await {
            Ok(sent) => sent.map_err(|_| closed().not_applied())?,
            Err(_) => return Err(self.late("no place in the queue").not_applied()),
        }
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(|_| closed())?,
            Err(_) => Err(self.late("no commit")),
        }
    }

    /// Reads on the store's own runtime, and no longer than `within`.
    async fn read<T: Send + 'static>(
        &self,
        within: Duration,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let work = self.runtime.spawn(tokio::time::timeout(within, work));
        match work.await {
            Ok(Ok(read)) => read,
            Ok(Err(_)) => Err(StoreError::new(StoreFault::Timeout, format_args!("nothing read within {within:?}"))),
            Err(ended) => Err(StoreError::new(StoreFault::Unreachable, ended)),
        }
    }

    fn late(&self, what: &str) -> StoreError {
        StoreError::new(StoreFault::Timeout, format_args!("{what} within {:?}", self.timeout))
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let (key, draft) = (key.clone(), draft.clone());
        self.write(|reply| Job::Swap(Box::new(SwapJob { key, expect, draft, reply }))).await
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        let (readers, clock, key) = (self.readers.clone(), self.clock.clone(), key.clone());
        self.read(self.timeout, async move {
            let mut connection = readers.acquire().await.map_err(|error| fault(&error))?;
            let now = clock.now();
            let current = row::read(&mut connection, &key, now).await.map_err(|error| fault(&error))??;
            Ok(Seen { current, now })
        })
        .await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.write(Job::Ping).await
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        self.write(|reply| Job::Meta(offer, reply)).await
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        let (readers, clock, tenant, filter) =
            (self.readers.clone(), self.clock.clone(), tenant.to_owned(), filter.clone());
        self.read(PATIENCE, async move { listing::list(&readers, clock.now(), &tenant, &filter).await }).await
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        let (readers, clock, readable_key) = (self.readers.clone(), self.clock.clone(), readable_key.to_owned());
        let (tenant, scope) = (tenant.to_owned(), scope.to_owned());
        let find = async move { listing::find(&readers, clock.now(), [&tenant, &scope], &readable_key).await };
        self.read(PATIENCE, find).await
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        let readers = self.readers.clone();
        let version = self.read(self.timeout, async move {
            let version = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&readers).await;
            version.map_err(|error| fault(&error))
        });
        let version = version.await?;
        Ok(Facts { software: "sqlite", version, instance: String::new(), role: Role::Primary, eviction: None })
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // Without a sender the writer finishes what is queued and ends.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It panics nowhere that is known; if it did, there is nobody left to tell.
            drop(thread.join());
        }
    }
}

/// What the store's thread lives for.
struct Life {
    path: PathBuf,
    timeout: Duration,
    clock: Arc<WallClock>,
    serve: bool,
}

impl Life {
    /// Opens, tells so, works until nobody asks any more, closes. The lock is given back last, with the writer.
    async fn live(self, ready: oneshot::Sender<Result<SqlitePool, OpenError>>, mut queue: mpsc::Receiver<Job>) {
        let opened = if self.serve { self.open().await.map(Some) } else { self.look().await.map(|()| None) };
        let writer = match opened {
            Ok(writer) => writer,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let options = SqlitePoolOptions::new().max_connections(READERS).test_before_acquire(false);
        let readers = options.connect_lazy_with(file::reading(&self.path, self.timeout));
        drop(ready.send(Ok(readers.clone())));
        let Some(mut writer) = writer else {
            return look_only(&mut queue, &readers).await;
        };
        writer.run(&mut queue).await;
        // Before the writer: the last connection out folds the log into the file, and a reader may not.
        readers.close().await;
        writer.close().await;
    }

    async fn open(&self) -> Result<Writer, OpenError> {
        let lock = file::lock(&self.path)?;
        let mut connection = file::connect(file::writing(&self.path, self.timeout), &self.path).await?;
        file::migrate(&mut connection, &self.path).await?;
        Ok(Writer {
            path: self.path.clone(),
            timeout: self.timeout,
            clock: self.clock.clone(),
            connection: Some(connection),
            reserve: Reserve::new(file::beside(&self.path, ".reserve")),
            poisoned: false,
            _lock: lock,
        })
    }

    async fn look(&self) -> Result<(), OpenError> {
        let mut connection = file::connect(file::reading(&self.path, self.timeout), &self.path).await?;
        file::check(&mut connection, &self.path).await
    }
}

/// Answers for a file that another process may be serving from.
async fn look_only(queue: &mut mpsc::Receiver<Job>, readers: &SqlitePool) {
    while let Some(job) = queue.recv().await {
        let refused = || StoreError::new(StoreFault::Refused, "opened for reading only");
        match job {
            Job::Meta(_, reply) => {
                let kept = read_meta(readers).await.and_then(|kept| kept.ok_or_else(refused));
                drop(reply.send(kept.map(|meta| Found { meta, made: false })));
            }
            other => other.fail(refused()),
        }
    }
    readers.close().await;
}

async fn read_meta(readers: &SqlitePool) -> Result<Option<Meta>, StoreError> {
    let mut connection = readers.acquire().await.map_err(|error| fault(&error))?;
    row::meta(&mut connection).await.map_err(|error| fault(&error))
}

fn fault(error: &sqlx::Error) -> StoreError {
    let kind = match (code(error).map(|code| code & 0xff), error) {
        // SQLITE_CORRUPT, SQLITE_NOTADB, and a column of another type than the schema's.
        (Some(11 | 26), _) | (_, sqlx::Error::ColumnDecode { .. } | sqlx::Error::RowNotFound) => StoreFault::Corrupt,
        (_, sqlx::Error::PoolTimedOut) => StoreFault::Timeout,
        (_, sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed) => StoreFault::Unreachable,
        _ => StoreFault::Refused,
    };
    StoreError::new(kind, error)
}

/// SQLite's own code of an error, the extended one.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}
