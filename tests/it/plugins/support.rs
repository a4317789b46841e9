//! One engine for all tests of the host, and the requests they send.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use onceward::event::{Delivery, Event};
use onceward::plugin::{Budget, Engine, Failure, Grant, Inspected, Inspection, Plugin, Settings};

use super::guest::GuestCode;

/// An engine reserves a lot of address space, so the tests share one, as a gateway's routes do.
pub static ENGINE: LazyLock<Engine> =
    LazyLock::new(|| Engine::new(Settings { concurrency: 64, max_body: 1 << 20 }).unwrap());

pub fn load(code: GuestCode) -> Plugin {
    ENGINE.load("guest", &code.build()).unwrap()
}

pub fn delivery(body: &[u8]) -> Arc<Delivery> {
    let mut headers = http::HeaderMap::new();
    headers.insert("x-wanted", "yes".parse().unwrap());
    headers.insert("x-other", "no".parse().unwrap());
    Arc::new(Delivery {
        method: http::Method::POST,
        scheme: "https",
        authority: "hooks.example".into(),
        path: "/in".into(),
        query: None,
        params: Vec::new(),
        headers,
        body: body.to_vec().into(),
        received_at_ms: 1_790_000_000_000,
        client_certificate: None,
    })
}

/// A request on which a test's guest behaves well.
pub fn harmless() -> Arc<Delivery> {
    delivery(b"harmless")
}

/// A request on which it does what the test is about.
pub fn trigger() -> Arc<Delivery> {
    delivery(b"bad")
}

/// The shipped budget, but with time for a machine that is busy with other tests.
pub fn patient() -> Budget {
    Budget { wall: Budget::WALL_MAX, ..Budget::default() }
}

pub fn grant() -> Grant {
    Grant { config: "{}".into(), budget: patient(), ..Grant::default() }
}

pub async fn inspect(plugin: &Plugin, delivery: &Arc<Delivery>) -> Inspected {
    plugin.inspect(&Arc::new(grant()), delivery).await
}

pub async fn failure(plugin: &Plugin) -> Failure {
    inspect(plugin, &trigger()).await.result.unwrap_err()
}

pub async fn events(plugin: &Plugin, delivery: &Arc<Delivery>) -> Vec<Event> {
    match inspect(plugin, delivery).await.result {
        Ok(Inspection::Events(events)) => events,
        other => panic!("no events: {other:?}"),
    }
}

/// What a well-behaved guest answers.
pub async fn assert_well(plugin: &Plugin) {
    let events = events(plugin, &harmless()).await;
    assert_eq!(events.iter().map(|event| event.key.clone()).collect::<Vec<_>>(), [["k"]]);
}

pub const MINUTE: Duration = Duration::from_secs(60);
