//! Redis behind Sentinels, and in a cluster: masters that change, slots that move, nodes that die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::idempotency::record::Status;
use onceward::idempotency::{Expect, Lease};
use onceward::store::{Filter, Redis, Store, StoreError, StoreFault, Swap};

use super::{HOUR, TIMEOUT, at, claim, done, eventually, heartbeat, key, success};
use crate::support::redis::RedisServer;
use crate::support::redis_groups::{Cluster, Watched};

fn connect(url: &str, timeout: Duration) -> Redis {
    Redis::new(url, timeout).expect("the address is good")
}

/// The owner of a claim that was made, whoever's reply was lost.
async fn claim_through(store: &Redis, name: &str) -> Result<(), StoreError> {
    match store.swap(&key(name), Expect::Absent, &claim(name, HOUR)).await? {
        Swap::Done(_) => Ok(()),
        // An earlier write of this claim whose reply was lost.
        Swap::Refused(seen) => {
            assert_eq!(seen.current.map(|record| record.owner.0).as_deref(), Some(name));
            Ok(())
        }
    }
}

/// Scenarios 17, 18, 25: through three failovers under load every claim is made in the end, each call ends within its deadline,
/// and what was finished and replicated stays finished.
#[tokio::test]
async fn claims_go_on_through_failovers() {
    let watched = Arc::new(Watched::start());
    let store = connect(&watched.url(), Duration::from_secs(1));
    let first = done(store.swap(&key("done"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    done(store.swap(&key("done"), at(&first, Lease::Any), &success("a", b"{}")).await.expect("an answer"));
    for round in 0..3 {
        let before = watched.master();
        // What the replica does not have yet, a failover loses.
        eventually("the replica has it", async || {
            let has = |server: &RedisServer| server.cli(&["EXISTS", "onceward:rec:acme:pay:done"]) == "1";
            watched.servers.iter().all(has).then_some(())
        })
        .await;
        let failing = std::thread::spawn({
            let watched = Arc::clone(&watched);
            move || watched.fail_over()
        });
        let mut turn = 0;
        // At least so many, and until the failover is through.
        while turn < 50 || !failing.is_finished() {
            let name = format!("{round}.{turn}");
            eventually("the claim is made", async || {
                let started = Instant::now();
                let made = claim_through(&store, &name).await;
                assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
                made.ok()
            })
            .await;
            turn += 1;
        }
        failing.join().expect("the failover");
        assert_ne!(watched.master(), before);
        let seen = eventually("the store answers", async || store.peek(&key("done")).await.ok()).await;
        assert_eq!(seen.current.expect("the record").state.status(), Status::Succeeded);
        store.ping().await.expect("the new master takes writes");
    }
}

/// Scenario 18: a master that was demoted without its clients noticing refuses the write; the same call goes to the new master.
#[tokio::test]
async fn a_demoted_master_costs_no_claim() {
    let watched = Watched::start();
    let store = connect(&watched.url(), TIMEOUT);
    done(store.swap(&key("before"), Expect::Absent, &claim("a", HOUR)).await.expect("an answer"));
    watched.fail_over();
    // As a Sentinel does it when it gets to it.
    let (master, old) = (&watched.servers[watched.master()], &watched.servers[1 - watched.master()]);
    assert!(old.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).starts_with("OK"));
    // The old connection may also be cut by the failover, which is told as such; the next call has a new one then.
    if let Err(error) = claim_through(&store, "after").await {
        assert_eq!(error.kind, StoreFault::Unreachable);
        claim_through(&store, "after").await.expect("an answer");
    }
}

/// Scenario 25: without any Sentinel a call fails within its deadline, and connections are not tried in a storm; one is enough.
#[tokio::test]
async fn sentinels_that_are_gone_are_no_storm() {
    let mut watched = Watched::start();
    let store = connect(&watched.url(), Duration::from_millis(500));
    store.ping().await.expect("all is well");
    for sentinel in &mut watched.sentinels[..2] {
        sentinel.kill();
    }
    let alone = connect(&watched.url(), Duration::from_millis(500));
    eventually("the last Sentinel is asked", async || alone.ping().await.ok()).await;
    watched.sentinels[2].kill();
    let lost = connect(&watched.url(), Duration::from_millis(500));
    let started = Instant::now();
    for _ in 0..200 {
        let called = Instant::now();
        assert_eq!(lost.ping().await.expect_err("nobody knows the master").kind, StoreFault::Unreachable);
        assert!(called.elapsed() < Duration::from_secs(1));
    }
    assert!(started.elapsed() < Duration::from_secs(20));
    store.ping().await.expect("a connection that stands needs no Sentinel");
}

/// Scenario 24: claims and finishes go on while a slot's keys move to another node.
#[tokio::test]
async fn slots_move_under_the_claims() {
    let cluster = Cluster::start(&[]);
    let store = connect(&cluster.url(), TIMEOUT);
    let names: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let mut claims = Vec::new();
    for name in &names {
        claims.push(done(store.swap(&key(name), Expect::Absent, &claim(name, HOUR)).await.expect("an answer")));
    }
    // The slots of a few records of the first node, keys first, as redis-cli's reshard does it.
    let (from, to) = (cluster.id(0), cluster.id(1));
    let target = cluster.nodes[1].port().to_string();
    for record in cluster.nodes[0].cli(&["KEYS", "*onceward:rec:*"]).lines().take(8) {
        let slot = cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", record]);
        assert_eq!(cluster.nodes[1].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]), "OK");
        assert_eq!(cluster.nodes[0].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]), "OK");
        assert_eq!(cluster.nodes[0].cli(&["MIGRATE", "127.0.0.1", &target, record, "0", "5000"]), "OK");
        // Half moved: the key is at its new node, the slot is not.
        for (name, first) in names.iter().zip(&claims) {
            done(store.swap(&key(name), at(first, Lease::Any), &heartbeat(name, HOUR)).await.expect("an answer"));
        }
        for node in &cluster.nodes {
            assert_eq!(node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]), "OK");
        }
    }
    for (name, first) in names.iter().zip(&claims) {
        done(store.swap(&key(name), at(first, Lease::Any), &success(name, b"{}")).await.expect("an answer"));
    }
}

/// A node that dies takes its own slots along, no others, and comes back into use by itself.
#[tokio::test]
async fn a_dead_node_takes_only_its_own_slots() {
    let mut cluster = Cluster::start(&["--cluster-require-full-coverage", "no"]);
    let store = connect(&cluster.url(), Duration::from_secs(1));
    let names: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    for name in &names {
        done(store.swap(&key(name), Expect::Absent, &claim(name, HOUR)).await.expect("an answer"));
    }
    let gone = cluster.nodes[2].cli(&["DBSIZE"]).parse::<usize>().expect("a number");
    assert!(gone > 0 && gone < 30);
    cluster.nodes[2].kill();
    let mut answered = 0;
    eventually("the others answer", async || {
        answered = 0;
        for name in &names {
            let called = Instant::now();
            answered += usize::from(store.peek(&key(name)).await.is_ok());
            assert!(called.elapsed() < Duration::from_secs(2), "{:?}", called.elapsed());
        }
        (answered > 0).then_some(())
    })
    .await;
    assert!(answered < 30);
}

/// What a dead gateway left is listed, whichever nodes hold record and index; a key is found by what people read.
#[tokio::test]
async fn open_records_are_listed_across_the_shards() {
    let cluster = Cluster::start(&[]);
    let store = connect(&cluster.url(), TIMEOUT);
    for number in 0..20 {
        let name = format!("k{number}");
        let first = done(store.swap(&key(&name), Expect::Absent, &claim(&name, HOUR)).await.expect("an answer"));
        if number % 2 == 0 {
            done(store.swap(&key(&name), at(&first, Lease::Any), &success(&name, b"{}")).await.expect("an answer"));
        }
    }
    let filter = |statuses: &[Status]| Filter { statuses: statuses.to_vec(), route: None, since: None, limit: 100 };
    let open = store.list("acme", &filter(&[Status::Processing])).await.expect("an answer");
    assert_eq!((open.entries.len(), open.more), (10, false));
    let finished = store.list("acme", &filter(&[Status::Succeeded])).await.expect("an answer");
    assert_eq!((finished.entries.len(), finished.more), (10, false));
    let found = store.find("acme", "pay", "k7").await.expect("an answer");
    assert_eq!(found.into_iter().map(|entry| entry.key).collect::<Vec<_>>(), [key("k7")]);
    let facts = store.facts().await.expect("an answer");
    assert_eq!((facts.software, facts.eviction.as_deref()), ("redis", Some("noeviction")));
    assert_eq!(facts.instance.split(',').count(), 3);
}
