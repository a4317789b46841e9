//! Several gateways over one registry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::rig::{ORDERS, T, activate, ask, bring_in, config, digest, names, orders, pay, registry, upload, version};
use crate::journey::rig::{event, is_problem};
use crate::plugins::guest::GuestCode;
use crate::support::client::{get, post};
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::RedisServer;
use crate::support::upstream::Upstream;

/// The longest that a replica may take to serve what another one activated.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(2);

/// Two gateways over one registry and one Redis.
struct Pair {
    one: Gateway,
    two: Gateway,
    upstream: Upstream,
    registry: tempfile::TempDir,
    _redis: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let (redis, upstream) = (RedisServer::start(), Upstream::counting().await);
        let registry = tempfile::tempdir().unwrap();
        let url = format!("file:{}", registry.path().display());
        // What the traffic of these tests needs, and a quiet machine can send.
        let limits = "[tenants.t]\nlimits = { rate = \"100000/s\", plugin_time = \"900ms/s\" }";
        let start = || Gateway::start(&config(&url, &redis.url(), upstream.address, limits));
        Self { one: start(), two: start(), upstream, registry, _redis: redis }
    }
}

/// Versions alternate under constant traffic on two replicas: no request fails, each event is forwarded once, and each activation
/// serves on both within two seconds.
#[tokio::test]
async fn activations_under_load_fail_no_request() {
    let pair = Arc::new(Pair::start().await);
    bring_in(&pair.one, &version(1)).await;
    assert_eq!(upload(&pair.two, &version(2)).await.status, 201);
    eventually("the other replica serves", || async { orders(&pair.two).await["serving_generation"] == 1 }).await;

    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let traffic: Vec<_> = (0..4)
        .map(|lane| {
            let (pair, stop, sent) = (Arc::clone(&pair), Arc::clone(&stop), Arc::clone(&sent));
            tokio::spawn(async move {
                for at in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (id, number) = (format!("{lane}-{at}"), sent.fetch_add(1, Ordering::Relaxed));
                    let (one, two) = if number % 2 == 0 { (&pair.one, &pair.two) } else { (&pair.two, &pair.one) };
                    let first = pay(one, &event(&id, 1)).await;
                    assert_eq!((first.status, first.idempotency()), (200, "first"), "{id}: {first:?}");
                    // The other replica, perhaps with the other version.
                    let again = pay(two, &event(&id, 1)).await;
                    assert_eq!((again.status, again.idempotency()), (200, "replay"), "{id}: {again:?}");
                }
            })
        })
        .collect();
    for turn in 0..6 {
        let wanted = 2 - turn % 2;
        let by = if turn % 2 == 0 { &pair.one } else { &pair.two };
        let told = activate(by, &digest(&version(wanted))).await;
        assert_eq!(told.status, 200, "{told:?}");
        let (activated, generation) = (Instant::now(), told.json()["generation"].clone());
        for replica in [&pair.one, &pair.two] {
            while orders(replica).await["serving_generation"] != generation {
                assert!(activated.elapsed() < FOLLOWS_WITHIN, "generation {generation}: {}", orders(replica).await);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    for lane in traffic {
        lane.await.unwrap();
    }
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent > 50, "{sent} events");
    assert_eq!(pair.upstream.count(), sent);
}

/// An answer of the plugin's own says which version reads deliveries; `bad` is what such a guest answers to.
#[tokio::test]
async fn every_replica_serves_what_was_activated() {
    let pair = Pair::start().await;
    let speaking = |number: u8| GuestCode::new().respond(200, &[], format!("version {number}").as_bytes()).build();
    let (one, two) = (speaking(1), speaking(2));
    bring_in(&pair.one, &one).await;
    let says = async |gateway: &Gateway| post(gateway.ingest, "/pay", &[], "bad").await.body;
    assert_eq!(says(&pair.one).await, b"version 1");
    let started = Instant::now();
    while says(&pair.two).await != b"version 1" {
        assert!(started.elapsed() < FOLLOWS_WITHIN, "{}", pair.two.log());
    }
    bring_in(&pair.two, &two).await;
    let started = Instant::now();
    while says(&pair.one).await != b"version 2" {
        assert!(started.elapsed() < FOLLOWS_WITHIN, "{}", pair.one.log());
    }
    let told = ask(&pair.one, "POST", &format!("{ORDERS}/rollback"), T, b"").await;
    assert_eq!((told.status, says(&pair.one).await.as_slice()), (200, &b"version 1"[..]), "{told:?}");
    let started = Instant::now();
    while says(&pair.two).await != b"version 1" {
        assert!(started.elapsed() < FOLLOWS_WITHIN, "{}", pair.two.log());
    }
}

/// Activations at once from two gateways: each gets a number of its own, none is lost, and both serve the last.
#[tokio::test]
async fn racing_activations_get_numbers_of_their_own() {
    let pair = Pair::start().await;
    for number in 1..=4 {
        assert_eq!(upload(&pair.one, &version(number)).await.status, 201);
    }
    let activations = (1..=4).map(|number| {
        let gateway = if number % 2 == 0 { &pair.one } else { &pair.two };
        async move { activate(gateway, &digest(&version(number))).await }
    });
    let answers = futures::future::join_all(activations).await;
    let mut numbers: Vec<u64> = Vec::new();
    for answer in answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        numbers.push(answer.json()["generation"].as_u64().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let folder = pair.registry.path().join("t/orders/generations");
    assert_eq!(names(&folder).len(), 4);
    eventually("both serve the last", || async {
        let (one, two) = (orders(&pair.one).await, orders(&pair.two).await);
        one["serving_generation"] == 4 && two["serving_generation"] == 4 && one["active"] == two["active"]
    })
    .await;
}

/// A registry that lost or changed something: what serves serves on, and the fault is reported everywhere that it should be.
#[tokio::test]
async fn a_damaged_registry_is_reported_and_the_last_good_serves_on() {
    let pair = Pair::start().await;
    bring_in(&pair.one, &version(1)).await;
    eventually("both serve", || async { orders(&pair.two).await["serving_generation"] == 1 }).await;
    let home = pair.registry.path().join("t/orders");
    let blob = |number: u8| home.join("blobs").join(digest(&version(number)) + ".wasm");
    let generation = |number: u64| home.join("generations").join(format!("{number:020}.json"));

    // A component that is not what its name says is not activated.
    assert_eq!(upload(&pair.one, &version(2)).await.status, 201);
    std::fs::write(blob(2), version(3)).unwrap();
    let refused = activate(&pair.one, &digest(&version(2))).await;
    is_problem(&refused, 422, "version-unusable");
    assert!(refused.json()["detail"].as_str().unwrap().contains("another SHA-256"), "{refused:?}");
    std::fs::remove_file(blob(2)).unwrap();
    let refused = activate(&pair.one, &digest(&version(2))).await;
    is_problem(&refused, 422, "version-unusable");
    assert!(refused.json()["detail"].as_str().unwrap().contains("upload it again"), "{refused:?}");

    // One that somebody names all the same cannot be prepared where it was never compiled.
    let named = json!({ "generation": 2, "active": digest(&version(2)), "previous": null, "shadow": null, "by": "x", "at_ms": 1 });
    std::fs::write(generation(2), named.to_string()).unwrap();
    eventually("the fault is seen", || async { orders(&pair.two).await["fault"].is_string() }).await;
    let ready = get(pair.two.admin, "/readyz").await;
    assert_eq!((ready.status, ready.json()["status"].as_str().unwrap()), (200, "degraded"), "{ready:?}");
    assert!(ready.json()["reasons"][0].as_str().unwrap().contains("generation 1 serves on"), "{ready:?}");
    let lag =
        crate::admin::rig::metrics(&pair.two).await["onceward_plugin_generation_lag{tenant=\"t\",plugin=\"t/orders\"}"];
    assert_eq!(lag, 1.0);
    assert_eq!(pay(&pair.two, &event("a", 1)).await.idempotency(), "first");

    // A record that is no record changes nothing, and the next activation goes above it.
    std::fs::write(generation(3), b"{").unwrap();
    assert_eq!(upload(&pair.two, &version(2)).await.status, 201);
    let told = activate(&pair.two, &digest(&version(2))).await;
    assert_eq!((told.status, &told.json()["generation"]), (200, &json!(4)), "{told:?}");
    eventually("all is well again", || async {
        orders(&pair.one).await["serving_generation"] == 4
            && get(pair.one.admin, "/readyz").await.json()["status"] == "ready"
            && get(pair.two.admin, "/readyz").await.json()["status"] == "ready"
    })
    .await;
}

/// Without its registry a gateway serves what it has, and a new one starts without code rather than not at all.
#[tokio::test]
async fn without_a_registry_what_serves_serves_on() {
    let upstream = Upstream::counting().await;
    let home = Home::new(&config("file:{dir}/registry", "sqlite:{dir}/onceward.db", upstream.address, ""));
    let gateway = home.start();
    bring_in(&gateway, &version(1)).await;
    let away = home.path().join("away");
    std::fs::rename(home.path().join("registry"), &away).unwrap();
    // Something that no list can be made of.
    std::fs::write(home.path().join("registry"), b"").unwrap();
    eventually("it is reported", || async { get(gateway.admin, "/readyz").await.json()["status"] == "degraded" }).await;
    assert_eq!(pay(&gateway, &event("a", 1)).await.idempotency(), "first");
    is_problem(&upload(&gateway, &version(2)).await, 503, "registry-unavailable");
    let gateway = gateway.kill().start();
    is_problem(&pay(&gateway, &event("a", 1)).await, 503, "plugin-unavailable");
    std::fs::remove_file(home.path().join("registry")).unwrap();
    std::fs::rename(&away, home.path().join("registry")).unwrap();
    eventually("it serves again", || async { pay(&gateway, &event("a", 1)).await.idempotency() == "replay" }).await;
    assert_eq!(names(&registry(&home).join("generations")).len(), 1);
}
