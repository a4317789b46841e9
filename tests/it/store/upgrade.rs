//! A file that an earlier version wrote.

use std::path::PathBuf;

use onceward::event::{ScopeKey, StoredBody};
use onceward::idempotency::record::{FailureClass, Status, UnknownReason};
use onceward::idempotency::{Expect, Lease, Record, State};
use onceward::store::{Filter, Meta, Sqlite, Store, StoreFault};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;

use super::{HOUR, TIMEOUT, at, claim, done, fingerprint, key, refused, success};

const SCHEMA_1: &str = include_str!("../../fixtures/stores/sqlite-schema-1.sql");

async fn written_by_version_1() -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("records.db");
    let mut file = connect(&path).await;
    sqlx::raw_sql(SCHEMA_1).execute(&mut file).await.expect("the fixture");
    file.close().await.expect("closed");
    (directory, path)
}

async fn connect(path: &PathBuf) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.expect("the file opens")
}

async fn peek(store: &Sqlite, key: &ScopeKey) -> Record {
    store.peek(key).await.expect("an answer").current.expect("the record")
}

fn unknown() -> ScopeKey {
    ScopeKey { parts: vec!["un".into(), "known\0".into()], ..key("") }
}

/// Every record is found again as it was, by every way of asking, and the file takes what the new version writes.
#[tokio::test]
async fn every_record_survives_the_upgrade() {
    let (_directory, path) = written_by_version_1().await;
    let store = Sqlite::open(&path, TIMEOUT).await.expect("it is brought up to date");
    let offer = Meta { epoch: "other".into(), digest_key: [9; 32] };
    let found = store.meta(offer).await.expect("an answer");
    assert_eq!((found.meta.epoch.as_str(), found.meta.digest_key, found.made), ("epoch-1", [5; 32], false));

    let running = peek(&store, &key("running")).await;
    assert_eq!(
        (&running.state, running.fence, running.owner.0.as_str()),
        (&State::Processing, 1_780_000_000_000_001, "running")
    );
    assert_eq!((&running.fingerprint, running.route.as_str(), running.history.len()), (&fingerprint(7), "", 0));
    let State::Succeeded { response } = peek(&store, &key("succeeded")).await.state else { unreachable!("a success") };
    assert_eq!((response.status, response.headers.len()), (201, 2));
    assert_eq!(response.body, StoredBody::Full(b"{\"paid\":\0true}".to_vec().into()));
    let failed = peek(&store, &key("failed")).await;
    assert!(matches!(failed.state, State::Failed { class: FailureClass::Transient, response: Some(_) }), "{failed:?}");
    assert_eq!(
        (failed.error.as_deref(), failed.attempt, failed.ambiguous),
        (Some("the upstream answered 503"), 2, true)
    );
    let unsent = peek(&store, &key("unsent")).await;
    assert_eq!(unsent.state, State::Failed { class: FailureClass::Unsent, response: None });
    let unknown = peek(&store, &unknown()).await;
    assert_eq!((unknown.state, unknown.released), (State::Unknown { reason: UnknownReason::LeaseOver }, true));

    let statuses = vec![Status::Processing, Status::Succeeded, Status::Failed, Status::Unknown];
    let filter = Filter { statuses, route: None, since: None, limit: 10 };
    assert_eq!(store.list("acme", &filter).await.expect("a listing").entries.len(), 5);
    assert_eq!(store.find("acme", "pay", "running").await.expect("an answer")[0].record, running);

    done(store.swap(&key("running"), at(&running, Lease::Any), &success("running", b"x")).await.expect("an answer"));
    done(store.swap(&key("new"), Expect::Absent, &claim("n", HOUR)).await.expect("an answer"));
    let again = store.swap(&key("succeeded"), Expect::Absent, &claim("n", HOUR)).await.expect("an answer");
    assert!(refused(again).is_some());
    drop(store);
    // Once is enough.
    let store = Sqlite::open(&path, TIMEOUT).await.expect("it is up to date");
    assert_eq!(peek(&store, &key("new")).await.route, "stripe");
}

/// An upgraded file has the tables of a new one: columns, types and indexes.
#[tokio::test]
async fn an_upgraded_file_is_like_a_new_one() {
    let (directory, old) = written_by_version_1().await;
    let new = directory.path().join("new.db");
    let mut shapes = Vec::new();
    for path in [&old, &new] {
        drop(Sqlite::open(path, TIMEOUT).await.expect("it opens"));
        let mut file = connect(path).await;
        let columns = "SELECT m.type || ' ' || m.name || ' ' || coalesce(c.name || ' ' || c.type || c.\"notnull\", '') \
             FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) c ORDER BY 1";
        shapes.push(sqlx::query_scalar::<_, String>(columns).fetch_all(&mut file).await.expect("its tables"));
    }
    assert!(shapes[0].len() > 30, "{shapes:?}");
    assert_eq!(shapes[0], shapes[1]);
}

/// Who only looks changes nothing, and says what to do.
#[tokio::test]
async fn looking_into_an_old_file_says_what_to_do() {
    let (_directory, path) = written_by_version_1().await;
    let error = Sqlite::look(&path, TIMEOUT).await.err().expect("refused").to_string();
    assert!(error.contains("an earlier version wrote it; start `onceward serve`"), "{error}");
    drop(Sqlite::open(&path, TIMEOUT).await.expect("it is brought up to date"));
    let reader = Sqlite::look(&path, TIMEOUT).await.expect("it opens");
    peek(&reader, &key("running")).await;
}

/// The checksum covers the new columns too: a value that appears, goes, or moves to another column is told.
#[tokio::test]
async fn a_change_in_a_new_column_is_told() {
    let (_directory, path) = written_by_version_1().await;
    let store = Sqlite::open(&path, TIMEOUT).await.expect("it is brought up to date");
    for (at, change) in [
        "route = 'other'",
        "route = NULL",
        "request = x'00'",
        "route = NULL, alias_of = route",
        "history = '[]'",
        "owner = 'another'",
    ]
    .into_iter()
    .enumerate()
    {
        let name = at.to_string();
        let record = done(store.swap(&key(&name), Expect::Absent, &claim(&name, HOUR)).await.expect("an answer"));
        assert_eq!(peek(&store, &key(&name)).await, record);
        let mut file = connect(&path).await;
        let change = format!("UPDATE idempotency_records SET {change} WHERE key = '[\"{name}\"]'");
        let changed = sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut file).await.expect("changed");
        assert_eq!(changed.rows_affected(), 1);
        assert_eq!(store.peek(&key(&name)).await.expect_err("it was changed").kind, StoreFault::Corrupt);
    }
}
