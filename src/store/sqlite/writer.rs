//! The one writer: many conditional writes, one commit.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, MissedTickBehavior};

use crate::event::ScopeKey;
use crate::idempotency::{Draft, Expect, Fence};
use crate::store::clock::WallClock;
use crate::store::{Found, Meta, Seen, StoreError, StoreFault, Swap};

use super::reserve::Reserve;
use super::{fault, file, row};

/// Writes that share one commit. More would only delay the first of them.
const BATCH_MAX: usize = 256;

/// Without traffic, expired records are cleared away at this pace; with it, alongside the writes.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_IDLE_ROWS: usize = 500;
/// Above one, so that sweeping outruns writing and the file stops growing.
const SWEEP_ROWS_PER_WRITE: usize = 2;

const SWEEP: &str = "DELETE FROM idempotency_records WHERE rowid IN \
    (SELECT rowid FROM idempotency_records WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)";

/// One caller's wish. It is answered after the commit, never before.
pub(super) enum Job {
    Swap(Box<SwapJob>),
    Meta(Meta, Reply<Found>),
    Ping(Reply<()>),
}

pub(super) struct SwapJob {
    pub(super) key: ScopeKey,
    pub(super) expect: Expect,
    pub(super) draft: Draft,
    pub(super) reply: Reply<Swap>,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What a job comes to when the commit succeeds.
enum Answer {
    Swap(Result<Swap, StoreError>),
    Meta(Found),
    Ping(Result<(), StoreError>),
}

/// What the disk has space for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Whatever comes.
    Ample,
    /// Only for ending, or renewing, what was begun. Who meets a standing record is still told.
    Reserved,
}

/// A transaction that was given up.
struct Aborted {
    cause: sqlx::Error,
    /// Whether it may stand on the disk all the same.
    in_doubt: bool,
}

impl From<sqlx::Error> for Aborted {
    fn from(cause: sqlx::Error) -> Self {
        Self { cause, in_doubt: false }
    }
}

impl Job {
    /// Its caller has given up before anything was done.
    fn abandoned(&self) -> bool {
        match self {
            Self::Swap(job) => job.reply.is_closed(),
            Self::Meta(_, reply) => reply.is_closed(),
            Self::Ping(reply) => reply.is_closed(),
        }
    }

    /// A caller that no longer listens finds its write by its owner token.
    fn answer(self, answer: Answer) {
        match (self, answer) {
            (Self::Swap(job), Answer::Swap(result)) => drop(job.reply.send(result)),
            (Self::Meta(_, reply), Answer::Meta(meta)) => drop(reply.send(Ok(meta))),
            (Self::Ping(reply), Answer::Ping(result)) => drop(reply.send(result)),
            (job, _) => job.fail(StoreError::new(StoreFault::Corrupt, "an answer of another kind")),
        }
    }

    pub(super) fn fail(self, error: StoreError) {
        match self {
            Self::Swap(job) => drop(job.reply.send(Err(error))),
            Self::Meta(_, reply) => drop(reply.send(Err(error))),
            Self::Ping(reply) => drop(reply.send(Err(error))),
        }
    }
}

/// Owns the only connection that writes.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) timeout: Duration,
    pub(super) clock: Arc<WallClock>,
    /// None after a fault: opened anew for the next batch.
    pub(super) connection: Option<SqliteConnection>,
    pub(super) reserve: Reserve,
    /// Set when the disk failed to keep what it took. Nothing can be known of the file then until it is opened by a new process.
    pub(super) poisoned: bool,
    /// Held for as long as anything here may write.
    pub(super) _lock: File,
}

impl Writer {
    /// Works until every sender is gone, and what they sent is done.
    pub(super) async fn run(&mut self, jobs: &mut mpsc::Receiver<Job>) {
        let mut idle = tokio::time::interval(SWEEP_EVERY);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            tokio::select! {
                biased;
                taken = jobs.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { break },
                _ = idle.tick() => {}
            }
            batch.retain(|job| !job.abandoned());
            self.settle(std::mem::take(&mut batch)).await;
        }
    }

    /// Closes the file.
    pub(super) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            // Folds the log into the file; should that fail, the next opening does it.
            if let Err(error) = connection.close().await {
                tracing::warn!(%error, "the store's file was not closed cleanly");
            }
        }
    }

    /// Commits what can be committed, then answers everyone.
    async fn settle(&mut self, jobs: Vec<Job>) {
        if self.poisoned {
            let why = "the disk failed to keep a write; restart to find out what it holds";
            return fail(jobs, || StoreError::new(StoreFault::Refused, why));
        }
        let room = if self.reserve.secure() { Room::Ample } else { Room::Reserved };
        let outcome = match self.commit(&jobs, room).await {
            // Whoever begins something is refused then, and the others have the space that was kept.
            Err(aborted) if is_full(&aborted.cause) && self.reserve.release() => {
                self.commit(&jobs, Room::Reserved).await
            }
            outcome => outcome,
        };
        match outcome {
            Ok(answers) => jobs.into_iter().zip(answers).for_each(|(job, answer)| job.answer(answer)),
            Err(aborted) => fail(jobs, || fault_of(&aborted)),
        }
    }

    /// One transaction over all jobs. When it fails, none of them happened, unless it says that it is in doubt.
    async fn commit(&mut self, jobs: &[Job], room: Room) -> Result<Vec<Answer>, Aborted> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => file::writing(&self.path, self.timeout).connect().await?,
        };
        match self.transact(&mut connection, jobs, room).await {
            Ok(answers) => {
                self.connection = Some(connection);
                Ok(answers)
            }
            Err(aborted) => {
                self.poisoned = is_sync_failure(&aborted.cause);
                tracing::error!(error = %aborted.cause, jobs = jobs.len(), poisoned = self.poisoned, "a commit failed");
                // Closing rolls back, whatever state the failure left; a new connection reads the file afresh.
                drop(connection.close().await);
                Err(aborted)
            }
        }
    }

    async fn transact(
        &self,
        connection: &mut SqliteConnection,
        jobs: &[Job],
        room: Room,
    ) -> Result<Vec<Answer>, Aborted> {
        // IMMEDIATE: what is read here is what the writes will meet.
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            answers.push(match job {
                Job::Swap(job) => Answer::Swap(self.swap(connection, job, room).await?),
                Job::Meta(offer, _) => Answer::Meta(meta(connection, offer).await?),
                Job::Ping(_) => Answer::Ping(self.ping(connection, room).await?),
            });
        }
        match (jobs.len(), room) {
            (0, _) => self.sweep(connection, SWEEP_IDLE_ROWS).await?,
            (writes, Room::Ample) => self.sweep(connection, writes * SWEEP_ROWS_PER_WRITE).await?,
            // Clearing away takes space in the log first: it must not fail those who are ending something.
            (_, Room::Reserved) => {}
        }
        match sqlx::query("COMMIT").execute(&mut *connection).await {
            Ok(_) => Ok(answers),
            Err(cause) => Err(Aborted { in_doubt: !is_full(&cause), cause }),
        }
    }

    async fn swap(
        &self,
        connection: &mut SqliteConnection,
        job: &SwapJob,
        room: Room,
    ) -> Result<Result<Swap, StoreError>, sqlx::Error> {
        let now = self.clock.now();
        let standing = match row::read(connection, &job.key, now).await? {
            Ok(standing) => standing,
            // This record's fault alone: the others in the transaction go on.
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        if !job.expect.holds(standing.as_ref(), now) {
            return Ok(Ok(Swap::Refused(Box::new(Seen { current: standing, now }))));
        }
        if room == Room::Reserved && matches!(job.draft.fence, Fence::Next { .. }) {
            return Ok(Err(full()));
        }
        let record = job.draft.stamp(now, standing.as_ref());
        row::write(connection, &job.key, &job.draft, &record).await?;
        Ok(Ok(Swap::Done(Box::new(record))))
    }

    async fn ping(&self, connection: &mut SqliteConnection, room: Room) -> Result<Result<(), StoreError>, sqlx::Error> {
        if room == Room::Reserved {
            return Ok(Err(full()));
        }
        let now = micros(self.clock.now());
        sqlx::query("REPLACE INTO ping (only, at) VALUES (1, ?)").bind(now).execute(connection).await?;
        Ok(Ok(()))
    }

    async fn sweep(&self, connection: &mut SqliteConnection, rows: usize) -> Result<(), sqlx::Error> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        sqlx::query(SWEEP).bind(micros(self.clock.now())).bind(rows).execute(connection).await.map(|_| ())
    }
}

async fn meta(connection: &mut SqliteConnection, offer: &Meta) -> Result<Found, sqlx::Error> {
    let done = sqlx::query("INSERT INTO meta (only, epoch, digest_key) VALUES (1, ?, ?) ON CONFLICT DO NOTHING")
        .bind(&offer.epoch)
        .bind(offer.digest_key.as_slice())
        .execute(&mut *connection)
        .await?;
    let meta = row::meta(connection).await?.ok_or(sqlx::Error::RowNotFound)?;
    Ok(Found { meta, made: done.rows_affected() == 1 })
}

fn fail(jobs: Vec<Job>, error: impl Fn() -> StoreError) {
    jobs.into_iter().for_each(|job| job.fail(error()));
}

fn full() -> StoreError {
    StoreError::new(StoreFault::Refused, "the disk is full: nothing new is begun")
}

fn fault_of(aborted: &Aborted) -> StoreError {
    let fault = fault(&aborted.cause);
    if aborted.in_doubt { fault.in_doubt() } else { fault.not_applied() }
}

/// SQLITE_FULL.
fn is_full(error: &sqlx::Error) -> bool {
    super::code(error).is_some_and(|code| code & 0xff == 13)
}

/// SQLITE_IOERR_FSYNC and SQLITE_IOERR_DIR_FSYNC: the kernel may have dropped what it failed to write, so that neither trying
/// again nor reading it back tells what is on the disk.
fn is_sync_failure(error: &sqlx::Error) -> bool {
    matches!(super::code(error), Some(1034 | 1290))
}

pub(super) fn micros(at: crate::event::Timestamp) -> i64 {
    i64::try_from(at.as_micros()).unwrap_or(i64::MAX)
}
