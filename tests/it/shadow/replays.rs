//! A candidate on captured requests.

use std::sync::Arc;

use onceward::event::{Delivery, Secret};
use onceward::gateway::capture::{Captures, Pair, Replayed};
use onceward::gateway::deployed::Deployed;
use onceward::gateway::shadow::Report;
use onceward::plugin::{Grant, Plugin, bundled};
use onceward::store::SealingKeys;

use super::rig::{admitted, comparison, requests, runner, settings};
use crate::journey::rig::{event, pay};
use crate::journey::sealed::{KEY, with_keys};
use crate::plugins::support::{ENGINE, delivery, patient};
use crate::support::config::{SQLITE, config};
use crate::support::eventually;
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::Upstream;

fn json() -> Plugin {
    ENGINE.load("json", bundled::bundled("json").unwrap()).unwrap()
}

/// The plugin `json` with a config.
async fn grant(plugin: &Plugin, config: &str) -> Grant {
    let needs = plugin.examine(config).await.unwrap().unwrap();
    let secrets = [("s".to_owned(), vec![Secret::new("of this test")])].into();
    Grant {
        config: config.into(),
        secrets,
        allow_unsigned: needs.allows_unsigned,
        needs,
        budget: patient(),
        ..Grant::default()
    }
}

/// Requests that a gateway has captured.
struct Captured {
    home: Home,
}

impl Captured {
    /// So many payments, each delivered twice.
    async fn payments(count: usize) -> Self {
        let upstream = Upstream::counting().await;
        let text = with_keys(&config(SQLITE, upstream.address, ""), &[KEY]).replacen(
            "path = \"/pay\"\n",
            "path = \"/pay\"\ncapture = { max = 1000 }\n",
            1,
        );
        let gateway = Gateway::start(&text);
        for at in 0..count {
            let body = event(&format!("evt_{at}"), u32::try_from(at).unwrap() % 7);
            for _ in 0..2 {
                assert_eq!(pay(&gateway, &body).await.status, 200);
            }
        }
        let home = gateway.home();
        let dir = home.path().join("state/captures/t/pay");
        eventually("all are captured", || async { requests(&dir).len() == 2 * count }).await;
        Self { home: gateway.kill() }
    }

    async fn replay(&self, active: &str, candidate: &str) -> (Report, Replayed) {
        let route = settings("capture = {}");
        let keys = SealingKeys::new(&[Secret::new(KEY)]);
        let captures = Captures::open(&self.home.path().join("state"), keys, &[Arc::clone(&route)]).unwrap();
        let plugin = json();
        let pair = Pair {
            route,
            active: runner(&plugin, grant(&plugin, active).await),
            candidate: runner(&plugin, grant(&plugin, candidate).await),
        };
        captures.replay(vec![pair], comparison(&plugin, &plugin)).await
    }
}

const ACTIVE: &str = r#"{"key":["/id"],"material":["/amount"]}"#;

#[tokio::test]
async fn a_hundred_requests() {
    let captured = Captured::payments(50).await;
    let (report, replayed) = captured.replay(ACTIVE, ACTIVE).await;
    assert_eq!(replayed, Replayed { captured: 100, ..Replayed::default() });
    assert_eq!((report.counts.compared, report.counts.equal), (100, 100), "{report:?}");
    assert!(report.counts.examples.is_empty() && !report.counts.blocks());
    // A key of fewer values: fifty events under seven keys.
    let (report, _) = captured.replay(ACTIVE, r#"{"key":["/amount"],"material":["/amount"]}"#).await;
    assert_eq!((report.counts.keys, report.counts.collisions, report.counts.splits), (100, 43, 0), "{report:?}");
    assert!(report.counts.blocks());
    // The other way round they fall apart.
    let (report, _) = captured.replay(r#"{"key":["/amount"],"material":["/amount"]}"#, ACTIVE).await;
    assert_eq!((report.counts.keys, report.counts.collisions, report.counts.splits), (100, 0, 43), "{report:?}");
    // Material that nobody sends.
    let (report, _) = captured.replay(ACTIVE, r#"{"key":["/id"],"material":["/amount","/currency"]}"#).await;
    assert_eq!((report.counts.material, report.counts.keys), (100, 0), "{report:?}");
    assert_eq!(report.counts.examples[0].fields, ["/currency"]);
    let (report, _) = captured.replay(ACTIVE, r#"{"key":["/id"],"material":["/id"]}"#).await;
    assert_eq!((report.counts.material, report.counts.keys), (100, 0), "{report:?}");
    assert_eq!(report.counts.examples[0].fields, ["/amount", "/id"]);
}

/// Files that were cut, changed or moved are left out, and said to be.
#[tokio::test]
async fn damage_is_told() {
    let captured = Captured::payments(3).await;
    let dir = captured.home.path().join("state/captures/t/pay");
    let files = requests(&dir);
    std::fs::write(&files[0], b"").unwrap();
    let mut octets = std::fs::read(&files[1]).unwrap();
    *octets.last_mut().unwrap() ^= 1;
    std::fs::write(&files[1], octets).unwrap();
    // Under another name its age would be another.
    std::fs::rename(&files[2], dir.join("00000999999999999999-x.request")).unwrap();
    let (report, replayed) = captured.replay(ACTIVE, ACTIVE).await;
    assert_eq!(replayed, Replayed { captured: 6, unreadable: 3, ..Replayed::default() });
    assert_eq!(report.counts.equal, 3);
}

/// A signature that was made long ago is checked at the time its request came.
#[tokio::test]
async fn tolerances_hold_at_the_time_of_arrival() {
    let plugin = ENGINE.load("stripe", bundled::bundled("stripe").unwrap()).unwrap();
    let grant = grant(&plugin, r#"{"secret":"s","tolerance":"5m"}"#).await;
    let at_s: u64 = 1_790_000_000;
    let body = r#"{"id":"evt_1","object":"event","type":"charge.succeeded","created":1,"data":{"object":{"id":"ch_1","object":"charge"}}}"#;
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"of this test");
    let tag = hex::encode(aws_lc_rs::hmac::sign(&key, format!("{at_s}.{body}").as_bytes()));
    let mut signed = Delivery::clone(&delivery(body.as_bytes()));
    signed.received_at_ms = at_s * 1000 + 1;
    signed.headers.insert("stripe-signature", format!("t={at_s},v1={tag}").parse().unwrap());
    let home = Home::new("");
    let route = settings("capture = { ttl = \"36500d\" }");
    let keys = SealingKeys::new(&[Secret::new(KEY)]);
    let captures = Captures::open(&home.path().join("state"), keys, &[Arc::clone(&route)]).unwrap();
    let code = runner(&plugin, grant);
    let served = Arc::new(Deployed { active: Arc::clone(&code), previous: None, shadow: None });
    captures.offer(&admitted(&route, &served, Arc::new(signed)), "event-1");
    eventually("it is captured", || async { requests(&home.path().join("state/captures/t/pay")).len() == 1 }).await;
    let pair = Pair { route, active: Arc::clone(&code), candidate: code };
    let (report, replayed) = captures.replay(vec![pair], comparison(&plugin, &plugin)).await;
    assert_eq!((report.counts.equal, replayed.refused), (1, 0), "{report:?} {replayed:?}");
}
