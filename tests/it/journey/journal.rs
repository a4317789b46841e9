//! The journal: what the store did not take is on disk before its sender is answered, and in the store once that is back.

use std::fs;

use super::rig::{deliver, event, is_replay, pay};
use super::sealed::{CANARY, KEY, found_in, telling, with_keys};
use crate::admin::rig::metrics;
use crate::support::client::Answer;
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer, later};

const FORWARD: &str = "store_down = \"forward\"\nlease = \"60s\"\nin_flight = { wait = \"0s\" }";

/// A gateway's directory over this Redis and upstream.
fn home(redis: &RedisServer, upstream: &Upstream, idempotency: &str, keys: &[&str]) -> Home {
    Home::new(&with_keys(&config(&redis.url(), upstream.address, idempotency), keys))
}

/// The journal's lines, of all processes of a directory.
fn lines(home: &Home) -> Vec<String> {
    let Ok(files) = fs::read_dir(home.path().join("state/journal")) else { return Vec::new() };
    let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Redelivers until the event is no longer in flight or refused.
async fn settled(gateway: &Gateway, body: &str) -> Answer {
    let last = std::sync::Mutex::new(None);
    eventually("the event is decided", || async {
        let answer = pay(gateway, body).await;
        let decided = answer.status != 503 && answer.idempotency() != "in-flight";
        *last.lock().unwrap() = Some(answer);
        decided
    })
    .await;
    last.into_inner().unwrap().unwrap()
}

/// Scenarios 4 and 14: the store stalls after the upstream was reached, the gateway answers and is killed, both come back: the
/// redelivery is a replay. With keys it is whole; without, the answer's body was never written to this disk.
#[tokio::test]
async fn s14_an_unwritten_outcome_survives_the_process() {
    for keys in [&[KEY][..], &[]] {
        let redis = RedisServer::start();
        let slow = Upstream::start(|_, at| {
            later(600, answer(201, &[("x-card", CANARY)], format!("call {at} of {CANARY}").as_bytes()))
        });
        let upstream = slow.await;
        let home = home(&redis, &upstream, "lease = \"60s\"\nin_flight = { wait = \"0s\" }", keys);
        let gateway = home.start();
        let delivery = deliver(&gateway, &event("evt_1", 1));
        upstream.arrived(1).await;
        redis.pause();
        let first = delivery.await.unwrap().unwrap();
        assert_eq!((first.status, first.idempotency()), (201, "first"), "{first:?}");
        assert_eq!(lines(&home).len(), 1, "on the disk before its sender was answered");
        assert_eq!(found_in(home.path(), CANARY), Vec::<String>::new(), "neither in the journal nor in the log");
        gateway.kill();
        redis.resume();
        let gateway = home.start();
        let again = settled(&gateway, &event("evt_1", 1)).await;
        assert_eq!((again.status, again.idempotency()), (201, "replay"), "{again:?}");
        if keys.is_empty() {
            assert_eq!((again.body.len(), again.header("idempotency-replay-body")), (0, Some("omitted")), "{again:?}");
        } else {
            is_replay(&again, &first);
        }
        assert_eq!(upstream.count(), 1, "no second forward");
        eventually("the journal is empty", || async { lines(&home).is_empty() }).await;
        assert_eq!(found_in(&home.path().join("state"), CANARY), Vec::<String>::new());
    }
}

/// Scenario 14: an outage longer than the lease: once the store is back, the outcome is written by its own fence all the same.
#[tokio::test]
async fn s14_an_outage_longer_than_the_lease() {
    let redis = RedisServer::start();
    let upstream = Upstream::start(|_, at| later(500, answer(200, &[], format!("call {at}").as_bytes()))).await;
    // Nothing is forwarded again under `hold`, so only the journal can tell the outcome.
    let home = home(&redis, &upstream, "lease = \"1s\"\nunknown = \"hold\"", &[KEY]);
    let gateway = home.start();
    let delivery = deliver(&gateway, &event("evt_1", 1));
    upstream.arrived(1).await;
    redis.pause();
    let first = delivery.await.unwrap().unwrap();
    eventually("given up for now", || async { gateway.log().contains("was not written while the lease ran") }).await;
    redis.resume();
    eventually("replayed", || async { pay(&gateway, &event("evt_1", 1)).await.idempotency() == "replay" }).await;
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    assert_eq!(upstream.count(), 1);
    eventually("the journal is empty", || async { lines(&home).is_empty() }).await;
}

/// `store_down = "forward"`: forwarded, with its business key, and written down; when the store is back, redeliveries replay.
#[tokio::test]
async fn a_forward_without_a_claim_is_reconciled() {
    let redis = RedisServer::start();
    let upstream = telling().await;
    let home = home(&redis, &upstream, FORWARD, &[KEY]);
    let gateway = home.start();
    assert_eq!(pay(&gateway, &event("evt_0", 1)).await.idempotency(), "first");
    redis.pause();
    let beside = pay(&gateway, &event("evt_1", 1)).await;
    assert_eq!((beside.status, beside.idempotency()), (201, "bypassed"), "{beside:?}");
    let hits = upstream.hits();
    assert_eq!(hits[1].header("idempotency-key"), Some("t:pay:evt_1"), "{hits:?}");
    assert_eq!(lines(&home).len(), 1);
    redis.resume();
    let again = settled(&gateway, &event("evt_1", 1)).await;
    is_replay(&again, &beside);
    assert_eq!(settled(&gateway, &event("evt_1", 2)).await.code(), "fingerprint-mismatch");
    assert_eq!(upstream.count(), 2);
    eventually("the journal is empty", || async { lines(&home).is_empty() }).await;
    let log = gateway.log();
    assert!(log.contains("forwarded without a claim") && log.contains("\"result\":\"written\""), "{log}");
    let counted = metrics(&gateway).await;
    let one = |name: &str| counted.get(name).copied();
    assert_eq!(one("onceward_store_down_forwards_total{tenant=\"t\",route=\"pay\"}"), Some(1.0), "{counted:?}");
    assert_eq!(one("onceward_store_down_reconciled_total{result=\"written\"}"), Some(1.0), "{counted:?}");
}

/// The same over a crash of the gateway: the next process takes the journal over before it serves.
#[tokio::test]
async fn a_forward_without_a_claim_survives_the_process() {
    let mut redis = RedisServer::start();
    let upstream = telling().await;
    let config = with_keys(&config(&redis.url(), upstream.address, FORWARD), &[KEY]);
    let home = Home::new(&config.replacen("[store]\n", "[store]\ndigest_keys = [{ value = \"a digest key\" }]\n", 1));
    let gateway = home.start();
    redis.kill();
    let beside = pay(&gateway, &event("evt_1", 1)).await;
    assert_eq!((beside.status, beside.idempotency()), (201, "bypassed"), "{beside:?}");
    gateway.kill();
    redis.restart();
    let gateway = home.start();
    is_replay(&pay(&gateway, &event("evt_1", 1)).await, &beside);
    assert_eq!(upstream.count(), 1);
    assert!(gateway.log().contains("taken over from a process that ended"), "{}", gateway.log());
}

/// Forwarded beside an event that has an answer: that answer stands, and the further forward is reported.
#[tokio::test]
async fn a_forward_beside_an_answer_is_reported() {
    let redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let home = home(&redis, &upstream, FORWARD, &[]);
    let gateway = home.start();
    let first = pay(&gateway, &event("evt_1", 1)).await;
    redis.pause();
    assert_eq!(pay(&gateway, &event("evt_1", 1)).await.idempotency(), "bypassed");
    redis.resume();
    eventually("reported", || async { gateway.log().contains("\"result\":\"beside\"") }).await;
    is_replay(&settled(&gateway, &event("evt_1", 1)).await, &first);
    assert_eq!(upstream.count(), 2);
    let counted = metrics(&gateway).await;
    assert_eq!(counted.get("onceward_store_down_reconciled_total{result=\"beside\"}"), Some(&1.0), "{counted:?}");
    eventually("the journal is empty", || async { lines(&home).is_empty() }).await;
}

/// A process takes over what a dead one left, and nothing of one that lives. A torn line is skipped and reported.
#[tokio::test]
async fn the_journals_of_two_processes() {
    let redis = RedisServer::start();
    let upstream = telling().await;
    let home = home(&redis, &upstream, FORWARD, &[KEY]);
    let one = home.start();
    assert_eq!(pay(&one, &event("evt_0", 1)).await.idempotency(), "first");
    redis.pause();
    let beside = pay(&one, &event("evt_1", 1)).await;
    assert_eq!(beside.idempotency(), "bypassed");
    let two = home.start();
    assert!(!two.log().contains("taken over"), "the first process lives: {}", two.log());
    assert_eq!(pay(&two, &event("evt_2", 1)).await.status, 201);
    two.kill();
    one.kill();
    let torn = home.path().join("state/journal/1-torn.jsonl");
    fs::write(&torn, "{\"done\":\"x\"}\n{\"sealed\":{\"key\":\"01").unwrap();
    redis.resume();
    let three = home.start();
    is_replay(&settled(&three, &event("evt_1", 1)).await, &beside);
    assert!(three.log().contains("torn or damaged line"), "{}", three.log());
    assert!(!torn.exists());
    eventually("the journal is empty", || async { lines(&home).is_empty() }).await;
}

/// A journal whose key is gone stays as it is, and the log names the key; with the key it is taken over.
#[tokio::test]
async fn a_journal_whose_key_is_gone_waits() {
    let redis = RedisServer::start();
    let upstream = telling().await;
    let text = config(&redis.url(), upstream.address, FORWARD);
    let home = Home::new(&with_keys(&text, &[KEY]));
    let gateway = home.start();
    assert_eq!(pay(&gateway, &event("evt_0", 1)).await.idempotency(), "first");
    redis.pause();
    let beside = pay(&gateway, &event("evt_1", 1)).await;
    gateway.kill();
    redis.resume();
    let file = home.path().join("onceward.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replace(KEY, "another key than before")).unwrap();
    let without = home.start();
    assert!(without.log().contains("stays as it is"), "{}", without.log());
    assert_eq!(lines(&home).len(), 1);
    without.kill();
    fs::write(&file, good).unwrap();
    is_replay(&settled(&home.start(), &event("evt_1", 1)).await, &beside);
    assert_eq!(upstream.count(), 2);
}

/// A route that forwards without the store does so only where that can be written down.
#[tokio::test]
async fn no_forward_without_a_journal() {
    let redis = RedisServer::start();
    let upstream = Upstream::counting().await;
    let home = home(&redis, &upstream, FORWARD, &[]);
    fs::write(home.path().join("state"), "no directory").unwrap();
    let said = home.refuses();
    assert!(said.contains("server.state_dir") && said.contains("the journal cannot be written"), "{said}");
}
