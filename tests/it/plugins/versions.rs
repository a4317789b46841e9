//! A version that fails, and the one before it: through the gateway's own journey, over real guests.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use onceward::app::assemble;
use onceward::config::{Environment, load};
use onceward::gateway::Gateway;
use onceward::gateway::admission::{Limits, Peer};
use onceward::gateway::breaker;
use onceward::gateway::capture::Captures;
use onceward::gateway::dedupe::{Dedupe, Shared};
use onceward::gateway::deployed::Deployed;
use onceward::gateway::journal::Journal;
use onceward::gateway::keyring::Keyring;
use onceward::gateway::limits::Rates;
use onceward::gateway::meters::RouteMeters;
use onceward::gateway::reply::full;
use onceward::gateway::upstream::Upstreams;
use onceward::plugin::aside::Aside;
use onceward::store::{Backend, SealingKeys, Stores};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::guest::{GuestCode, Told};

/// A body of three bytes is what a guest misbehaves on.
const TRIGGER: &str = "now";

/// A gateway in this process, whose route `/pay` has one version before its active one, or none.
struct Rig {
    gateway: Arc<Gateway>,
    _dir: tempfile::TempDir,
}

/// An answer's status, the problem's code and kind, and the key that the upstream got.
#[derive(Debug, PartialEq)]
struct Got {
    status: u16,
    said: String,
    key: String,
}

fn served(key: &str) -> Got {
    Got { status: 200, said: String::new(), key: format!("t:pay:{key}") }
}

fn refused(status: u16, said: &str) -> Got {
    Got { status, said: said.to_owned(), key: String::new() }
}

impl Rig {
    async fn new(active: GuestCode, previous: Option<GuestCode>, plugin_failure: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let had = previous.is_some();
        std::fs::write(path("active.wasm"), active.build()).unwrap();
        std::fs::write(path("previous.wasm"), previous.unwrap_or_else(GuestCode::new).build()).unwrap();
        let route = |name: &str| {
            format!(
                "[[routes]]\ntenant = \"t\"\nname = \"{name}\"\nscope = \"pay\"\npath = \"/{name}\"\nupstream = \"u\"\nplugin = \"file:{}\"\n\
                 plugin_config = {{}}\n[routes.idempotency]\nplugin_failure = \"{plugin_failure}\"\n",
                path(&format!("{name}.wasm"))
            )
        };
        let text = format!(
            "store.url = \"memory:\"\nupstreams.u.url = \"builtin:echo\"\n{}{}",
            route("active"),
            route("previous")
        );
        std::fs::write(path("onceward.toml"), text).unwrap();
        let config = load(Some(&dir.path().join("onceward.toml")), &Environment::default()).unwrap();
        let routes = Arc::new(assemble::routes(&config, &assemble::engine(&config).unwrap()).await.unwrap());
        let of = |name: &str| Arc::clone(&routes.named("t", name).unwrap().plugin.now().unwrap().active);
        let deployed = Deployed { active: of("active"), previous: had.then(|| of("previous")), shadow: None };
        routes.named("t", "active").unwrap().plugin.set(Some(deployed));
        let store = Stores::open(Backend::Memory, Duration::from_secs(1)).await.unwrap().handle();
        let journal = Journal::open(&dir.path().join("journal"), SealingKeys::new(&[])).unwrap();
        let gateway = Gateway {
            routes,
            limits: Limits::of(&config.server),
            rates: Rates::new(&config.server, &config.tenants),
            aside: Aside::start(NonZeroUsize::MIN).unwrap(),
            captures: Captures::open(dir.path(), SealingKeys::new(&[]), &[]).unwrap(),
            upstreams: Upstreams::new(&config.upstreams),
            dedupe: Dedupe::new(store, Shared::new(Keyring::new(None), journal), TaskTracker::new()),
            unrouted: Arc::new(RouteMeters::new("", "")),
        };
        Self { gateway: Arc::new(gateway), _dir: dir }
    }

    async fn deliver(&self, body: &str) -> Got {
        let request = Request::post("/active").header("host", "gateway").body(full(body.to_owned().into())).unwrap();
        let peer = Peer { address: IpAddr::V4(Ipv4Addr::LOCALHOST), tls: false };
        let (head, body) = Arc::clone(&self.gateway).handle(request, peer).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let told: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if head.status == StatusCode::SERVICE_UNAVAILABLE {
            assert!(head.headers.contains_key("retry-after"), "{head:?}");
        }
        let key = if head.status == 200 { text(&told["idempotency_key"]) } else { String::new() };
        let said = [text(&told["code"]), text(&told["kind"])].join(" ");
        Got { status: head.status.as_u16(), said: said.trim().to_owned(), key }
    }

    /// The same answer, so often.
    async fn times(&self, times: u32, body: &str, expected: &Got) {
        for at in 0..times {
            assert_eq!(&self.deliver(body).await, expected, "delivery {at}");
        }
    }

    fn is_degraded(&self) -> bool {
        !breaker::reasons(&self.gateway.routes).is_empty()
    }
}

/// Names the key `old` where the other version fails.
fn old() -> GuestCode {
    GuestCode::new().process(&[Told::key(&["old"])])
}

const LOOP: &str = "(loop $again (br $again)) (unreachable)";
const GROW: &str = "(loop $more (drop (memory.grow (i32.const 100))) (br $more)) (unreachable)";

/// `plugin_failure = "previous"`: whatever the failure and wherever it comes, the version before reads the delivery.
#[tokio::test]
async fn the_previous_version_stands_in() {
    let guests = [
        GuestCode::new().verify("(unreachable)"),
        GuestCode::new().extract("(unreachable)"),
        GuestCode::new().verify(LOOP),
        GuestCode::new().extract(GROW),
        GuestCode::new().extract("(i32.const -4)"),
        GuestCode::new().respond(200, &[("x-a", b"1\r\nx-evil: 1")], b""),
        GuestCode::new().verify_error(2, "a kind that is new"),
    ];
    for guest in guests {
        let rig = Rig::new(guest, Some(old()), "previous").await;
        rig.times(2, TRIGGER, &served("old")).await;
        rig.times(2, "a good event", &served("k")).await;
    }
}

/// Without a version before, or when that one fails too, it is as `reject`.
#[tokio::test]
async fn without_a_version_that_works_it_is_refused() {
    let trap = || GuestCode::new().extract("(unreachable)");
    let refused = refused(503, "plugin-failed guest-trap");
    Rig::new(trap(), None, "previous").await.times(2, TRIGGER, &refused).await;
    Rig::new(trap(), Some(GuestCode::new().verify(LOOP)), "previous").await.times(2, TRIGGER, &refused).await;
    // `reject` asks nobody else.
    Rig::new(trap(), Some(old()), "reject").await.times(2, TRIGGER, &refused).await;
}

/// The version before decides on the sender again. Its refusal counts unless the active version had verified him.
#[tokio::test]
async fn the_previous_version_verifies_too() {
    let stranger = || GuestCode::new().invalid("no", None);
    let rig = Rig::new(GuestCode::new().verify("(unreachable)"), Some(stranger()), "previous").await;
    rig.times(2, TRIGGER, &refused(401, "unverified")).await;
    let rig = Rig::new(GuestCode::new().extract("(unreachable)"), Some(stranger()), "previous").await;
    rig.times(2, TRIGGER, &refused(503, "plugin-failed guest-trap")).await;
}

/// Twenty genuine deliveries that fail: the version is left alone, for all of its deliveries, and the one before serves.
#[tokio::test]
async fn a_version_that_fails_is_left_alone() {
    let rig = Rig::new(GuestCode::new().extract("(unreachable)"), Some(old()), "reject").await;
    rig.times(20, TRIGGER, &refused(503, "plugin-failed guest-trap")).await;
    assert!(rig.is_degraded());
    rig.times(3, TRIGGER, &served("old")).await;
    rig.times(3, "a good event", &served("k")).await;
    let reasons = breaker::reasons(&rig.gateway.routes);
    assert!(reasons.len() == 1 && reasons[0].contains("serves instead"), "{reasons:?}");
}

/// Nobody serves when there is no version before, and no time is spent.
#[tokio::test]
async fn without_a_version_before_deliveries_are_refused_unread() {
    let rig = Rig::new(GuestCode::new().extract("(unreachable)"), None, "forward").await;
    rig.times(20, TRIGGER, &Got { key: String::new(), ..served("") }).await;
    rig.times(3, TRIGGER, &refused(503, "plugin-failed breaker-open")).await;
    rig.times(3, "a good event", &refused(503, "plugin-failed breaker-open")).await;
    assert!(breaker::reasons(&rig.gateway.routes)[0].contains("refused"));
}

/// What is not known to be genuine switches nothing off.
#[tokio::test]
async fn junk_leaves_a_version_on() {
    let trap = || GuestCode::new().verify("(unreachable)");
    let failed = refused(503, "plugin-failed guest-trap");
    for previous in [None, Some(GuestCode::new().invalid("no", None)), Some(GuestCode::new().verify("(unreachable)"))] {
        let rig = Rig::new(trap(), previous, "reject").await;
        rig.times(50, TRIGGER, &failed).await;
        assert!(!rig.is_degraded());
        rig.times(2, "a good event", &served("k")).await;
    }
    // The same failures on what the version before says is genuine.
    let rig = Rig::new(trap(), Some(old()), "reject").await;
    rig.times(20, TRIGGER, &failed).await;
    assert!(rig.is_degraded());
    rig.times(2, TRIGGER, &served("old")).await;
}

/// What the request is to blame for switches nothing off either, and neither do fewer failures than successes.
#[tokio::test]
async fn refusals_and_rare_failures_leave_a_version_on() {
    for (case, expected) in [(0, refused(400, "malformed")), (2, refused(503, "plugin-failed plugin-error"))] {
        let rig = Rig::new(GuestCode::new().verify_error(case, "no"), Some(old()), "reject").await;
        rig.times(40, TRIGGER, &expected).await;
        assert!(!rig.is_degraded());
    }
    let rig = Rig::new(GuestCode::new().extract("(unreachable)"), Some(old()), "reject").await;
    rig.times(30, "a good event", &served("k")).await;
    rig.times(29, TRIGGER, &refused(503, "plugin-failed guest-trap")).await;
    assert!(!rig.is_degraded());
    rig.times(1, TRIGGER, &refused(503, "plugin-failed guest-trap")).await;
    assert!(rig.is_degraded());
}
