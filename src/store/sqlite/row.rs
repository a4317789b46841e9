//! Records as rows.

use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

use crate::event::{ScopeKey, Timestamp};
use crate::idempotency::{Draft, Record};
use crate::store::codec::{self, COLUMNS, Cell};
use crate::store::{Meta, StoreError, StoreFault, sql};

use super::fault;

/// A query that begins with every column of a record and its checksum, in the order of [`COLUMNS`], and its key. Everything is
/// read back as the octets it was written as: SQLite renders an integer as the digits that made it.
macro_rules! select {
    ($from:literal) => {
        concat!(
            "SELECT CAST(status AS BLOB), CAST(fingerprint AS BLOB), CAST(field_digests AS BLOB), CAST(owner AS BLOB), \
             CAST(fence AS BLOB), CAST(attempt AS BLOB), CAST(started_at AS BLOB), CAST(finished_at AS BLOB), \
             CAST(lease_until AS BLOB), CAST(expires_at AS BLOB), CAST(class AS BLOB), CAST(reason AS BLOB), \
             CAST(status_code AS BLOB), CAST(headers AS BLOB), body, CAST(resource_id AS BLOB), CAST(error AS BLOB), \
             CAST(released AS BLOB), CAST(ambiguous AS BLOB), CAST(plugin AS BLOB), CAST(version AS BLOB), CAST(route AS BLOB), \
             CAST(history AS BLOB), request, CAST(alias_of AS BLOB), CAST(mismatch AS BLOB), checksum, \
             tenant, scope, namespace, kind, key FROM ",
            $from
        )
    };
}
pub(super) use select;

const READ: &str =
    select!("idempotency_records WHERE tenant = ? AND scope = ? AND namespace = ? AND kind = ? AND key = ?");

/// How many of the columns schema 1 had.
const COLUMNS_AT_FIRST: usize = 21;

const REPLACE: &str = "REPLACE INTO idempotency_records (tenant, scope, namespace, kind, key, \
    status, fingerprint, field_digests, owner, fence, attempt, started_at, finished_at, lease_until, expires_at, class, reason, \
    status_code, headers, body, resource_id, error, released, ambiguous, plugin, version, route, history, request, \
    alias_of, mismatch, checksum) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// The record that stands for a key at `now`.
///
/// # Errors
/// A fault of the database, or [`StoreFault::Corrupt`] when the row is not as it was written. An expired row is absent.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    key: &ScopeKey,
    now: Timestamp,
) -> Result<Result<Option<Record>, StoreError>, sqlx::Error> {
    let parts = sql::parts(&key.parts);
    let row = sqlx::query(READ)
        .bind(&key.tenant)
        .bind(&key.scope)
        .bind(&key.namespace)
        .bind(key.kind.as_str())
        .bind(&parts)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else {
        return Ok(Ok(None));
    };
    Ok(decode(&row, key).map(|record| Some(record).filter(|record| record.expires_at > now)))
}

/// The record of a row that a [`select`] gave.
///
/// # Errors
/// [`StoreFault::Corrupt`] when the row is not as it was written.
pub(super) fn decode(row: &SqliteRow, key: &ScopeKey) -> Result<Record, StoreError> {
    let mut sum = Checksum::over(key);
    let mut columns = codec::Row::default();
    for (at, name) in COLUMNS.iter().enumerate() {
        let value: Option<Vec<u8>> = row.try_get(at).map_err(|error| fault(&error))?;
        sum.column(at, name, value.as_deref());
        if let Some(value) = value {
            columns.insert(name.as_bytes(), value);
        }
    }
    let kept: Vec<u8> = row.try_get(COLUMNS.len()).map_err(|error| fault(&error))?;
    if kept != sum.finish() {
        return Err(StoreError::new(StoreFault::Corrupt, "a record does not match its checksum"));
    }
    columns.decode()
}

/// Writes the record that `draft` became.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    key: &ScopeKey,
    draft: &Draft,
    record: &Record,
) -> Result<(), sqlx::Error> {
    let parts = sql::parts(&key.parts);
    let mut columns = codec::content(draft);
    columns.extend(codec::stamps(record));
    let mut sum = Checksum::over(key);
    let mut query = sqlx::query(REPLACE)
        .bind(&key.tenant)
        .bind(&key.scope)
        .bind(&key.namespace)
        .bind(key.kind.as_str())
        .bind(&parts);
    for (at, name) in COLUMNS.into_iter().enumerate() {
        let cell = columns.iter().find(|(column, _)| *column == name).map(|(_, cell)| cell);
        sum.column(at, name, cell.map(Cell::as_bytes));
        query = match cell {
            Some(Cell::Text(text)) => query.bind(text.as_str()),
            Some(Cell::Octets(octets)) => query.bind(octets.as_ref()),
            None => query.bind(None::<&str>),
        };
    }
    query.bind(sum.finish()).execute(connection).await.map(|_| ())
}

/// The key of a row that a [`select`] gave.
///
/// # Errors
/// [`StoreFault::Corrupt`] when it is none.
pub(super) fn key(row: &SqliteRow) -> Result<ScopeKey, StoreError> {
    let word = |name| row.try_get::<String, _>(name).map_err(|error| fault(&error));
    sql::key(&word("tenant")?, &word("scope")?, [word("namespace")?, word("kind")?, word("key")?])
        .ok_or_else(|| StoreError::new(StoreFault::Corrupt, "a row's key cannot be read"))
}

/// The store's own record, if it was made.
pub(super) async fn meta(connection: &mut SqliteConnection) -> Result<Option<Meta>, sqlx::Error> {
    let row = sqlx::query("SELECT epoch, digest_key FROM meta").fetch_optional(connection).await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let digest_key: Vec<u8> = row.try_get(1)?;
    let unreadable = |key: Vec<u8>| sqlx::Error::ColumnDecode {
        index: "digest_key".to_owned(),
        source: format!("{} octets long", key.len()).into(),
    };
    Ok(Some(Meta { epoch: row.try_get(0)?, digest_key: digest_key.try_into().map_err(unreadable)? }))
}

/// Eight octets over a row. SQLite itself does not notice a bit that flips on the disk, and a wrong answer must not be replayed.
struct Checksum(Sha256);

impl Checksum {
    fn over(key: &ScopeKey) -> Self {
        Self(Sha256::new_with_prefix(key.digest()))
    }

    /// A column that came after schema 1 counts, by its name, only when it has a value: older rows keep the sum they have.
    fn column(&mut self, at: usize, name: &str, value: Option<&[u8]>) {
        if at >= COLUMNS_AT_FIRST {
            if value.is_none() {
                return;
            }
            self.add(Some(name.as_bytes()));
        }
        self.add(value);
    }

    fn add(&mut self, value: Option<&[u8]>) {
        let framed = value.map_or(u64::MAX, |value| value.len() as u64);
        self.0.update(framed.to_be_bytes());
        self.0.update(value.unwrap_or_default());
    }

    fn finish(self) -> Vec<u8> {
        self.0.finalize().iter().copied().take(8).collect()
    }
}
