//! The registry in a bucket.

use serde_json::json;

use super::rig::{ORDERS, T, ask, bring_in, config, digest, orders, pay, upload, version};
use crate::journey::rig::{event, is_problem};
use crate::support::client::get;
use crate::support::eventually;
use crate::support::gateway::Home;
use crate::support::redis::RedisServer;
use crate::support::s3::S3;
use crate::support::upstream::Upstream;

/// All of a plugin's life in an S3-compatible bucket, under a prefix, over two gateways.
#[tokio::test]
async fn a_plugin_lives_in_a_bucket() {
    let (redis, upstream) = (RedisServer::start(), Upstream::counting().await);
    let s3 = S3::start();
    let environment = s3.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let limits = "[tenants.t]\nlimits = { versions = 1 }";
    let start = || {
        let home = Home::new(&config("s3://bucket/some/prefix", &redis.url(), upstream.address, limits));
        home.start_with(&environment)
    };
    let (one, two) = (start(), start());
    assert_eq!(orders(&one).await["versions"], json!([]));
    let first = bring_in(&one, &version(1)).await;
    assert_eq!(first["generation"], 1);
    eventually("the other gateway serves it", || async { orders(&two).await["serving_generation"] == 1 }).await;
    assert_eq!(pay(&one, &event("a", 1)).await.idempotency(), "first");
    assert_eq!(pay(&two, &event("a", 1)).await.idempotency(), "replay");

    assert_eq!(bring_in(&two, &version(2)).await["generation"], 2);
    let told = ask(&one, "POST", &format!("{ORDERS}/rollback"), T, b"").await;
    assert_eq!((told.status, &told.json()["generation"]), (200, &json!(3)), "{told:?}");
    // Two more versions: what neither serves nor is the newest goes, code and all.
    for number in [3, 4] {
        assert_eq!(upload(&one, &version(number)).await.status, 201);
    }
    let seen = orders(&two).await;
    let kept: Vec<_> = seen["versions"].as_array().unwrap().iter().map(|one| one["digest"].clone()).collect();
    assert_eq!(kept, [json!(digest(&version(4))), json!(digest(&version(1)))], "{seen}");
    let keys = s3.keys();
    let named =
        |kind: &str| keys.iter().filter(|key| key.starts_with(&format!("some/prefix/t/orders/{kind}/"))).count();
    assert_eq!((named("blobs"), named("versions"), named("generations")), (2, 2, 3), "{keys:?}");
    assert_eq!(named("blobs") + named("versions") + named("generations"), keys.len(), "{keys:?}");
    let list = ask(&two, "GET", "/v1/tenants/t/plugins", T, b"").await.json();
    assert_eq!(list["code"]["used"], version(1).len() + version(4).len(), "{list}");

    // Without the bucket: what serves serves on, and nothing names the endpoint or a key.
    drop(s3);
    eventually("it is reported", || async { get(two.admin, "/readyz").await.json()["status"] == "degraded" }).await;
    assert_eq!(pay(&two, &event("b", 1)).await.idempotency(), "first");
    let refused = upload(&two, &version(5)).await;
    is_problem(&refused, 503, "registry-unavailable");
    let said = String::from_utf8(refused.body).unwrap();
    assert!(!said.contains("127.0.0.1") && !two.log().contains("not-a-secret"), "{said}");
}
