//! The journey over Redis behind Sentinels, in a cluster, and behind TLS with a password.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::rig::{Rig, event, is_first, is_problem, is_replay, pay};
use crate::support::config::config;
use crate::support::eventually;
use crate::support::gateway::Home;
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

/// First, replay, mismatch; and the same answer from the replica that became the master.
#[tokio::test]
async fn behind_sentinels() {
    let watched = Watched::start();
    let rig = Rig::over(&watched.url(), Upstream::counting().await, "");
    journey(&rig).await;
    let first = rig.pay(&event("evt_1", 1)).await;
    let on = |server: &RedisServer| server.cli(&["HGET", "onceward:rec:t:pay:evt_1", "status"]) == "succeeded";
    eventually("the replica has it", || async { watched.servers.iter().all(on) }).await;
    watched.fail_over();
    eventually("the new master answers", || async { rig.pay(&event("evt_1", 1)).await.idempotency() == "replay" })
        .await;
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
    eventually("and takes claims", || async { rig.pay(&event("evt_2", 1)).await.status == 200 }).await;
    assert_eq!(rig.upstream.count(), 2);
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

/// A certificate for 127.0.0.1 by an authority that nobody knows: `ca.pem`, `server.pem`, `server.key`.
fn certificates(dir: &Path) {
    let openssl = |line: &str| {
        let done = Command::new("openssl").args(line.split(' ')).current_dir(dir).output().expect("openssl runs");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    std::fs::write(dir.join("san"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=nobody");
    openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=redis");
    openssl("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile san");
}

/// `SSL_CERT_FILE` names the authority; a wrong password, or an authority that is not trusted, is a store that cannot be used, and
/// neither answer nor log repeats the password.
#[tokio::test]
async fn behind_tls_with_a_password() {
    let dir = TempDir::new().unwrap();
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let port = free_port().to_string();
    let server = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    assert_eq!(server.cli(&["ACL", "SETUSER", "onceward", "on", ">se:same", "~onceward:*", "+@all"]), "OK");
    let upstream = Upstream::counting().await;
    let url = |password: &str| format!("rediss://onceward:{password}@127.0.0.1:{port}");
    let trust = [("SSL_CERT_FILE", file("ca.pem"))];
    let trust = trust.each_ref().map(|(name, value)| (*name, value.as_str()));

    let good = Home::new(&config(&url("se%3Asame"), upstream.address, "")).start_with(&trust);
    let first = pay(&good, &event("evt_1", 1)).await;
    is_first(&first, "call 0");
    is_replay(&pay(&good, &event("evt_1", 1)).await, &first);

    let wrong = Home::new(&config(&url("mistaken"), upstream.address, "")).start_with(&trust);
    let untrusting = Home::new(&config(&url("se%3Asame"), upstream.address, "")).start();
    for (gateway, told) in [(&wrong, "WRONGPASS"), (&untrusting, "certificate")] {
        is_problem(&pay(gateway, &event("evt_2", 1)).await, 503, "store-unavailable");
        let log = gateway.log();
        assert!(log.contains(told), "{log}");
        assert!(!log.contains("mistaken") && !log.contains("same@") && !log.contains("se:same"), "{log}");
    }
    assert_eq!(upstream.count(), 1);
}
