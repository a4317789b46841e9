//! What Redis does to its callers: restarts, freezes, fills up, is demoted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onceward::idempotency::{Draft, Expect, Lease, Record, Ttl};
use onceward::store::{Backend, Meta, OpenError, Redis, Store, StoreFault, Stores};

use super::{HOUR, TIMEOUT, at, claim, done, eventually, heartbeat, key, refused, success};
use crate::support::redis::RedisServer;

fn connect(server: &RedisServer, timeout: Duration) -> Redis {
    Redis::new(&server.url(), timeout).expect("the address is good")
}

async fn claimed(store: &Redis, name: &str) -> Record {
    done(store.swap(&key(name), Expect::Absent, &claim(name, HOUR)).await.expect("an answer"))
}

async fn owner_of(store: &Redis, name: &str) -> Option<String> {
    store.peek(&key(name)).await.expect("an answer").current.map(|record| record.owner.0)
}

/// Scenario 16: scripts that the server forgot are sent again, unseen by the caller, also by many at once.
#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    for round in 0..5 {
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        let names = (0..20).map(|task| format!("{round}.{task}")).collect::<Vec<_>>();
        let claims = futures::future::join_all(names.iter().map(|name| claimed(&store, name))).await;
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
        for (name, first) in names.iter().zip(claims) {
            let end = success(name, b"{}");
            done(store.swap(&key(name), at(&first, Lease::Any), &end).await.expect("an answer"));
            assert_eq!(owner_of(&store, name).await.as_ref(), Some(name));
        }
    }
}

/// Scenario 13: a server that comes up later is used then. Until it does, nothing can have been written.
#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_used_later() {
    let mut server = RedisServer::stopped();
    let stores = Stores::open(Backend::Redis(server.url()), TIMEOUT).await.expect("being down is no fault here");
    let store = stores.handle();
    for _ in 0..20 {
        let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("nobody listens");
        assert_eq!(error.kind, StoreFault::Unreachable);
        assert!(!error.may_be_applied());
        assert_eq!(store.ping().await.expect_err("nobody listens").kind, StoreFault::Unreachable);
    }
    server.restart();
    eventually("the server is used", async || store.ping().await.ok()).await;
    done(store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
}

/// Scenarios 14 and 15: killed under load, calls fail as unreachable; restarted empty, the same handle goes on, and meta is anew.
#[tokio::test]
async fn a_killed_server_is_unreachable_until_it_is_back() {
    let mut server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    let meta = |epoch: &str| Meta { epoch: epoch.to_owned(), digest_key: [1; 32] };
    assert_eq!(store.meta(meta("first")).await.expect("an answer").meta.epoch, "first");
    claimed(&store, "before").await;
    let answered = AtomicUsize::new(0);
    let (store, answered) = (&store, &answered);
    let callers = futures::future::join_all((0..20).map(|task| async move {
        for call in 0..1_000_000 {
            let name = format!("{task}.{call}");
            match store.swap(&key(&name), Expect::Absent, &claim(&name, HOUR)).await {
                Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                Err(error) => return error.kind,
            };
        }
        unreachable!("the server was not killed")
    }));
    let killer = async {
        eventually("traffic", async || (answered.load(Ordering::Relaxed) > 200).then_some(())).await;
        server.kill();
    };
    let (kinds, ()) = tokio::join!(callers, killer);
    assert!(kinds.iter().all(|kind| *kind == StoreFault::Unreachable), "{kinds:?}");
    server.restart();
    eventually("the server is back", async || store.ping().await.ok()).await;
    assert_eq!(owner_of(store, "before").await, None);
    assert_eq!(store.meta(meta("second")).await.expect("an answer").meta.epoch, "second");
}

/// A connection that went away while idle costs no call.
#[tokio::test]
async fn an_idle_connection_that_was_closed_costs_nobody_a_call() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    for name in ["a", "b", "c"] {
        claimed(&store, name).await;
        assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "normal"]), "1");
        // The end of the stream is seen as soon as the runtime looks at its sockets.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Scenarios 21 and 23: a frozen server costs each call its deadline and no more, and late replies reach nobody else.
#[tokio::test]
async fn a_frozen_server_costs_a_deadline_and_mixes_no_replies() {
    let server = RedisServer::start();
    let timeout = Duration::from_millis(300);
    let (store, patient) = (connect(&server, timeout), connect(&server, TIMEOUT));
    let names = (0..50).map(|at| at.to_string()).collect::<Vec<_>>();
    for name in &names {
        claimed(&patient, name).await;
    }
    store.ping().await.expect("it is well");
    for round in 0..3 {
        server.pause();
        let started = Instant::now();
        let calls = futures::future::join_all(names.iter().map(|name| async { store.peek(&key(name)).await })).await;
        assert!(started.elapsed() < timeout * 4, "{:?}", started.elapsed());
        let kinds = calls.into_iter().map(|call| call.expect_err("frozen").kind).collect::<Vec<_>>();
        assert!(kinds.iter().all(|kind| *kind == StoreFault::Timeout), "{kinds:?}");
        // The next ones find no connection that answers: they end in time too, and did not write.
        let error = store.swap(&key("new"), Expect::Absent, &claim("x", HOUR)).await.expect_err("frozen");
        assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Unreachable, false));
        server.resume();
        eventually("the server is back", async || store.ping().await.ok()).await;
        let owners = futures::future::join_all(names.iter().rev().map(|name| owner_of(&store, name))).await;
        assert!(owners.iter().flatten().eq(names.iter().rev()), "round {round}: a reply went to another call");
    }
}

/// Scenario 22: a claim whose reply came too late stands, and its owner finds it by its token.
#[tokio::test]
async fn a_claim_whose_reply_was_late_is_found_by_its_owner() {
    let server = RedisServer::start();
    let store = connect(&server, Duration::from_millis(200));
    claimed(&store, "warm").await;
    server.pause();
    let draft = claim("mine", HOUR);
    let error = store.swap(&key("k"), Expect::Absent, &draft).await.expect_err("frozen");
    assert_eq!(error.kind, StoreFault::Timeout);
    assert!(error.may_be_applied());
    server.resume();
    let found = eventually("an answer", async || store.swap(&key("k"), Expect::Absent, &draft).await.ok()).await;
    assert_eq!(refused(found).expect("the claim").owner, draft.owner);
}

/// Scenario 19: a full server begins nothing new, and still replays, renews and ends.
#[tokio::test]
async fn a_full_server_still_ends_what_it_began() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server, TIMEOUT);
    let (first, second) = (claimed(&store, "first").await, claimed(&store, "second").await);
    done(store.swap(&key("second"), at(&second, Lease::Any), &success("second", b"kept")).await.expect("an answer"));
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");

    let error = store.swap(&key("new"), Expect::Absent, &claim("x", HOUR)).await.expect_err("it is full");
    assert_eq!(error.kind, StoreFault::Refused, "{error}");
    assert!(!error.may_be_applied());
    assert_eq!(store.ping().await.expect_err("it is full").kind, StoreFault::Refused);
    assert_eq!(server.cli(&["EXISTS", "onceward:rec:acme:pay:new"]), "0");

    let replay = store.swap(&key("second"), Expect::Absent, &claim("x", HOUR)).await.expect("a duplicate");
    assert!(refused(replay).is_some_and(|record| record.finished_at.is_some()));
    assert_eq!(owner_of(&store, "first").await.as_deref(), Some("first"));
    done(store.swap(&key("first"), at(&first, Lease::Live), &heartbeat("first", HOUR)).await.expect("a heartbeat"));
    done(store.swap(&key("first"), at(&first, Lease::Any), &success("first", b"done")).await.expect("a finalise"));

    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    claimed(&store, "new").await;
}

/// Scenario 18: a master that was demoted keeps the connection; it is given up all the same, since the address may lead elsewhere now.
#[tokio::test]
async fn a_demoted_master_loses_the_connection() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    claimed(&store, "before").await;
    let ours = || {
        let clients = server.cli(&["CLIENT", "LIST"]);
        let ours = clients.lines().filter(|line| !line.contains("cmd=client"));
        ours.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let before = ours();
    assert_eq!(before.len(), 1);
    assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
    let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("it is a replica");
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Refused, false), "{error}");
    let error = eventually("another connection", async || {
        let error = store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.expect_err("it is a replica");
        (error.kind == StoreFault::Refused && !ours().is_empty() && ours() != before).then_some(error)
    })
    .await;
    assert!(!error.may_be_applied());
    assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    eventually("the new master is used", async || store.swap(&key("k"), Expect::Absent, &claim("a", HOUR)).await.ok())
        .await;
}

/// Scenario 20: without the replicas that it wants, the server refuses, and nothing is in doubt.
#[tokio::test]
async fn missing_replicas_refuse_the_write() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    let first = claimed(&store, "first").await;
    assert_eq!(server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    let new = store.swap(&key("new"), Expect::Absent, &claim("x", HOUR)).await.expect_err("no replicas");
    let end = store.swap(&key("first"), at(&first, Lease::Any), &success("first", b"")).await.expect_err("no replicas");
    for error in [new, end] {
        assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Refused, false), "{error}");
    }
}

/// Scenario 25: a server that takes connections and gives nothing is not flooded with attempts.
#[tokio::test]
async fn attempts_to_connect_are_bounded() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}/", listener.local_addr().expect("its address"));
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let server = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            drop(socket);
        }
    });
    let store = Redis::new(&url, Duration::from_millis(200)).expect("the address is good");
    let until = Instant::now() + Duration::from_secs(2);
    let mut calls = 0;
    while Instant::now() < until {
        let error = store.ping().await.expect_err("nobody answers");
        assert_eq!(error.kind, StoreFault::Unreachable);
        calls += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let attempts = attempts.load(Ordering::Relaxed);
    server.abort();
    assert!((3..=20).contains(&attempts), "{attempts} attempts for {calls} calls");
}

/// Contract §6: every record has an end from its first write, and only the store's own record has none.
#[tokio::test]
async fn every_key_but_meta_has_an_end() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    store.meta(Meta { epoch: "e".into(), digest_key: [0; 32] }).await.expect("an answer");
    store.ping().await.expect("it is well");
    for name in ["running", "ended", "renewed", "brief"] {
        let first = claimed(&store, name).await;
        let draft = match name {
            "ended" => success(name, b"{}"),
            "renewed" => heartbeat(name, HOUR),
            "brief" => Draft { ttl: Ttl::Exactly(Duration::from_micros(1)), ..success(name, b"{}") },
            _ => continue,
        };
        done(store.swap(&key(name), at(&first, Lease::Any), &draft).await.expect("an answer"));
    }
    let keys = server.cli(&["KEYS", "*"]);
    assert!(keys.lines().count() >= 4, "{keys}");
    for key in keys.lines() {
        let ttl = server.cli(&["PTTL", key]).parse::<i64>().expect("a number");
        // -2: gone between the two questions, as a record that ends at once is.
        assert!(if key == "onceward:meta" { ttl == -1 } else { ttl > 0 || ttl == -2 }, "{key} {ttl}");
    }
}

/// Contract §6: an operator reads a record with `redis-cli HGETALL`, under the documented names.
#[tokio::test]
async fn a_record_is_readable_by_hand() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    let first = claimed(&store, "order-1").await;
    done(
        store.swap(&key("order-1"), at(&first, Lease::Any), &success("me", b"{\"ok\":true}")).await.expect("an answer"),
    );
    let field = |name: &str| server.cli(&["HGET", "onceward:rec:acme:pay:order-1", name]);
    let fingerprint = format!("k1:{}", "07".repeat(32));
    for (name, value) in [
        ("status", "succeeded"),
        ("fingerprint", fingerprint.as_str()),
        ("owner", "me"),
        ("fence", &first.fence.to_string()),
        ("attempt", "1"),
        ("started_at", &first.started_at.as_micros().to_string()),
        ("status_code", "201"),
        ("headers", r#"[["content-type","application/json"]]"#),
        ("body", r#"{"ok":true}"#),
        ("plugin", "json"),
        ("version", "1.0.0"),
    ] {
        assert_eq!(field(name), value, "{name}");
    }
    for name in ["finished_at", "lease_until", "expires_at"] {
        assert!(field(name).parse::<u64>().is_ok(), "{name}");
    }
}

/// What is no record is a loud fault for every call, and is left as it is: never "first seen".
#[tokio::test]
async fn garbage_is_never_taken_for_nothing() {
    let server = RedisServer::start();
    let store = connect(&server, TIMEOUT);
    let spoil = |name: &str, command: &[&str]| {
        let place = format!("onceward:rec:acme:pay:{name}");
        let args = [&command[..1], &[place.as_str()], &command[1..]].concat();
        server.cli(&args);
    };
    for name in ["fence", "status", "fingerprint", "headers", "expires_at", "owner"] {
        let first = claimed(&store, name).await;
        done(store.swap(&key(name), at(&first, Lease::Any), &success(name, b"")).await.expect("an answer"));
    }
    spoil("text", &["SET", "x"]);
    spoil("empty", &["HSET", "other", "1"]);
    spoil("fence", &["HSET", "fence", "many"]);
    spoil("status", &["HSET", "status", "finished"]);
    spoil("fingerprint", &["HSET", "fingerprint", "k1:07"]);
    spoil("headers", &["HSET", "headers", "[[\"a\"]]"]);
    spoil("expires_at", &["HDEL", "expires_at"]);
    spoil("owner", &["HDEL", "owner"]);
    for name in ["text", "empty", "fence", "status", "fingerprint", "headers", "expires_at", "owner"] {
        let peeked = store.peek(&key(name)).await.expect_err(name);
        let swapped = store.swap(&key(name), Expect::Absent, &claim("x", HOUR)).await.expect_err(name);
        for error in [peeked, swapped] {
            assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Corrupt, false), "{name}: {error}");
        }
    }
}

/// An address that cannot be used is told at the start, without its password.
#[tokio::test]
async fn a_bad_address_is_told_without_its_password() {
    for url in ["redis://:hunter2@", "http://:hunter2@host/", "redis://:hunter2@host:port/", ""] {
        match Stores::open(Backend::Redis(url.to_owned()), TIMEOUT).await {
            Err(error @ OpenError::Address(_)) => assert!(!error.to_string().contains("hunter2"), "{error}"),
            Err(error) => unreachable!("{error}"),
            Ok(_) => assert_eq!(url, "redis://:hunter2@", "taken for an address"),
        }
    }
}

/// A wrong password is told as such, and repeated nowhere.
#[tokio::test]
async fn a_wrong_password_is_unreachable() {
    let server = RedisServer::start();
    let url = format!("redis://:hunter2@127.0.0.1:{}/", server.port());
    server.cli(&["CONFIG", "SET", "requirepass", "other"]);
    let store = Redis::new(&url, TIMEOUT).expect("the address is good");
    let error = store.ping().await.expect_err("not let in");
    assert_eq!(error.kind, StoreFault::Unreachable);
    assert!(!error.may_be_applied() && !error.to_string().contains("hunter2"), "{error}");
}

/// TLS is spoken where the address asks for it: a server that does not speak it is unreachable, never used in the clear.
#[tokio::test]
async fn tls_is_never_left_out() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "rediss://");
    let store = Redis::new(&url, Duration::from_millis(500)).expect("the address is good");
    let error = store.ping().await.expect_err("it speaks no TLS");
    assert_eq!((error.kind, error.may_be_applied()), (StoreFault::Unreachable, false), "{error}");
    assert_eq!(server.cli(&["DBSIZE"]), "0");
}
