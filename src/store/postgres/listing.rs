//! What people ask: a tenant's records, and those of a key.

use std::cmp::Reverse;

use futures::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row as _};

use crate::idempotency::record::Status;
use crate::store::{Entry, Filter, Listed, StoreError, sql};

use super::keeper::patient;
use super::row::{self, escaped, integer, select};

/// One state at a time: only then does the index give them by their start. The first row is the server's time alone.
const LIST: &str = select!(
    ", now_at FROM (SELECT onceward_now() AS now_at) AS clock LEFT JOIN LATERAL ( \
     SELECT found FROM unnest($2::text[]) AS wanted (status) CROSS JOIN LATERAL ( \
     SELECT records AS found FROM idempotency_records AS records WHERE tenant = $1 AND status = wanted.status \
     AND started_at >= $3 AND expires_at > now_at AND ($4::text IS NULL OR coalesce(route, '') = $4) \
     ORDER BY started_at DESC LIMIT $5) AS each) AS listed (r) ON true"
);

/// A scope's namespaces are few, and each is one step in the index: a key is found without reading the scope.
const FIND: &str = concat!(
    "WITH RECURSIVE named (name) AS ( \
     (SELECT min(namespace) FROM idempotency_records WHERE tenant = $1 AND scope = $2) UNION ALL \
     SELECT (SELECT min(namespace) FROM idempotency_records WHERE tenant = $1 AND scope = $2 AND namespace > name) \
     FROM named WHERE name IS NOT NULL) ",
    select!(
        " FROM named JOIN idempotency_records AS r ON r.tenant = $1 AND r.scope = $2 AND r.namespace = name \
         AND r.kind = 'key' AND r.key = $3 WHERE r.expires_at > (SELECT onceward_now())"
    )
);

/// Every event of the scope.
const SCAN: &str = select!(
    " FROM idempotency_records AS r WHERE tenant = $1 AND scope = $2 AND kind IN ('key', 'body') \
     AND expires_at > (SELECT onceward_now())"
);

/// The records of a tenant, newest start first, before they are read.
pub(super) async fn list(
    connection: &mut PgConnection,
    tenant: &str,
    filter: &Filter,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let statuses = filter.statuses.iter().filter(|status| **status != Status::Alias);
    let mut moment = connection.begin().await?;
    patient(&mut moment).await?;
    let rows = sqlx::query(LIST)
        .bind(escaped(tenant))
        .bind(statuses.map(|status| status.as_str()).collect::<Vec<_>>())
        .bind(integer(filter.since.unwrap_or_default().as_micros()))
        .bind(filter.route.as_deref().map(escaped))
        .bind(i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1))
        .fetch_all(&mut *moment)
        .await?;
    moment.commit().await?;
    Ok(rows)
}

/// Reads what [`list`] gave.
pub(super) fn listed(rows: &[PgRow], filter: &Filter) -> Result<Listed, StoreError> {
    let now = match rows.first() {
        Some(row) => row::now(row)?,
        None => return Err(StoreError::new(crate::store::StoreFault::Corrupt, "a listing without the time")),
    };
    let found =
        rows.iter().filter(|row| row.try_get::<Option<String>, _>("tenant").is_ok_and(|tenant| tenant.is_some()));
    let found = found.collect::<Vec<_>>();
    let mut entries = found.iter().filter_map(|row| sql::readable(entry(row))).collect::<Vec<_>>();
    entries.sort_by_key(|entry| Reverse(entry.record.started_at));
    entries.truncate(filter.limit);
    Ok(Listed { entries, more: found.len() > filter.limit, now })
}

/// The rows of a scope whose key reads like this, before they are read.
pub(super) async fn find(
    connection: &mut PgConnection,
    [tenant, scope]: [&str; 2],
    readable_key: &str,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut moment = connection.begin().await?;
    patient(&mut moment).await?;
    let query = if sql::is_digest(readable_key) {
        sqlx::query(SCAN).bind(escaped(tenant)).bind(escaped(scope))
    } else {
        let parts = sql::parts(&sql::readable_parts(readable_key));
        sqlx::query(FIND).bind(escaped(tenant)).bind(escaped(scope)).bind(parts)
    };
    // Told apart here, so that a scan keeps one row, not the scope. A key that cannot be read is one to be told of.
    let is_other = |row: &PgRow| row::key(row).is_ok_and(|key| key.readable_key() != readable_key);
    let rows = query.fetch(&mut *moment).try_filter(|row| std::future::ready(!is_other(row)));
    let rows = rows.try_collect().await?;
    moment.commit().await?;
    Ok(rows)
}

pub(super) fn entry(row: &PgRow) -> Result<Entry, StoreError> {
    let key = row::key(row)?;
    Ok(Entry { record: row::decode(row, &key)?, key })
}
