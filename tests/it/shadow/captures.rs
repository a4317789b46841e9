//! `capture`: what is kept of requests, how it lies on the disk, and when it goes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::rig::requests;
use crate::admin::rig::{OPS, OTHER, T, audit, config, metrics};
use crate::journey::rig::{event, is_problem, pay};
use crate::journey::sealed::{CANARY, KEY, holds, with_keys};
use crate::support::client::{Answer, post, send};
use crate::support::config::SQLITE;
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::Upstream;

/// The route `/pay` of tenant `t` captures so.
fn capturing(upstream: &Upstream, capture: &str) -> String {
    with_keys(&config(SQLITE, upstream.address, ""), &[KEY]).replacen(
        "path = \"/pay\"\n",
        &format!("path = \"/pay\"\ncapture = {capture}\n"),
        1,
    )
}

fn dir(home: &Home) -> PathBuf {
    home.path().join("state/captures/t/pay")
}

/// The files of captured requests, oldest first.
fn files(home: &Home) -> Vec<PathBuf> {
    requests(&dir(home))
}

async fn kept(home: &Home, count: usize) -> Vec<PathBuf> {
    eventually(&format!("{count} requests are kept"), || async { files(home).len() == count }).await;
    files(home)
}

async fn erase(gateway: &Gateway, path: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    send(gateway.admin, "DELETE", path, &[("authorization", &bearer)], b"").await
}

/// Sealed, for the owner's eyes alone, in the order they came, and there after a restart.
#[tokio::test]
async fn requests_are_sealed_on_the_disk_and_survive_a_restart() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&capturing(&upstream, r#"{ max = 10, ttl = "1h" }"#));
    let home = gateway.home();
    for at in 0..3 {
        let body = format!(r#"{{"id":"evt_{at}","card":"{CANARY}"}}"#);
        let answer = post(gateway.ingest, "/pay", &[("x-card", CANARY)], body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // Another route's are not kept.
    assert_eq!(post(gateway.ingest, "/items", &[], r#"{"id":"a","item":"b"}"#).await.status, 200);
    let before = kept(&home, 3).await;
    for file in &before {
        let octets = fs::read(file).unwrap();
        assert!(!holds(&octets, CANARY) && !holds(&octets, "\"id\":\"evt_"), "{}", file.display());
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::metadata(dir(&home)).unwrap().permissions().mode() & 0o777, 0o700);
    let captures = home.path().join("state/captures");
    assert_eq!(fs::read_dir(&captures).unwrap().count(), 1, "only of the route that says so");
    assert_eq!(fs::read_dir(captures.join("t")).unwrap().count(), 1);
    let counted = metrics(&gateway).await;
    assert_eq!(counted[r#"onceward_captures_total{tenant="t",route="pay",result="kept"}"#], 3.0, "{counted:?}");
    assert!(!gateway.log().contains(CANARY));

    let gateway = gateway.kill().start();
    pay(&gateway, &event("evt_3", 1)).await;
    let after = kept(&home, 4).await;
    assert_eq!(after[..3], before[..]);
}

/// What is refused proves nothing about a plugin, and is anybody's: it is not kept.
#[tokio::test]
async fn only_verified_requests_are_kept() {
    let upstream = Upstream::counting().await;
    let text = capturing(&upstream, r#"{ max = 10, ttl = "1h" }"#)
        .replacen(
            r#"key = ["/id"], material = ["/amount"] }"#,
            r#"key = ["/id"], material = ["/amount"], verify = { scheme = "hmac-sha256", header = "x-signature", encoding = "hex", prefix = "", secret = "s" } }"#,
            1,
        )
        + "\n[tenants.t]\nsecrets.s = [ { value = \"of this test\" } ]\n";
    let gateway = Gateway::start(&text);
    let home = gateway.home();
    let body = event("evt_1", 1);
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"of this test");
    let signature = hex::encode(aws_lc_rs::hmac::sign(&key, body.as_bytes()));
    assert_eq!(post(gateway.ingest, "/pay", &[("x-signature", "00")], &body).await.status, 401);
    assert_eq!(post(gateway.ingest, "/pay", &[], &body).await.status, 401);
    assert_eq!(post(gateway.ingest, "/pay", &[("x-signature", &signature)], &body).await.status, 200);
    kept(&home, 1).await;
}

#[tokio::test]
async fn the_newest_stay() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&capturing(&upstream, r#"{ max = 5, ttl = "1h" }"#));
    let home = gateway.home();
    let mut last = String::new();
    for at in 0..12 {
        let answer = pay(&gateway, &event(&format!("evt_{at}"), 1)).await;
        last = answer.header("onceward-event").unwrap().to_owned();
        let wanted = format!("-{last}.request");
        eventually("the newest is there", || async {
            files(&home).iter().any(|file| file.to_str().unwrap().ends_with(&wanted))
        })
        .await;
    }
    let files = kept(&home, 5).await;
    assert!(files[4].to_str().unwrap().contains(&last), "{files:?}");
    // A smaller ring after a restart holds less from the next request on.
    let home = gateway.kill();
    let config = fs::read_to_string(home.path().join("onceward.toml")).unwrap().replace("max = 5", "max = 2");
    fs::write(home.path().join("onceward.toml"), config).unwrap();
    let gateway = home.start();
    pay(&gateway, &event("evt_new", 1)).await;
    kept(&home, 2).await;
}

#[tokio::test]
async fn what_is_too_old_goes_also_at_the_start() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&capturing(&upstream, r#"{ max = 5, ttl = "2s" }"#));
    let home = gateway.home();
    pay(&gateway, &event("evt_1", 1)).await;
    // On a busy machine it may be gone before anybody looks.
    let counted = r#"onceward_captures_total{tenant="t",route="pay",result="kept"}"#;
    eventually("it was kept", || async { metrics(&gateway).await.get(counted) == Some(&1.0) }).await;
    kept(&home, 0).await;
    let home = gateway.kill();
    // What a gateway that has been down for long left, and a write that its end broke off.
    fs::create_dir_all(dir(&home)).unwrap();
    for name in ["00000001790000000000-a.request", "00000001790000000001-b.request.half"] {
        fs::write(dir(&home).join(name), b"old").unwrap();
    }
    let _gateway = home.start();
    eventually("nothing is left", || async { fs::read_dir(dir(&home)).unwrap().count() == 0 }).await;
}

/// By an operator's verb, by a token of the tenant, and by a configuration that captures no longer.
#[tokio::test]
async fn what_is_erased_is_gone() {
    const PLACE: &str = "/v1/tenants/t/routes/pay/captures";
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&capturing(&upstream, r#"{ max = 5, ttl = "1h" }"#));
    let home = gateway.home();
    for (token, by) in [(OPS, "ops"), (T, "t-ci")] {
        pay(&gateway, &event(by, 1)).await;
        pay(&gateway, &event(by, 1)).await;
        kept(&home, 2).await;
        is_problem(&erase(&gateway, PLACE, OTHER).await, 404, "not-found");
        is_problem(&erase(&gateway, PLACE, "").await, 401, "unauthorized");
        is_problem(&erase(&gateway, "/v1/tenants/t/routes/nothing/captures", token).await, 404, "not-found");
        assert_eq!(files(&home).len(), 2);
        let erased = erase(&gateway, PLACE, token).await;
        assert_eq!((erased.status, erased.json()["erased"].as_u64()), (200, Some(2)), "{erased:?}");
        assert!(!dir(&home).exists());
        let line = audit(&gateway, "operator").pop().unwrap();
        assert_eq!((line["verb"].as_str(), line["by"].as_str()), (Some("erase-captures"), Some(by)), "{line}");
        assert_eq!(erase(&gateway, PLACE, token).await.json()["erased"], 0);
    }
    pay(&gateway, &event("last", 1)).await;
    kept(&home, 1).await;
    let home = gateway.kill();
    let text = fs::read_to_string(home.path().join("onceward.toml")).unwrap();
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("capture = ")).collect();
    fs::write(home.path().join("onceward.toml"), text.join("\n")).unwrap();
    let gateway = home.start();
    assert!(!dir(&home).exists(), "nothing stays of a route that keeps nothing");
    pay(&gateway, &event("later", 1)).await;
    assert!(files(&home).is_empty());
}

#[tokio::test]
async fn capture_needs_keys() {
    let upstream = Upstream::counting().await;
    let text = capturing(&upstream, "{}").replace("encryption_keys", "#");
    let said = Home::new(&text).refuses();
    assert!(said.contains("routes[0].capture") && said.contains("encryption_keys"), "{said}");
}

/// A disk that takes nothing costs captures, never an answer, and is said once.
#[tokio::test]
async fn what_cannot_be_written_is_left_out() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&capturing(&upstream, r#"{ max = 5, ttl = "1h" }"#));
    let captures = gateway.home().path().join("state/captures");
    fs::create_dir_all(&captures).unwrap();
    fs::write(captures.join("t"), b"no directory").unwrap();
    for at in 0..3 {
        assert_eq!(pay(&gateway, &event(&format!("evt_{at}"), 1)).await.status, 200);
    }
    let failed = r#"onceward_captures_total{tenant="t",route="pay",result="failed"}"#;
    eventually("all failed", || async { metrics(&gateway).await.get(failed) == Some(&3.0) }).await;
    assert_eq!(gateway.log().matches("requests are not captured").count(), 1, "{}", gateway.log());
    fs::remove_file(captures.join("t")).unwrap();
    pay(&gateway, &event("evt_3", 1)).await;
    kept(&gateway.home(), 1).await;
}
