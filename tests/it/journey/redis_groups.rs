//! The journey over Redis behind Sentinels and in a cluster, and over each kind with TLS and passwords.

use super::rig::{Rig, event, is_first, is_problem, is_replay, pay};
use crate::support::authority::Authority;
use crate::support::client::Answer;
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::{RedisServer, free_port};
use crate::support::redis_groups::{Cluster, Watched};
use crate::support::upstream::Upstream;

async fn journey(rig: &Rig) {
    let first = rig.pay(&event("evt_1", 1)).await;
    is_first(&first, "call 0");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    is_problem(&rig.pay(&event("evt_1", 2)).await, 409, "fingerprint-mismatch");
    assert_eq!(rig.upstream.count(), 1);
}

/// The answer of an event that the replica has too.
async fn replicated(rig: &Rig, watched: &Watched) -> Answer {
    let first = rig.pay(&event("evt_1", 1)).await;
    let on = |server: &RedisServer| server.cli(&["HGET", "onceward:rec:t:pay:evt_1", "status"]) == "succeeded";
    eventually("the replica has it", || async { watched.servers.iter().all(on) }).await;
    first
}

/// The replica that became the master gives the same answer, and takes claims.
async fn fails_over(rig: &Rig, watched: &Watched, first: &Answer) {
    watched.fail_over();
    eventually("the new master answers", || async { rig.pay(&event("evt_1", 1)).await.idempotency() == "replay" })
        .await;
    is_replay(&rig.pay(&event("evt_1", 1)).await, first);
    eventually("and takes claims", || async { rig.pay(&event("evt_2", 1)).await.status == 200 }).await;
    assert_eq!(rig.upstream.count(), 2);
}

/// First, replay, mismatch; and the same answer from the replica that became the master.
#[tokio::test]
async fn behind_sentinels() {
    let watched = Watched::start();
    let rig = Rig::over(&watched.url(), Upstream::counting().await, "");
    journey(&rig).await;
    let first = replicated(&rig, &watched).await;
    fails_over(&rig, &watched, &first).await;
}

#[tokio::test]
async fn in_a_cluster() {
    let cluster = Cluster::start(&[]);
    let rig = Rig::over(&cluster.url(), Upstream::counting().await, "");
    journey(&rig).await;
    for id in 2..40 {
        assert_eq!(rig.pay(&event(&format!("evt_{id}"), 1)).await.idempotency(), "first");
    }
    assert!(cluster.nodes.iter().all(|node| node.cli(&["KEYS", "*onceward:rec:*"]).lines().count() > 3), "spread");
}

/// Makes the user that an address names, who may do all with the gateway's own keys.
fn let_in(servers: &[RedisServer], keys: &str) {
    for server in servers {
        assert_eq!(server.cli(&["ACL", "SETUSER", "onceward", "on", ">se:same", keys, "+@all"]), "OK");
    }
}

/// A gateway that trusts the authority.
fn trusting(authority: &Authority, url: &str, upstream: &Upstream) -> Gateway {
    let trust = authority.trust();
    Home::new(&config(url, upstream.address, "")).start_with(&trust.each_ref().map(|(name, value)| (*name, &**value)))
}

/// A wrong password, or an authority that is not trusted, is a store that cannot be used, and neither answer nor log repeats the
/// password.
async fn refused(authority: &Authority, url: impl Fn(&str) -> String, upstream: &Upstream) {
    let wrong = trusting(authority, &url("mistaken"), upstream);
    let untrusting = Home::new(&config(&url("se%3Asame"), upstream.address, "")).start();
    let before = upstream.count();
    for (gateway, told) in [(&wrong, "WRONGPASS"), (&untrusting, "certificate")] {
        is_problem(&pay(gateway, &event("evt_refused", 1)).await, 503, "store-unavailable");
        let log = gateway.log();
        assert!(log.contains(told), "{told}: {log}");
        assert!(!log.contains("mistaken") && !log.contains("same@") && !log.contains("se:same"), "{log}");
    }
    assert_eq!(upstream.count(), before);
}

/// `SSL_CERT_FILE` names the authority.
#[tokio::test]
async fn behind_tls_with_a_password() {
    let authority = Authority::new();
    let options = authority.redis_options(free_port());
    let server = RedisServer::start_with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let_in(std::slice::from_ref(&server), "~onceward:*");
    let url = |password: &str| format!("rediss://onceward:{password}@127.0.0.1:{}", server.client_port());
    let upstream = Upstream::counting().await;
    let rig = Rig { gateway: trusting(&authority, &url("se%3Asame"), &upstream), upstream };
    journey(&rig).await;
    refused(&authority, url, &rig.upstream).await;
}

/// The Sentinels ask for a password of their own; master and replica are reached over TLS too, before and after a failover.
#[tokio::test]
async fn behind_sentinels_with_tls_and_passwords() {
    let authority = Authority::new();
    let watched = Watched::start_tls(&authority);
    let_in(&watched.servers, "~onceward:*");
    for sentinel in &watched.sentinels {
        assert_eq!(sentinel.cli(&["ACL", "SETUSER", "watcher", "on", ">an:other", "+@all"]), "OK");
    }
    let url = |password: &str| {
        let url = watched.url().replacen("://", &format!("://onceward:{password}@"), 1);
        format!("{url}?tls=true&sentinel_user=watcher&sentinel_password=an%3Aother")
    };
    let upstream = Upstream::counting().await;
    let rig = Rig { gateway: trusting(&authority, &url("se%3Asame"), &upstream), upstream };
    journey(&rig).await;
    let first = replicated(&rig, &watched).await;
    refused(&authority, url, &rig.upstream).await;
    let stranger = trusting(&authority, &url("se%3Asame").replace("an%3Aother", "mistaken"), &rig.upstream);
    is_problem(&pay(&stranger, &event("evt_refused", 1)).await, 503, "store-unavailable");
    assert!(!stranger.log().contains("mistaken"), "{}", stranger.log());
    fails_over(&rig, &watched, &first).await;
}

/// Each node that the cluster names is reached over TLS and with the password.
#[tokio::test]
async fn in_a_cluster_with_tls_and_a_password() {
    let authority = Authority::new();
    let cluster = Cluster::start_tls(&authority);
    let_in(&cluster.nodes, "~*onceward:*");
    let url = |password: &str| {
        let url = cluster.url().replacen("://", &format!("://onceward:{password}@"), 1);
        format!("{url}?tls=true")
    };
    let upstream = Upstream::counting().await;
    let rig = Rig { gateway: trusting(&authority, &url("se%3Asame"), &upstream), upstream };
    journey(&rig).await;
    for id in 2..40 {
        assert_eq!(rig.pay(&event(&format!("evt_{id}"), 1)).await.idempotency(), "first");
    }
    assert!(cluster.nodes.iter().all(|node| node.cli(&["KEYS", "*onceward:rec:*"]).lines().count() > 3), "spread");
    for node in &cluster.nodes {
        let clients = node.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
        let own = clients.lines().filter(|line| line.contains("user=onceward"));
        assert!(own.count() > 0, "{clients}");
    }
    refused(&authority, url, &rig.upstream).await;
}
