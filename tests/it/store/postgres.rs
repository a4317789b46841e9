//! What a database is to a gateway: its tables, its rows, its address.

use std::time::Duration;

use futures::future::join_all;
use onceward::event::ScopeKey;
use onceward::idempotency::record::Status;
use onceward::idempotency::{Draft, Expect, Lease, Ttl};
use onceward::store::{Filter, Meta, OpenError, Postgres, Role, Store, StoreFault, Swap};

use super::{HOUR, TIMEOUT, at, claim, done, eventually, key, success};
use crate::support::postgres::{Database, PostgresServer};

async fn open(url: &str) -> Postgres {
    Postgres::open(url, TIMEOUT).await.expect("the address is good")
}

/// Scenario 29: many gateways find an empty database at once, and one event: the tables are made once, and one claims.
#[tokio::test]
async fn many_gateways_start_at_once() {
    let database = Database::new();
    let url = database.url();
    let stores = join_all((0..8).map(|_| open(&url))).await;
    let swaps = join_all(stores.iter().enumerate().flat_map(|(at, store)| {
        (0..7).map(move |task| async move {
            let owner = format!("{at}.{task}");
            store.swap(&key("k"), Expect::Absent, &claim(&owner, HOUR)).await.expect("an answer")
        })
    }))
    .await;
    assert_eq!(swaps.iter().filter(|swap| matches!(swap, Swap::Done(_))).count(), 1);
    let offer = |seed: u8| Meta { epoch: format!("{seed}"), digest_key: [seed; 32] };
    let metas = join_all(stores.iter().zip(1..).map(|(store, seed)| store.meta(offer(seed)))).await;
    assert_eq!(metas.iter().filter(|found| found.as_ref().is_ok_and(|found| found.made)).count(), 1);
    assert_eq!(database.sql("SELECT count(*) FROM idempotency_records"), "1");
}

#[tokio::test]
async fn records_survive_a_restart_of_the_server() {
    let mut server = PostgresServer::start();
    let store = open(&server.url("postgres")).await;
    let first = done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let before = store.facts().await.expect("an answer");
    assert_eq!((before.software, before.role, &before.eviction), ("postgresql", Role::Primary, &None));
    assert!(before.version.starts_with(|letter: char| letter.is_ascii_digit()), "{before:?}");
    server.restart();
    let seen = eventually("it is back", async || store.peek(&key("k")).await.ok()).await;
    assert_eq!(seen.current, Some(first));
    assert_ne!(store.facts().await.expect("an answer").instance, before.instance, "another instance");
}

#[tokio::test]
async fn tables_of_a_later_version_are_refused_clearly() {
    let database = Database::new();
    drop(open(&database.url()).await);
    database.sql("UPDATE idempotency_schema SET version = 7");
    let url = database.url().replace("onceward@", "onceward:canary@");
    let error = Postgres::open(&url, TIMEOUT).await.err().expect("refused");
    assert!(matches!(error, OpenError::Newer { found: 7, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1") && !error.to_string().contains("canary"), "{error}");
}

/// A parameter that would be ignored, and its value logged, is refused instead; neither is a password repeated.
#[tokio::test]
async fn an_address_that_is_no_use_is_refused_without_its_secrets() {
    for (address, told) in [
        ("postgres://u:canary@h/d?passwort=canary", "`passwort` is not one of its parameters: sslmode"),
        ("postgres://u:canary@h/d?sslmode=canaries", "ssl_mode"),
        ("postgres://u:canary@h:99999/d", "port"),
    ] {
        let error = Postgres::open(address, TIMEOUT).await.err().expect("refused").to_string();
        assert!(error.contains(told) && !error.contains("canary"), "{error}");
    }
}

/// Who looks into a database makes nothing in it.
#[tokio::test]
async fn looking_makes_no_tables() {
    let database = Database::new();
    let looker = Postgres::look(&database.url(), TIMEOUT).await.expect("the address is good");
    let error = looker.peek(&key("k")).await.expect_err("there are no tables");
    assert!(error.detail.contains("holds no records yet"), "{error}");
    assert_eq!(database.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "0");
    let store = open(&database.url()).await;
    let record = done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let seen = eventually("it finds them", async || looker.peek(&key("k")).await.ok()).await;
    assert_eq!(seen.current, Some(record));
}

/// Scenario 33: what cannot be read is a loud fault for calls, never "no record"; a listing goes on without it.
#[tokio::test]
async fn an_unreadable_row_is_told_and_never_replayed() {
    let database = Database::new();
    let store = open(&database.url()).await;
    for change in ["status = 'invented'", "headers = '['", "owner = 'a\\x'", "finished_at = NULL", "class = 'unsent'"] {
        let first = done(store.swap(&key(change), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
        done(store.swap(&key(change), at(&first, Lease::Any), &success("a", b"x")).await.expect("an answer"));
        database.sql(&format!(
            "UPDATE idempotency_records SET {change} WHERE key = $q$[\"{}\"]$q$",
            change.replace('\\', "\\\\")
        ));
        let peeked = store.peek(&key(change)).await.expect_err(change);
        let claimed = store.swap(&key(change), Expect::Absent, &claim("b", HOUR)).await.expect_err(change);
        assert_eq!((peeked.kind, claimed.kind), (StoreFault::Corrupt, StoreFault::Corrupt), "{change}");
        let found = store.find("acme", "pay", &key(change).readable_key()).await.expect_err(change);
        assert_eq!(found.kind, StoreFault::Corrupt, "{change}");
    }
    let good = done(store.swap(&key("good"), Expect::Absent, &success("a", b"x")).await.expect("an answer"));
    let filter = Filter { statuses: vec![Status::Succeeded], route: None, since: None, limit: 10 };
    let listed = store.list("acme", &filter).await.expect("a listing");
    assert_eq!(listed.entries.into_iter().map(|entry| entry.record).collect::<Vec<_>>(), [good]);
}

/// Scenario 35: what has expired is cleared away by itself, by several gateways side by side, and what lives is not.
#[tokio::test]
async fn expired_records_are_cleared_away() {
    let database = Database::new();
    let stores = join_all((0..3).map(|_| open_at(&database))).await;
    done(stores[0].swap(&key("living"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let brief = Draft { ttl: Ttl::Exactly(Duration::from_millis(1)), ..success("a", b"x") };
    let names = (0..1500).map(|at| key(&at.to_string())).collect::<Vec<ScopeKey>>();
    let writes = names.iter().zip(stores.iter().cycle()).map(|(name, store)| store.swap(name, Expect::Absent, &brief));
    for swap in join_all(writes).await {
        done(swap.expect("an answer"));
    }
    eventually("all but one are gone", async || {
        (database.sql("SELECT count(*) FROM idempotency_records") == "1").then_some(())
    })
    .await;
    assert!(stores[0].peek(&key("living")).await.expect("an answer").current.is_some());
}

async fn open_at(database: &Database) -> Postgres {
    open(&database.url()).await
}

/// A key may be as long as the contract allows, and of letters that need an escape each: the index holds it.
#[tokio::test]
async fn the_longest_keys_fit() {
    let database = Database::new();
    let store = open(&database.url()).await;
    let mut seed = 1_u64;
    let part = (0..512).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(u8::try_from(seed >> 59).unwrap_or_default())
    });
    let name = ScopeKey { namespace: "n".repeat(64), ..key(&part.collect::<String>()) };
    let record = done(store.swap(&name, Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    assert_eq!(store.peek(&name).await.expect("an answer").current, Some(record));
}

/// The password and the server's certificate are checked as the address says; a wrong one is a fault that names neither.
#[tokio::test]
async fn passwords_and_certificates_work() {
    let fixture = |name: &str| format!("{}/tests/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut server = PostgresServer::start();
    let directory = server.directory().to_owned();
    let place = directory.display();
    server.sql("postgres", "CREATE ROLE gate LOGIN PASSWORD 'pass/word?'");
    server.sql("postgres", "CREATE DATABASE store OWNER gate");
    for (from, to) in [("server.pem", "server.pem"), ("server.key.pem", "server.key")] {
        let text = std::fs::read_to_string(fixture(from)).expect("the fixture");
        // Written by the server itself, so that it owns the file; the last line break is the statement's.
        let text = text.trim_end().replace('\n', "\\n");
        server.sql("postgres", &format!("COPY (SELECT unnest(string_to_array(E'{text}', E'\\n'))) TO '{place}/{to}'"));
        server.sql("postgres", &format!("COPY (SELECT 1) TO PROGRAM 'chmod 600 {place}/{to}'"));
    }
    let access = "local all all trust\\nhost all onceward all trust\\nhostssl all gate all scram-sha-256";
    server.sql("postgres", &format!("COPY (SELECT unnest(string_to_array(E'{access}', E'\\n'))) TO '{place}/access'"));
    for setting in [
        "ssl = on".to_owned(),
        format!("ssl_cert_file = '{place}/server.pem'"),
        format!("ssl_key_file = '{place}/server.key'"),
        format!("hba_file = '{place}/access'"),
    ] {
        server.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
    }
    server.restart();
    let url = |password: &str, mode: &str, root: &str| {
        let root = fixture(root);
        format!("postgres://gate:{password}@localhost:{}/store?sslmode={mode}&sslrootcert={root}", server.port())
    };
    for mode in ["require", "verify-ca", "verify-full"] {
        open(&url("pass%2Fword%3F", mode, "ca.pem")).await.ping().await.expect("let in");
    }
    for (password, mode, root, kind) in [
        ("wrong", "verify-full", "ca.pem", StoreFault::Refused),
        ("pass%2Fword%3F", "verify-full", "client.pem", StoreFault::Unreachable),
        ("pass%2Fword%3F", "disable", "ca.pem", StoreFault::Refused),
    ] {
        let error = open(&url(password, mode, root)).await.ping().await.expect_err("not let in");
        assert_eq!((error.kind, error.may_be_applied()), (kind, false), "{error}");
        assert!(!error.to_string().contains("pass%2F") && !error.to_string().contains("pass/word"), "{error}");
    }
}
