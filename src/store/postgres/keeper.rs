//! What a gateway does for its database beside the calls: makes and checks its tables, and clears away what has expired.

use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use crate::store::sql::PATIENCE;
use crate::store::{StoreError, StoreFault};

use super::fault;
use super::pool::{Place, Pool};

const SCHEMA: &str = include_str!("schema.sql");

/// The schema that [`SCHEMA`] makes.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// The name of the lock under which tables are made, among all locks of the database: "onceward" in ASCII.
const LOCK: i64 = 0x6f6e_6365_7761_7264;

/// How soon a database that could not be used is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_ROWS: u64 = 500;

/// SKIP LOCKED: several gateways sweep side by side, and none waits for a row that a call is writing.
const SWEEP: &str = "DELETE FROM idempotency_records WHERE ctid = ANY (ARRAY ( \
    SELECT ctid FROM idempotency_records WHERE expires_at <= (SELECT onceward_now()) \
    ORDER BY expires_at LIMIT 500 FOR UPDATE SKIP LOCKED))";

/// Whether the tables can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// Not known yet.
    Unknown,
    /// They are there.
    Ready,
    /// A later version of this program made them.
    Newer(i64),
    /// Not to be had for now.
    Failed(StoreFault, String),
}

/// Whether one may change what one finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Serve,
    Look,
}

/// Keeps the database until the store is dropped.
pub(super) async fn keep(pool: Arc<Pool>, told: watch::Sender<Schema>, purpose: Purpose) {
    loop {
        let schema = match prepare(&pool, purpose).await {
            Ok(SCHEMA_VERSION) => Schema::Ready,
            Ok(0) => Schema::Failed(StoreFault::Refused, "the database holds no records yet".to_owned()),
            Ok(found) => Schema::Newer(found),
            Err(error) => Schema::Failed(error.kind, error.detail),
        };
        if told.send_if_modified(|before| std::mem::replace(before, schema.clone()) != schema) {
            match &schema {
                Schema::Ready | Schema::Unknown => tracing::info!("the database is ready"),
                Schema::Newer(found) => {
                    tracing::error!(found, known = SCHEMA_VERSION, "the database's schema is newer")
                }
                Schema::Failed(_, detail) => tracing::warn!(%detail, "the database cannot be used yet; trying on"),
            }
        }
        if schema == Schema::Ready {
            match purpose {
                Purpose::Serve => sweep(&pool).await,
                Purpose::Look => return,
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// The version of the tables that are there, after making them if there are none and one may.
async fn prepare(pool: &Arc<Pool>, purpose: Purpose) -> Result<i64, StoreError> {
    let mut place = pool.place(Instant::now() + PATIENCE).await?;
    let work = async {
        let found = version(&mut place.connection).await?;
        match (found, purpose) {
            (0, Purpose::Serve) => make(&mut place.connection).await,
            (found, _) => Ok(found),
        }
    };
    let found = bounded(work).await?;
    conclude(place, found)
}

/// Makes the tables, whole or not at all. Of many gateways that start at once, one does, and the others wait for it.
async fn make(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let mut change = connection.begin().await?;
    patient(&mut change).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *change).await?;
    let found = version(&mut change).await?;
    if found != 0 {
        return Ok(found);
    }
    sqlx::raw_sql(SCHEMA).execute(&mut *change).await?;
    change.commit().await?;
    Ok(SCHEMA_VERSION)
}

/// Lets the transaction's statements take their time.
pub(super) async fn patient(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)")
        .bind(PATIENCE.as_millis().to_string())
        .execute(connection)
        .await
        .map(|_| ())
}

/// From the catalogue itself: what a session remembers of names may be from before the lock was had.
const TABLES_EXIST: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_class \
    WHERE relname = 'idempotency_schema' AND pg_catalog.pg_table_is_visible(oid))";

/// Zero when there are no tables.
async fn version(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    if !sqlx::query_scalar::<_, bool>(TABLES_EXIST).fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT version FROM idempotency_schema").fetch_one(connection).await
}

/// Clears away what has expired, until the tables are gone.
async fn sweep(pool: &Arc<Pool>) {
    loop {
        let swept = match pool.place(Instant::now() + SWEEP_EVERY).await {
            Ok(mut place) => match bounded(sqlx::query(SWEEP).execute(&mut place.connection)).await {
                Ok(Err(error)) if fault::no_schema(&error) => return,
                Ok(result) => conclude(place, result).map(|done| done.rows_affected()),
                Err(late) => Err(late),
            },
            Err(error) => Err(error),
        };
        // A fault needs no word here: the calls have it too.
        if swept.unwrap_or_default() < SWEEP_ROWS {
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    }
}

/// Work whose end even a server that says nothing does not hold up.
async fn bounded<T>(work: impl Future<Output = T>) -> Result<T, StoreError> {
    let late = |_| StoreError::new(StoreFault::Timeout, format_args!("no answer within {PATIENCE:?}"));
    tokio::time::timeout(PATIENCE, work).await.map_err(late)
}

/// Gives the connection back, and the result on.
pub(super) fn conclude<T>(place: Place, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
    place.settle(&result);
    result.map_err(|error| fault::of(&error))
}
