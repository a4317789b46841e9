//! Several events in one request, §4: all go on together or none does.

use std::time::{Duration, Instant};

use serde_json::json;

use super::rig::{is_first, is_problem, is_replay};
use crate::plugins::guest::{GuestCode, Material, Told};
use crate::support::client::{Answer, exchange, post, request};
use crate::support::gateway::{Gateway, Home};
use crate::support::redis::RedisServer;
use crate::support::upstream::{Act, Upstream, answer, later};

/// A body of three bytes is what a guest names its events for.
const TRIGGER: &str = "now";

/// A gateway with a route for each batch, all in one scope, and an upstream behind it.
struct Batches {
    gateway: Gateway,
    upstream: Upstream,
}

impl Batches {
    async fn start(store: &str, routes: &[(&str, Vec<Told>)], policy: &str) -> Self {
        Self::over(store, Upstream::counting().await, routes, policy)
    }

    fn over(store: &str, upstream: Upstream, routes: &[(&str, Vec<Told>)], policy: &str) -> Self {
        let mut text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = \"{{dir}}/state\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nurl = \"{store}\"\n[tenants.t]\nlimits = {{ rate = \"100000/s\" }}\n[upstreams.u]\nurl = \"http://{}\"\n",
            upstream.address
        );
        for (name, _) in routes {
            text += &format!(
                "[[routes]]\ntenant = \"t\"\nname = \"{name}\"\npath = \"/{name}\"\nscope = \"pay\"\nupstream = \"u\"\n\
                 plugin = \"file:{{dir}}/{name}.wasm\"\nplugin_config = {{}}\n[routes.idempotency]\n{policy}\n"
            );
        }
        let home = Home::new(&text);
        for (name, events) in routes {
            let code = GuestCode::new().process(events).build();
            std::fs::write(home.path().join(format!("{name}.wasm")), code).unwrap();
        }
        Self { gateway: home.start(), upstream }
    }

    async fn send(&self, route: &str) -> Answer {
        post(self.gateway.ingest, &format!("/{route}"), &[], TRIGGER).await
    }

    /// Sends a batch that the upstream holds on to.
    async fn under_way(&self, route: &str) -> tokio::task::JoinHandle<Result<Answer, Vec<u8>>> {
        let before = self.upstream.count();
        let (to, bytes) =
            (self.gateway.ingest, request(self.gateway.ingest, "POST", &format!("/{route}"), &[], TRIGGER.as_bytes()));
        let delivery = tokio::spawn(async move { exchange(to, &bytes).await });
        self.upstream.arrived(before + 1).await;
        delivery
    }

    /// What the upstream was told of the last forward's items.
    fn items(&self) -> Option<String> {
        self.upstream.hits().last().and_then(|hit| hit.header("onceward-items")).map(str::to_owned)
    }
}

fn told(key: &'static str, alias: Option<&'static str>, amount: &'static str) -> Told {
    Told {
        key: vec![key],
        aliases: alias.map(|alias| vec![alias]).into_iter().collect(),
        material: vec![("/amount".to_owned(), Material::Number(amount))],
    }
}

/// Known and new together: forwarded whole, each item named; all known: the first item's answer.
#[tokio::test]
async fn mixed_batches() {
    let (a, b) = (told("a", None, "1"), told("b", None, "1"));
    let routes = [("one", vec![a.clone()]), ("two", vec![a.clone(), b.clone()]), ("back", vec![b, a])];
    let rig = Batches::start("memory:", &routes, "").await;
    let first = rig.send("one").await;
    is_first(&first, "call 0");
    let second = rig.send("two").await;
    is_first(&second, "call 1");
    assert_eq!(rig.items().as_deref(), Some("replay, first"));
    assert_eq!(rig.upstream.hits()[1].body, TRIGGER.as_bytes(), "whole");
    is_replay(&rig.send("two").await, &first);
    is_replay(&rig.send("back").await, &second);
    assert_eq!(rig.upstream.count(), 2);
}

#[tokio::test]
async fn repeats_by_alias_on_memory() {
    repeats_by_alias("memory:").await;
}

#[tokio::test]
async fn repeats_by_alias_on_redis() {
    let redis = RedisServer::start();
    repeats_by_alias(&redis.url()).await;
}

/// Events of one request that share a name are one event: claimed once, whichever of them comes first in the request; and known
/// by each of their names afterwards.
async fn repeats_by_alias(store: &str) {
    let event = |key, alias| told(key, Some(alias), "1");
    let routes = [
        ("pair", vec![event("a", "x"), event("b", "x")]),
        ("back", vec![event("b", "x"), event("a", "x")]),
        ("three", vec![event("c", "y"), told("d", None, "1"), event("e", "y")]),
        ("mixed", vec![event("f", "x"), event("g", "z")]),
    ];
    let rig = Batches::start(store, &routes, "").await;
    let first = rig.send("pair").await;
    is_first(&first, "call 0");
    assert_eq!(rig.items().as_deref(), Some("first, replay"));
    is_replay(&rig.send("pair").await, &first);
    is_replay(&rig.send("back").await, &first);
    is_first(&rig.send("three").await, "call 1");
    assert_eq!(rig.items().as_deref(), Some("first, first, replay"));
    is_first(&rig.send("mixed").await, "call 2");
    assert_eq!(rig.items().as_deref(), Some("replay, first"), "f is a by another name");
    is_replay(&rig.send("mixed").await, &first);
    assert_eq!(rig.upstream.count(), 3);
}

/// The same key or a shared alias with other material inside one request: refused, the differing field named, nothing claimed.
#[tokio::test]
async fn a_mismatch_inside_a_batch() {
    let routes = [
        ("key", vec![told("b", None, "1"), told("a", None, "1"), told("a", None, "2")]),
        ("alias", vec![told("c", Some("x"), "1"), told("b", None, "1"), told("d", Some("x"), "2")]),
        ("b", vec![told("b", None, "1")]),
        ("c", vec![told("c", Some("x"), "1")]),
    ];
    for policy in ["", "mismatch = { status = 202 }"] {
        let rig = Batches::start("memory:", &routes, policy).await;
        for route in ["key", "alias", "key"] {
            let refused = rig.send(route).await;
            is_problem(&refused, 409, "fingerprint-mismatch");
            assert_eq!(refused.json()["fields"], json!(["/amount"]), "{route}");
        }
        assert_eq!(rig.upstream.count(), 0);
        is_first(&rig.send("b").await, "call 0");
        is_first(&rig.send("c").await, "call 1");
    }
}

/// An upstream that breaks what comes by `/held`, and is slow with what comes by `/runs`.
async fn moody() -> Upstream {
    Upstream::start(|hit, at| match hit.target.as_str() {
        "/held" => Act::Reset,
        "/runs" => later(2500, answer(200, &[], b"late")),
        _ => answer(200, &[], format!("call {at}").as_bytes()),
    })
    .await
}

/// A mismatch decides before a held event, that before a busy one; whatever it is, nothing is forwarded and the others are free.
#[tokio::test]
async fn what_decides_a_batch() {
    let event = |key| told(key, None, "1");
    let routes = [
        ("held", vec![event("h")]),
        ("runs", vec![event("r")]),
        ("done", vec![event("d")]),
        ("busy", vec![event("n1"), event("r"), event("d")]),
        ("waits", vec![event("r"), event("n2"), event("h")]),
        ("differs", vec![event("n3"), event("r"), event("h"), told("d", None, "2")]),
        ("new", vec![event("n1"), event("n2"), event("n3")]),
    ];
    for status in [409, 202] {
        let policy = format!("unknown = \"hold\"\nin_flight = {{ wait = \"0s\" }}\nmismatch = {{ status = {status} }}");
        let rig = Batches::over("memory:", moody().await, &routes, &policy);
        is_problem(&rig.send("held").await, 502, "upstream-failed");
        is_first(&rig.send("done").await, "call 1");
        let running = rig.under_way("runs").await;
        let before = rig.upstream.count();
        is_problem(&rig.send("busy").await, 409, "in-flight");
        is_problem(&rig.send("waits").await, 409, "held");
        let refused = rig.send("differs").await;
        is_problem(&refused, 409, "fingerprint-mismatch");
        assert_eq!(refused.json()["fields"], json!(["/amount"]));
        assert_eq!(rig.upstream.count(), before, "nothing was forwarded");
        is_first(&rig.send("new").await, &format!("call {before}"));
        assert_eq!(rig.items().as_deref(), Some("first, first, first"));
        is_first(&running.await.unwrap().unwrap(), "late");
    }
}

/// A thousand events are claimed, finished and replayed in a few seconds, on every store.
#[tokio::test]
async fn a_thousand_events() {
    let redis = RedisServer::start();
    let event = |at: usize| {
        let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        told(leaked(format!("k{at}")), Some(leaked(format!("a{at}"))), "1")
    };
    let routes = [("all", (0..1000).map(event).collect()), ("one", vec![event(500)])];
    for store in ["memory:", "sqlite:{dir}/onceward.db", &redis.url()] {
        let rig = Batches::start(store, &routes, "").await;
        let began = Instant::now();
        let first = rig.send("all").await;
        let claimed = began.elapsed();
        is_first(&first, "call 0");
        is_replay(&rig.send("all").await, &first);
        is_replay(&rig.send("one").await, &first);
        let whole = began.elapsed();
        assert!(whole < Duration::from_secs(15), "{store}: {claimed:?}, {whole:?}");
        assert_eq!(rig.upstream.count(), 1);
    }
}
