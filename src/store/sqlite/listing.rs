//! What people ask: a tenant's records, and those of a key. On the readers, so that the writer never waits.

use std::cmp::Reverse;

use futures::TryStreamExt;
use sqlx::Connection;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use crate::event::Timestamp;
use crate::idempotency::record::Status;
use crate::store::{Entry, Filter, Listed, StoreError, sql};

use super::row::{self, select};
use super::{fault, writer::micros};

/// One state at a time: only then does the index give them by their start.
const LIST: &str = select!(
    "idempotency_records WHERE tenant = ?1 AND status = ?2 AND started_at >= ?3 AND expires_at > ?4 \
     AND (?5 IS NULL OR ifnull(route, '') = ?5) ORDER BY started_at DESC LIMIT ?6"
);

/// A scope's namespaces are few, and each is one step in the index: a key is found without reading the scope.
const FIND: &str = concat!(
    "WITH RECURSIVE named (name) AS ( \
     SELECT min(namespace) FROM idempotency_records WHERE tenant = ?1 AND scope = ?2 UNION ALL \
     SELECT (SELECT min(namespace) FROM idempotency_records WHERE tenant = ?1 AND scope = ?2 AND namespace > name) \
     FROM named WHERE name IS NOT NULL) ",
    select!(
        "named JOIN idempotency_records ON namespace = name \
         WHERE tenant = ?1 AND scope = ?2 AND kind = 'key' AND key = ?3"
    )
);

/// Every event of the scope.
const SCAN: &str = select!("idempotency_records WHERE tenant = ?1 AND scope = ?2 AND kind IN ('key', 'body')");

/// The records of a tenant, newest start first.
pub(super) async fn list(
    readers: &SqlitePool,
    now: Timestamp,
    tenant: &str,
    filter: &Filter,
) -> Result<Listed, StoreError> {
    let failed = |error: sqlx::Error| fault(&error);
    let mut connection = readers.acquire().await.map_err(failed)?;
    // One moment for all states: a record that changes meanwhile is listed once.
    let mut moment = connection.begin().await.map_err(failed)?;
    let (mut entries, mut more) = (Vec::new(), false);
    for status in filter.statuses.iter().filter(|status| **status != Status::Alias) {
        let rows = sqlx::query(LIST)
            .bind(tenant)
            .bind(status.as_str())
            .bind(micros(filter.since.unwrap_or_default()))
            .bind(micros(now))
            .bind(filter.route.as_deref())
            .bind(i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1));
        let rows = rows.fetch_all(&mut *moment).await.map_err(failed)?;
        more |= rows.len() > filter.limit;
        entries.extend(rows.iter().filter_map(|row| sql::readable(entry(row))));
    }
    entries.sort_by_key(|entry| Reverse(entry.record.started_at));
    more |= entries.len() > filter.limit;
    entries.truncate(filter.limit);
    Ok(Listed { entries, more, now })
}

/// The events of a scope whose key reads like this.
pub(super) async fn find(
    readers: &SqlitePool,
    now: Timestamp,
    [tenant, scope]: [&str; 2],
    readable_key: &str,
) -> Result<Vec<Entry>, StoreError> {
    let parts = sql::parts(&sql::readable_parts(readable_key));
    let mut rows = if sql::is_digest(readable_key) {
        sqlx::query(SCAN).bind(tenant).bind(scope).fetch(readers)
    } else {
        sqlx::query(FIND).bind(tenant).bind(scope).bind(&parts).fetch(readers)
    };
    let mut found = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(|error| fault(&error))? {
        let key = row::key(&row)?;
        if key.readable_key() == readable_key {
            found.push(Entry { record: row::decode(&row, &key)?, key });
        }
    }
    found.retain(|entry| entry.record.expires_at > now);
    Ok(found)
}

fn entry(row: &SqliteRow) -> Result<Entry, StoreError> {
    let key = row::key(row)?;
    Ok(Entry { record: row::decode(row, &key)?, key })
}
