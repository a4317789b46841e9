//! A PostgreSQL that is down, killed, locked, read-only, or fails at the commit.

use std::time::{Duration, Instant};

use futures::future::join_all;
use onceward::idempotency::{Expect, Lease};
use onceward::store::{Postgres, Store, StoreFault, Swap};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::{HOUR, TIMEOUT, at, claim, done, eventually, key, refused, success};
use crate::support::postgres::{Database, PostgresServer};
use crate::support::relay::Relay;

/// How long a call may take where a test waits for it to end.
const SHORT: Duration = Duration::from_millis(400);

async fn open(database: &Database, timeout: Duration) -> Postgres {
    let store = Postgres::open(&database.url(), timeout).await.expect("the address is good");
    eventually("the tables are made", async || store.ping().await.ok()).await;
    store
}

/// A database that is down at the start is no fault: calls fail at once, with nothing written, until it is there.
#[tokio::test]
async fn a_server_that_is_down_may_come_later() {
    let mut server = PostgresServer::stopped();
    let store = Postgres::open(&server.url("postgres"), TIMEOUT).await.expect("no fault");
    for _ in 0..20 {
        let started = Instant::now();
        let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("it is down");
        assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Unreachable, false), "{error}");
        assert!(started.elapsed() < TIMEOUT / 2, "{:?}", started.elapsed());
    }
    server.restart();
    eventually("it is there", async || store.ping().await.ok()).await;
    done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
}

/// Scenario 28: killed in the middle of many writes. What was acknowledged is there; what was not is found by its owner or was
/// never written: either way one claim follows, and nobody else's.
#[tokio::test]
async fn a_killed_server_leaves_one_claim_a_key() {
    let mut server = PostgresServer::start();
    let store = Postgres::open(&server.url("postgres"), Duration::from_secs(2)).await.expect("the address is good");
    eventually("the tables are made", async || store.ping().await.ok()).await;
    for round in 0..3 {
        let writer = |task: usize| {
            let store = &store;
            async move {
                let mut told = Vec::new();
                for call in 0.. {
                    let owner = format!("{round}.{task}.{call}");
                    let swap = store.swap(&key(&owner), Expect::Absent, &claim(&owner, HOUR)).await;
                    let failed = swap.is_err();
                    told.push((owner, swap));
                    if failed {
                        break;
                    }
                }
                told
            }
        };
        let kill = async {
            eventually("writes are under way", async || {
                let name = key(&format!("{round}.0.50"));
                store.peek(&name).await.is_ok_and(|seen| seen.current.is_some()).then_some(())
            })
            .await;
            server.kill();
        };
        let (told, ()) = tokio::join!(join_all((0..20).map(writer)), kill);
        server.restart();
        eventually("it is back", async || store.ping().await.ok()).await;
        let (mut found, mut lost) = (0, 0);
        for (owner, swap) in told.into_iter().flatten() {
            let name = key(&owner);
            match swap {
                Ok(swap) => assert_eq!(store.peek(&name).await.expect("an answer").current, Some(done(swap))),
                Err(error) => match store.swap(&name, Expect::Absent, &claim(&owner, HOUR)).await.expect("an answer") {
                    Swap::Done(_) => lost += 1,
                    Swap::Refused(seen) => {
                        assert!(error.may_be_applied(), "{error}, but it was written");
                        assert_eq!(seen.current.map(|record| record.owner.0), Some(owner));
                        found += 1;
                    }
                },
            }
        }
        assert!(found + lost >= 20, "every writer was cut off");
    }
}

/// Scenario 28: the server has committed, and its reply is lost: the fault says so, and the owner finds the claim.
#[tokio::test]
async fn a_lost_reply_is_in_doubt() {
    let server = PostgresServer::start();
    let relay = Relay::to(server.port()).await;
    let url = server.url("postgres").replace(&server.port().to_string(), &relay.port().to_string());
    let store = Postgres::open(&url, TIMEOUT).await.expect("the address is good");
    eventually("the tables are made", async || store.ping().await.ok()).await;
    relay.lose_a_reply("[\"k\"]", 0);
    let error = store.swap(&key("k"), Expect::Absent, &claim("mine", HOUR)).await.expect_err("no reply came");
    assert!(relay.lost());
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Unreachable, true), "{error}");
    let again = store.swap(&key("k"), Expect::Absent, &claim("mine", HOUR)).await.expect("an answer");
    let found = refused(again).expect("the own claim");
    assert_eq!(found.owner.0, "mine");
    done(store.swap(&key("k"), at(&found, Lease::Any), &success("mine", b"x")).await.expect("an answer"));
}

/// The row comes before the commit: a write whose commit fails is not told as done.
#[tokio::test]
async fn a_commit_that_fails_is_no_success() {
    let database = Database::new();
    let store = open(&database, TIMEOUT).await;
    on_commit(&database, "RAISE EXCEPTION 'the commit fails'");
    let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("not written");
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Refused, false), "{error}");
    database.sql("DROP TRIGGER at_commit ON idempotency_records");
    done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
}

/// Scenario 29: what the server undoes to solve a conflict is tried again, until the deadline.
#[tokio::test]
async fn a_conflict_is_tried_again() {
    let database = Database::new();
    let store = open(&database, SHORT * 3).await;
    database.sql("CREATE SEQUENCE tries");
    for (state, tries) in [("40001", 3), ("40P01", 6)] {
        let raise = format!("IF nextval('tries') < {tries} THEN RAISE EXCEPTION USING ERRCODE = '{state}'; END IF");
        on_commit(&database, &raise);
        done(store.swap(&key(state), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
        assert_eq!(database.sql("SELECT last_value FROM tries"), tries.to_string());
        database.sql("DROP TRIGGER at_commit ON idempotency_records");
    }
    on_commit(&database, "RAISE EXCEPTION USING ERRCODE = '40001'");
    let started = Instant::now();
    let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("never solved");
    assert_eq!((error.kind, started.elapsed() < SHORT * 9), (StoreFault::Timeout, true), "{error}");
}

fn on_commit(database: &Database, statement: &str) {
    database.sql(&format!(
        "CREATE OR REPLACE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON idempotency_records DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION at_commit()"
    ));
}

/// Scenario 30: a table that someone else holds costs each call its deadline and leaves no doubt; callers without a connection
/// wait no longer than that. When it is let go, all goes on by itself.
#[tokio::test]
async fn a_locked_table_costs_a_deadline() {
    let database = Database::new();
    let store = open(&database, SHORT).await;
    let first = done(store.swap(&key("before"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let options: PgConnectOptions = database.url().parse().expect("an address");
    let mut backup = options.connect().await.expect("connected");
    let mut held = backup.begin().await.expect("begun");
    sqlx::query("LOCK TABLE idempotency_records IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.expect("held");

    let names = (0..60).map(|at| key(&at.to_string())).collect::<Vec<_>>();
    let draft = claim("a", HOUR);
    let calls = names.iter().map(|name| async {
        let started = Instant::now();
        (store.swap(name, Expect::Absent, &draft).await.expect_err("it is held"), started.elapsed())
    });
    let mut certain = 0;
    for (error, took) in join_all(calls).await {
        // A call that had its place late may not even be connected in time.
        let unconnected = error.kind == StoreFault::Unreachable && !error.may_be_applied();
        assert!(error.kind == StoreFault::Timeout || unconnected, "{error}");
        assert!(took < SHORT * 3, "{took:?}");
        certain += usize::from(!error.may_be_applied());
    }
    assert!(certain >= 44, "{certain}: those that never had a connection wrote nothing");
    assert_eq!(store.peek(&key("before")).await.expect_err("it is held").kind, StoreFault::Timeout);
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'onceward'";
    let sessions: usize = database.sql(sessions).parse().expect("a number");
    assert!(sessions <= 32, "{sessions} sessions");

    held.rollback().await.expect("let go");
    eventually("calls go on", async || store.peek(&key("before")).await.ok().filter(|seen| seen.current.is_some()))
        .await;
    assert_eq!(store.peek(&key("before")).await.expect("an answer").current, Some(first));
    for name in &names {
        let found = eventually("an answer", async || store.swap(name, Expect::Absent, &draft).await.ok()).await;
        assert!(matches!(found, Swap::Done(_)), "{found:?}: what was given up was not written later");
    }
}

/// A server that became read-only, as a demoted primary is: reads go on, writes and readiness do not, until it is one again.
#[tokio::test]
async fn a_read_only_server_fails_the_ping() {
    let database = Database::new();
    let store = open(&database, TIMEOUT).await;
    done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    let set = |value: &str| {
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}"));
        database.disconnect_all();
    };
    set("on");
    let error = eventually("it is refused", async || {
        store.ping().await.err().filter(|error| error.kind == StoreFault::Refused)
    })
    .await;
    assert!(!error.may_be_applied(), "{error}");
    let claimed = store.swap(&key("new"), Expect::Absent, &claim("b", HOUR)).await.expect_err("read-only");
    assert_eq!((claimed.kind, claimed.may_be_applied()), (StoreFault::Refused, false), "{claimed}");
    let known = store.swap(&key("k"), Expect::Absent, &claim("b", HOUR)).await.expect("a duplicate is told");
    assert!(refused(known).is_some());
    // The session that sets it back must be able to write.
    let name = database.sql("SELECT current_database()");
    database.sql(&format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"));
    eventually("it writes again", async || store.ping().await.ok()).await;
}

/// Connections that the server ended cost at most the calls that were on them: one fault, and the next call has a new one.
#[tokio::test]
async fn ended_connections_cost_one_call() {
    let database = Database::new();
    let store = open(&database, TIMEOUT).await;
    let names = (0..40).map(|at| key(&at.to_string())).collect::<Vec<_>>();
    let draft = claim("a", HOUR);
    join_all(names.iter().map(|name| store.swap(name, Expect::Absent, &draft))).await;
    assert!(database.disconnect_all() > 1, "several connections");
    let mut faults = 0;
    for name in &names {
        match store.peek(name).await {
            Ok(seen) => assert!(seen.current.is_some()),
            Err(error) => {
                assert_eq!(error.kind, StoreFault::Unreachable, "{error}");
                faults += 1;
            }
        }
    }
    assert!(faults <= 1, "{faults} faults");
}

/// Tables that an operator dropped are made again, without a restart.
#[tokio::test]
async fn dropped_tables_are_made_again() {
    let database = Database::new();
    let store = open(&database, TIMEOUT).await;
    done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    database.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    eventually("they are back", async || store.ping().await.ok()).await;
    eventually("claimed anew", async || store.swap(&key("k"), Expect::Absent, &claim("b", HOUR)).await.ok()).await;
}
