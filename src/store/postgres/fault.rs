//! What an error of the server means: for the call, and for the connection.

use crate::store::{StoreError, StoreFault};

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was nobody's fault: the same call may pass now.
    Again,
    /// The connection, or its server as one to write to, is of no use any more.
    Gone,
    /// The call failed, the connection is well.
    Told,
}

/// See [`Verdict`].
pub(super) fn verdict(error: &sqlx::Error) -> Verdict {
    match (code(error).as_deref(), error) {
        // serialization_failure, deadlock_detected.
        (Some("40001" | "40P01"), _) => Verdict::Again,
        // read_only_sql_transaction: a demoted primary keeps its connections. Shutdowns and crashes. Broken connections.
        (Some("25006"), _) => Verdict::Gone,
        (Some(code), _) if code.starts_with("57P") || code.starts_with("08") => Verdict::Gone,
        (Some(_), _) | (None, sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. }) => Verdict::Told,
        (None, _) => Verdict::Gone,
    }
}

/// The fault of a call.
///
/// A server that says `ERROR` has undone the statement. One that ends the connection, or says nothing, may have committed it.
pub(super) fn of(error: &sqlx::Error) -> StoreError {
    let Some(code) = code(error) else {
        return StoreError::new(without_code(error), error);
    };
    let fault = match code.as_str() {
        // query_canceled (statement_timeout), lock_not_available (lock_timeout), and what was retried to the deadline.
        "57014" | "55P03" | "40001" | "40P01" => StoreError::new(StoreFault::Timeout, error),
        // data_corrupted, index_corrupted.
        "XX001" | "XX002" => StoreError::new(StoreFault::Corrupt, error),
        code if code.starts_with("57P") || code.starts_with("08") => {
            return StoreError::new(StoreFault::Unreachable, error);
        }
        // Full, read-only, no rights, no table: it answered, and did nothing.
        _ => StoreError::new(StoreFault::Refused, error),
    };
    fault.not_applied()
}

fn without_code(error: &sqlx::Error) -> StoreFault {
    match error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => StoreFault::Corrupt,
        _ => StoreFault::Unreachable,
    }
}

/// Whether the tables or functions are not there (any more).
pub(super) fn no_schema(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("42P01" | "42883"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(std::borrow::Cow::into_owned)
}
