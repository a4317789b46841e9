//! A gateway with the route `/pay`, and a scripted upstream behind it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::support::client::{Answer, exchange, post, request};
use crate::support::config::{SQLITE, config, config_with};
use crate::support::gateway::{Gateway, Home};
use crate::support::upstream::{Act, Hit, Upstream, answer};

/// One gateway and one upstream.
pub struct Rig {
    pub gateway: Gateway,
    pub upstream: Upstream,
}

/// A delivery under way; `Err` when its connection ended without a whole answer.
pub type Delivery = JoinHandle<Result<Answer, Vec<u8>>>;

impl Rig {
    /// Over the embedded store, with an upstream that counts its calls.
    pub async fn start(idempotency: &str) -> Self {
        Self::over(SQLITE, Upstream::counting().await, idempotency)
    }

    /// Over the embedded store and this upstream.
    pub fn with(upstream: Upstream, idempotency: &str) -> Self {
        Self::over(SQLITE, upstream, idempotency)
    }

    /// Over the embedded store and this upstream, which may take so long.
    pub fn patient(upstream: Upstream, timeout: &str, idempotency: &str) -> Self {
        let keys = format!("timeout = \"{timeout}\"");
        Self { gateway: Gateway::start(&config_with(SQLITE, upstream.address, &keys, idempotency)), upstream }
    }

    /// Over any store and upstream.
    pub fn over(store: &str, upstream: Upstream, idempotency: &str) -> Self {
        Self { gateway: Gateway::start(&config(store, upstream.address, idempotency)), upstream }
    }

    /// Delivers an event and waits for the answer.
    pub async fn pay(&self, body: &str) -> Answer {
        pay(&self.gateway, body).await
    }

    /// Delivers an event, and goes on once the upstream has it.
    pub async fn under_way(&self, body: &str) -> Delivery {
        let before = self.upstream.count();
        let delivery = deliver(&self.gateway, body);
        self.upstream.arrived(before + 1).await;
        delivery
    }

    /// Redelivers an event until it is no longer in flight.
    pub async fn settle(&self, body: &str) -> Answer {
        settle(&self.gateway, body).await
    }

    /// kill -9, then a new gateway in the same directory.
    pub fn crash(self) -> Self {
        Self { gateway: self.gateway.kill().start(), upstream: self.upstream }
    }
}

/// An upstream that meets each event's first call as `script` says for its id, and answers all later ones well: `call 1`, …
pub async fn bad_once(script: impl Fn(&str) -> Act + Send + Sync + 'static) -> Upstream {
    let calls = Mutex::<HashMap<String, usize>>::default();
    Upstream::start(move |hit, _| {
        let event: serde_json::Value = serde_json::from_slice(&hit.body).unwrap();
        let id = event["id"].as_str().unwrap().to_owned();
        let mut calls = calls.lock().unwrap();
        let call = calls.entry(id.clone()).or_default();
        *call += 1;
        if *call == 1 { script(&id) } else { answer(200, &[], format!("call {}", *call - 1).as_bytes()) }
    })
    .await
}

/// The forwards of one event.
pub fn forwards(upstream: &Upstream, id: &str) -> Vec<Hit> {
    let key = format!("t:pay:{id}");
    upstream.hits().into_iter().filter(|hit| hit.header("idempotency-key") == Some(&key)).collect()
}

/// Checks the second of two forwards of one event: the same key, the next attempt, a higher fence.
#[track_caller]
pub fn second_attempt(hits: &[Hit]) {
    assert_eq!(hits.len(), 2, "{hits:?}");
    assert_eq!(hits[0].header("idempotency-key"), hits[1].header("idempotency-key"));
    assert_eq!((hits[0].header("onceward-attempt"), hits[1].header("onceward-attempt")), (Some("1"), Some("2")));
    assert!(fence(&hits[1]) > fence(&hits[0]), "{hits:?}");
}

pub fn fence(hit: &Hit) -> u64 {
    hit.header("onceward-fence").expect("a fence").parse().expect("a number")
}

/// A payment.
pub fn event(id: &str, amount: u32) -> String {
    format!(r#"{{"id":"{id}","amount":{amount}}}"#)
}

/// Delivers an event to `/pay` and waits for the answer.
pub async fn pay(gateway: &Gateway, body: &str) -> Answer {
    post(gateway.ingest, "/pay", &[], body).await
}

/// Delivers an event to `/pay` in a task of its own.
pub fn deliver(gateway: &Gateway, body: &str) -> Delivery {
    let bytes = pay_request(gateway.ingest, body);
    let to = gateway.ingest;
    tokio::spawn(async move { exchange(to, &bytes).await })
}

/// The bytes of a delivery to `/pay`.
pub fn pay_request(to: SocketAddr, body: &str) -> Vec<u8> {
    request(to, "POST", "/pay", &[], body.as_bytes())
}

/// Redelivers an event until it is no longer in flight, which ends with the lease at the latest.
pub async fn settle(gateway: &Gateway, body: &str) -> Answer {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = pay(gateway, body).await;
        if answer.idempotency() != "in-flight" {
            return answer;
        }
        assert_eq!((answer.status, answer.code().as_str()), (409, "in-flight"), "{answer:?}");
        assert!(Instant::now() < end, "in flight for ever: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts a gateway in a directory that holds more than the config.
pub fn start_with_file(config: &str, name: &str, bytes: &[u8]) -> Gateway {
    let home = Home::new(config);
    std::fs::write(home.path().join(name), bytes).unwrap();
    home.start()
}

/// Checks a first answer: this delivery was forwarded and the answer is the upstream's.
#[track_caller]
pub fn is_first(answer: &Answer, body: &str) {
    assert_eq!((answer.status, answer.idempotency()), (200, "first"), "{answer:?}");
    assert_eq!(String::from_utf8_lossy(&answer.body), body, "{answer:?}");
    assert_eq!(answer.header("idempotency-replayed"), None, "{answer:?}");
}

/// Checks that an answer repeats the first one.
#[track_caller]
pub fn is_replay(answer: &Answer, first: &Answer) {
    assert_eq!(answer.idempotency(), "replay", "{answer:?}");
    assert_eq!(answer.header("idempotency-replayed"), Some("true"), "{answer:?}");
    assert_eq!(answer.repeated(), first.repeated());
}

/// Checks one of the gateway's own answers.
#[track_caller]
pub fn is_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["type"], format!("urn:onceward:problem:{code}"), "{problem}");
    assert_eq!(problem["status"], status, "{problem}");
    assert!(problem["title"].is_string() && problem["retry_safe"].is_boolean(), "{problem}");
    if status == 429 || status == 503 {
        retry_after(answer);
    }
}

/// The seconds of Retry-After.
#[track_caller]
pub fn retry_after(answer: &Answer) -> u64 {
    let field = answer.header("retry-after").unwrap_or_else(|| panic!("no Retry-After: {answer:?}"));
    field.parse().unwrap_or_else(|_| panic!("Retry-After: {field}"))
}
