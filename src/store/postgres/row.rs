//! Records as rows.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{Row as _, ValueRef as _};

use crate::event::{ScopeKey, Timestamp};
use crate::idempotency::{Draft, Expect, Fence, Lease, Record, State, Ttl};
use crate::store::codec::{self, COLUMNS, Cell, Columns};
use crate::store::{Seen, StoreError, StoreFault, Swap, sql};

/// A query that begins with every column of the record `r` in the order of [`COLUMNS`], each as the octets it was written as, and
/// its key.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT (r).status, (r).fingerprint, (r).field_digests, (r).owner, (r).fence::text, (r).attempt::text, \
             (r).started_at::text, (r).finished_at::text, (r).lease_until::text, (r).expires_at::text, (r).class, (r).reason, \
             (r).status_code::text, (r).headers, (r).body, (r).resource_id, (r).error, (r).released::text, \
             (r).ambiguous::text, (r).plugin, (r).version, (r).route, (r).history, (r).request, (r).alias_of, \
             (r).mismatch, (r).tenant, (r).scope, (r).namespace, (r).kind, (r).key",
            $rest
        )
    };
}
pub(super) use select;

pub(super) const SWAP: &str = select!(
    ", done, now_at FROM onceward_swap_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
     $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)"
);

pub(super) const PEEK: &str = select!(
    ", onceward_now() AS now_at FROM (VALUES (1)) AS one LEFT JOIN idempotency_records AS r ON (r).tenant = $1 \
     AND (r).scope = $2 AND (r).namespace = $3 AND (r).kind = $4 AND (r).key = $5"
);

/// The columns that the server's clock decides.
const STAMPED: [&str; 5] = ["fence", "started_at", "finished_at", "lease_until", "expires_at"];

/// JSON has an escape of its own for what PostgreSQL cannot hold, and stays JSON for whoever reads the table.
const JSON: [&str; 5] = ["field_digests", "headers", "history", "alias_of", "mismatch"];

/// The longest lease or life, 100 years: the sum with any time still is one.
const SPAN_MAX: Duration = Duration::from_hours(24 * 365 * 100);

pub(super) type Asked<'q> = Query<'q, Postgres, PgArguments>;

/// Text as PostgreSQL can hold it: without a NUL.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '\0']) {
        Cow::Owned(text.replace('\\', "\\\\").replace('\0', "\\0"))
    } else {
        Cow::Borrowed(text)
    }
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut octets = text.iter();
    while let Some(octet) = octets.next() {
        plain.push(match octet {
            b'\\' => match octets.next()? {
                b'\\' => b'\\',
                b'0' => 0,
                _ => return None,
            },
            other => *other,
        });
    }
    Some(plain)
}

/// Adds a key's five parameters.
pub(super) fn bind_key<'q>(query: Asked<'q>, key: &ScopeKey) -> Asked<'q> {
    query
        .bind(escaped(&key.tenant).into_owned())
        .bind(escaped(&key.scope).into_owned())
        .bind(escaped(&key.namespace).into_owned())
        .bind(key.kind.as_str())
        .bind(sql::parts(&key.parts))
}

/// The conditional write as one statement.
pub(super) fn swap(key: &ScopeKey, expect: Expect, draft: &Draft) -> Asked<'static> {
    let (lease, revision) = match expect {
        Expect::Absent => ("absent", None),
        Expect::At { revision, lease: Lease::Live } => ("live", Some(revision)),
        Expect::At { revision, lease: Lease::Over } => ("over", Some(revision)),
        Expect::At { revision, lease: Lease::Any } => ("any", Some(revision)),
    };
    let floor = match draft.fence {
        Fence::Next { floor } => Some(integer(floor)),
        Fence::Keep => None,
    };
    let (ttl, at_least) = match draft.ttl {
        Ttl::AtLeast(ttl) => (ttl, true),
        Ttl::Exactly(ttl) => (ttl, false),
    };
    let query = bind_key(sqlx::query(SWAP), key)
        .bind(lease)
        .bind(revision.map(|revision| integer(revision.fence)))
        .bind(revision.map(|revision| revision.status.as_str()))
        .bind(floor)
        .bind(draft.lease.map(span))
        .bind(span(ttl))
        .bind(at_least)
        .bind(draft.state != State::Processing);
    bind_content(query, codec::content(draft))
}

fn bind_content(mut query: Asked<'static>, mut columns: Columns) -> Asked<'static> {
    for name in COLUMNS.into_iter().filter(|name| !STAMPED.contains(name)) {
        let at = columns.iter().position(|(column, _)| *column == name);
        let cell = at.map(|at| columns.swap_remove(at).1);
        query = match (cell, OCTETS.contains(&name)) {
            (Some(Cell::Octets(octets)), _) => query.bind(octets.to_vec()),
            (Some(Cell::Text(text)), _) if JSON.contains(&name) => query.bind(text),
            (Some(Cell::Text(text)), _) => query.bind(escaped(&text).into_owned()),
            (None, true) => query.bind(None::<Vec<u8>>),
            (None, false) => query.bind(None::<String>),
        };
    }
    query
}

const OCTETS: [&str; 2] = ["body", "request"];

/// What the conditional write said.
pub(super) fn swapped(row: &PgRow, key: &ScopeKey, draft: &Draft) -> Result<Swap, StoreError> {
    let now = now(row)?;
    if !row.try_get::<bool, _>("done").map_err(|error| corrupt(&error))? {
        return Ok(Swap::Refused(Box::new(Seen { current: standing(row, key)?, now })));
    }
    let stamp = |name: &str| {
        let text: String = row.try_get(name).map_err(|error| corrupt(&error))?;
        text.parse::<u64>().map_err(|error| corrupt(&error))
    };
    let time = |name: &str| stamp(name).map(Timestamp::from_micros);
    Ok(Swap::Done(Box::new(Record {
        fence: stamp("fence")?,
        started_at: time("started_at")?,
        lease_until: time("lease_until")?,
        expires_at: time("expires_at")?,
        ..draft.stamp(now, None)
    })))
}

/// What a [`PEEK`] found.
pub(super) fn seen(row: &PgRow, key: &ScopeKey) -> Result<Seen, StoreError> {
    let now = now(row)?;
    Ok(Seen { current: standing(row, key)?.filter(|record| record.expires_at > now), now })
}

/// The server's time, where a query asks for it.
pub(super) fn now(row: &PgRow) -> Result<Timestamp, StoreError> {
    let now: i64 = row.try_get("now_at").map_err(|error| corrupt(&error))?;
    Ok(Timestamp::from_micros(u64::try_from(now).unwrap_or_default()))
}

/// The record that a row holds, when it holds one.
fn standing(row: &PgRow, key: &ScopeKey) -> Result<Option<Record>, StoreError> {
    let absent = row.try_get_raw("tenant").map_err(|error| corrupt(&error))?.is_null();
    if absent { Ok(None) } else { decode(row, key).map(Some) }
}

/// The record of a row that a [`select`] gave.
///
/// # Errors
/// [`StoreFault::Corrupt`] when it is none. The log names the key: someone will have to look.
pub(super) fn decode(row: &PgRow, key: &ScopeKey) -> Result<Record, StoreError> {
    let mut columns = codec::Row::default();
    for (at, name) in COLUMNS.into_iter().enumerate() {
        let value = row.try_get_raw(at).map_err(|error| corrupt(&error))?;
        if value.is_null() {
            continue;
        }
        let octets = value.as_bytes().map_err(|error| corrupt(&error))?;
        let plain =
            if OCTETS.contains(&name) || JSON.contains(&name) { Some(octets.to_vec()) } else { unescaped(octets) };
        let plain = plain.ok_or_else(|| corrupt(&format_args!("the record's `{name}` holds an unknown escape")))?;
        columns.insert(name.as_bytes(), plain);
    }
    columns.decode().inspect_err(|error| tracing::error!(%key, %error, "a record cannot be read"))
}

/// The key of a row that a [`select`] gave.
///
/// # Errors
/// [`StoreFault::Corrupt`] when it is none.
pub(super) fn key(row: &PgRow) -> Result<ScopeKey, StoreError> {
    let unreadable = || corrupt(&"a row's key cannot be read");
    let word = |name: &str| {
        let text: String = row.try_get(name).map_err(|error| corrupt(&error))?;
        unescaped(text.as_bytes()).and_then(|plain| String::from_utf8(plain).ok()).ok_or_else(unreadable)
    };
    let parts = row.try_get("key").map_err(|error| corrupt(&error))?;
    sql::key(&word("tenant")?, &word("scope")?, [word("namespace")?, word("kind")?, parts]).ok_or_else(unreadable)
}

/// A number as the columns hold it.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn span(span: Duration) -> i64 {
    i64::try_from(span.min(SPAN_MAX).as_micros()).unwrap_or(i64::MAX)
}

fn corrupt(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::new(StoreFault::Corrupt, error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any text comes back, and none of it is a NUL meanwhile.
        #[test]
        fn any_text_comes_back(text in "[a\\\\0\0]{0,8}") {
            let kept = escaped(&text);
            prop_assert!(!kept.contains('\0'));
            prop_assert_eq!(unescaped(kept.as_bytes()), Some(text.into_bytes()));
        }
    }
}
