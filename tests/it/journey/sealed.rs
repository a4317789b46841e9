//! `store.encryption_keys`: what is kept cannot be read at rest, cannot be moved, and opens with any key that is still configured.

use std::fs;
use std::path::Path;

use super::rig::{Rig, event, is_first, is_problem, is_replay, pay};
use crate::support::config::{SQLITE, config};
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::RedisServer;
use crate::support::upstream::{Upstream, answer};

pub const KEY: &str = "the first key of this test";
const NEXT_KEY: &str = "the second key of this test";

/// Stands in an answer's body and in one of its fields: a test card number.
pub const CANARY: &str = "4242424242424242";

/// A configuration whose store encrypts with these keys, newest first.
pub fn with_keys(config: &str, keys: &[&str]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("{{ value = \"{key}\" }}")).collect();
    let line = if keys.is_empty() { String::new() } else { format!("encryption_keys = [{}]\n", keys.join(", ")) };
    config.replacen("[store]\n", &format!("[store]\n{line}"), 1)
}

/// An upstream whose answers hold the canary, in body and fields, and the number of the call.
pub async fn telling() -> Upstream {
    Upstream::start(|_, at| answer(201, &[("x-card", CANARY)], format!("call {at} of {CANARY}").as_bytes())).await
}

/// The files below a directory in which a text stands, as it is or in base64.
pub fn found_in(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(found_in(&path, text));
        } else if holds(&fs::read(&path).unwrap(), text) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

pub fn holds(octets: &[u8], text: &str) -> bool {
    // Base64 of the text at each of its three places in a group, without what depends on its neighbours.
    let shifted = (0..3).map(|shift| {
        let code = encode(&[&vec![b'.'; shift], text.as_bytes()].concat());
        code.as_bytes()[4..code.len() - 4].to_vec()
    });
    let forms: Vec<Vec<u8>> = std::iter::once(text.as_bytes().to_vec()).chain(shifted).collect();
    forms.iter().any(|form| octets.windows(form.len()).any(|window| window == form))
}

fn encode(octets: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(octets)
}

/// Scenario 74: no byte of an answer in the database, its log, or the gateway's own log; without keys it stands there.
#[tokio::test]
async fn s74_nothing_kept_can_be_read_in_the_sqlite_file() {
    for (keys, readable) in [(&[KEY][..], false), (&[], true)] {
        let upstream = telling().await;
        let gateway = Gateway::start(&with_keys(&config(SQLITE, upstream.address, ""), keys));
        let first = pay(&gateway, &event("evt_1", 1)).await;
        assert_eq!(first.header("x-card"), Some(CANARY), "the first answer is untouched: {first:?}");
        is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
        let home = gateway.kill();
        let found = found_in(home.path(), CANARY);
        assert_eq!(!found.is_empty(), readable, "{keys:?}: {found:?}");
        is_replay(&pay(&home.start(), &event("evt_1", 1)).await, &first);
        assert_eq!(upstream.count(), 1);
    }
}

/// Scenario 74 on Redis: neither in the record nor in a dump.
#[tokio::test]
async fn s74_nothing_kept_can_be_read_in_redis() {
    for (keys, readable) in [(&[KEY][..], false), (&[], true)] {
        let redis = RedisServer::start();
        let upstream = telling().await;
        let gateway = Gateway::start(&with_keys(&config(&redis.url(), upstream.address, ""), keys));
        let first = pay(&gateway, &event("evt_1", 1)).await;
        let record = redis.cli(&["HGETALL", "onceward:rec:t:pay:evt_1"]);
        assert!(record.contains("succeeded") && record.contains("201"), "what is compared can be read: {record}");
        assert_eq!(holds(record.as_bytes(), CANARY), readable, "{record}");
        is_replay(&pay(&gateway, &event("evt_1", 1)).await, &first);
    }
}

/// An answer that was sealed for one event opens for no other: a record moved under another key is a fault, never an answer.
#[tokio::test]
async fn an_answer_cannot_be_moved_to_another_event() {
    let redis = RedisServer::start();
    let upstream = telling().await;
    let gateway = Gateway::start(&with_keys(&config(&redis.url(), upstream.address, ""), &[KEY]));
    pay(&gateway, &event("evt_1", 1)).await;
    assert_eq!(redis.cli(&["COPY", "onceward:rec:t:pay:evt_1", "onceward:rec:t:pay:evt_2"]), "1");
    let moved = pay(&gateway, &event("evt_2", 1)).await;
    is_problem(&moved, 503, "store-unavailable");
    assert_eq!(upstream.count(), 1, "never taken for a first-seen event");
    assert!(gateway.log().contains("was moved here from another record"), "{}", gateway.log());
    // The status that stands readable is sealed too.
    redis.cli(&["HSET", "onceward:rec:t:pay:evt_1", "status_code", "200"]);
    is_problem(&pay(&gateway, &event("evt_1", 1)).await, 503, "store-unavailable");
    assert_eq!(upstream.count(), 1);
}

/// Keys rotate: what was kept before there were keys, and under an older one, is still replayed; new answers use the newest.
#[tokio::test]
async fn keys_rotate() {
    let redis = RedisServer::start();
    let upstream = telling().await;
    let start = |keys: &[&str]| Gateway::start(&with_keys(&config(&redis.url(), upstream.address, ""), keys));
    let mut firsts = Vec::new();
    let mut ids = Vec::new();
    for (at, keys) in [&[][..], &[KEY], &[NEXT_KEY, KEY]].into_iter().enumerate() {
        let gateway = start(keys);
        firsts.push(pay(&gateway, &event(&format!("evt_{at}"), 1)).await);
        ids.push(redis.cli(&["HGET", &format!("onceward:rec:t:pay:evt_{at}"), "headers"]));
        for (before, first) in firsts.iter().enumerate() {
            is_replay(&pay(&gateway, &event(&format!("evt_{before}"), 1)).await, first);
        }
    }
    assert_ne!(ids[1], ids[2], "the newest key is used");
    // A key that is gone: no answer, no forward, and the log says which one.
    for keys in [&[NEXT_KEY][..], &[]] {
        let gateway = start(keys);
        is_replay(&pay(&gateway, &event("evt_0", 1)).await, &firsts[0]);
        is_problem(&pay(&gateway, &event("evt_1", 1)).await, 503, "store-unavailable");
        let key_id = ids[1].rsplit('"').nth(1).unwrap().to_owned();
        assert!(gateway.log().contains(&format!("encrypted with the key {key_id}")), "{key_id}: {}", gateway.log());
    }
    assert_eq!(upstream.count(), 3);
}

/// What nothing was kept of needs no key: a mismatch and a failure are as they are.
#[tokio::test]
async fn a_sealed_record_is_still_compared() {
    let upstream = Upstream::counting().await;
    let gateway = Home::new(&with_keys(&config(SQLITE, upstream.address, ""), &[KEY])).start();
    let rig = Rig { gateway, upstream };
    is_first(&rig.pay(&event("evt_1", 1)).await, "call 0");
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
}
