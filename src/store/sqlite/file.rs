//! The database file: its lock, its options, its schema.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::store::OpenError;

const SCHEMA: &str = include_str!("schema.sql");

/// What brings schema 1 to 2.
const UPGRADE_2: &str = include_str!("upgrade-2.sql");

/// The schema that [`SCHEMA`] makes.
const SCHEMA_VERSION: i64 = 2;

/// The write-ahead log is cut back to this when it is done with, so that a burst does not keep its space for good.
const LOG_KEPT_BYTES: &str = "67108864";

/// Takes the file's lock, which the kernel gives back when this process ends in whatever way.
///
/// Beside the database rather than on it: SQLite drops a process's locks on the file when any descriptor of it closes.
pub(super) fn lock(path: &Path) -> Result<File, OpenError> {
    let lock = beside(path, ".lock");
    let failed = |error: &dyn std::fmt::Display| OpenError::File { path: show(&lock), detail: error.to_string() };
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(&lock).map_err(|error| failed(&error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { path: show(path), lock: show(&lock) }),
        Err(error) => Err(failed(&error)),
    }
}

/// How the writer opens the file.
pub(super) fn writing(path: &Path, timeout: Duration) -> SqliteConnectOptions {
    reading(path, timeout)
        .read_only(false)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // The log is on the disk before a commit returns: what was acknowledged survives a loss of power.
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", LOG_KEPT_BYTES)
}

/// How a reader opens it.
pub(super) fn reading(path: &Path, timeout: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .create_if_missing(false)
        .busy_timeout(timeout)
        .disable_statement_logging()
}

/// Opens a connection.
pub(super) async fn connect(options: SqliteConnectOptions, path: &Path) -> Result<SqliteConnection, OpenError> {
    let connection = options.connect().await;
    connection.map_err(|error| OpenError::File { path: show(path), detail: error.to_string() })
}

/// Brings the file to this version's schema.
pub(super) async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let failed = |error: sqlx::Error| OpenError::File { path: show(path), detail: error.to_string() };
    let script = match version(connection, path).await? {
        0 => SCHEMA,
        1 => UPGRADE_2,
        SCHEMA_VERSION => return Ok(()),
        found => return Err(newer(path, found)),
    };
    // Whole or not at all: SQLite undoes a change of schema like any other, the version's number included.
    let mut change = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    sqlx::raw_sql(script).execute(&mut *change).await.map_err(failed)?;
    change.commit().await.map_err(failed)
}

/// Checks that the file has this version's schema, for those who may not change it.
pub(super) async fn check(connection: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let unusable = |detail: &str| Err(OpenError::File { path: show(path), detail: detail.to_owned() });
    match version(connection, path).await? {
        SCHEMA_VERSION => Ok(()),
        0 => unusable("it holds no records yet"),
        1 => unusable(
            "an earlier version wrote it; start `onceward serve` of this version on it, which brings it up to date",
        ),
        found => Err(newer(path, found)),
    }
}

fn newer(path: &Path, found: i64) -> OpenError {
    OpenError::Newer { path: show(path), found, known: SCHEMA_VERSION }
}

async fn version(connection: &mut SqliteConnection, path: &Path) -> Result<i64, OpenError> {
    let version = sqlx::query_scalar("PRAGMA user_version").fetch_one(connection).await;
    version.map_err(|error| OpenError::File { path: show(path), detail: error.to_string() })
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn show(path: &Path) -> String {
    path.display().to_string()
}
