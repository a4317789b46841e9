//! Deliveries that share names, against the claiming code itself over a store whose calls meet in any order, with faults and with
//! deliveries that vanish anywhere: an event is forwarded once at a time, and is never stuck.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod world;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::event::{Delivery, Event, Field, PluginVersion, ScopeKey, StoredBody, StoredResponse, Value};
use onceward::gateway::claims::Finish;
use onceward::gateway::dedupe::{Begin, Dedupe, Held, Item, Shared, Terms};
use onceward::gateway::identity::{DigestKeys, Identity, KeySpace};
use onceward::gateway::journal::Journal;
use onceward::gateway::keyring::Keyring;
use onceward::gateway::meters::RouteMeters;
use onceward::gateway::trail::Trail;
use onceward::idempotency::policy::{
    FinalStatuses, InFlight, KeepRequest, OnFailed, OnMissingKey, OnPluginFailure, OnStoreDown, OnUnknown, Replay,
    ReplayBody,
};
use onceward::idempotency::record::UnknownReason;
use onceward::idempotency::{Outcome, Owner, Policy};
use onceward::store::SealingKeys;
use tokio_util::task::TaskTracker;

use world::{Dice, End, Forward, Slow, crime};

/// Long beside a forward, so that nobody loses a lease that he still holds.
const LEASE: Duration = Duration::from_millis(1200);

/// Schedules that run side by side in one test.
const SCHEDULES: u64 = 300;

/// Two and three deliveries of one event under crossing names.
#[tokio::test]
async fn crossing_names() {
    let shapes: &[&[(&str, &[&str])]] = &[
        &[("k1", &["a"]), ("k2", &["a"])],
        &[("k1", &["a", "b"]), ("k2", &["a", "b"])],
        &[("k1", &["a", "b"]), ("k2", &["a", "b"]), ("k3", &["a", "b"])],
        &[("k1", &["a", "b"]), ("k2", &["b", "c"]), ("k3", &["c", "a"])],
        &[("k1", &["a"]), ("k2", &["a", "b"]), ("k3", &["b"])],
    ];
    schedules(shapes, 0).await;
}

/// Also when one store call in twenty fails, applied or not.
#[tokio::test]
async fn crossing_names_over_a_bad_store() {
    let shapes: &[&[(&str, &[&str])]] =
        &[&[("k1", &["a", "b"]), ("k2", &["a", "b"])], &[("k1", &["a"]), ("k2", &["a", "b"]), ("k3", &["b"])]];
    schedules(shapes, 20).await;
}

/// A body without a key, and the same body with one.
#[tokio::test]
async fn a_body_as_a_key_and_as_a_name() {
    let shapes: &[&[(&str, &[&str])]] =
        &[&[("", &[]), ("k1", &["$body"])], &[("", &[]), ("k1", &["$body"]), ("k2", &["$body", "a"])]];
    schedules(shapes, 0).await;
}

/// A rival read a name while its event was free, and writes over it when that event has been claimed again: it must look again.
#[tokio::test]
async fn a_name_that_was_free_a_moment_ago() {
    for second in [Lot::Done, Lot::Unknown] {
        let rig = Rig::new(1, 0);
        rig.deliver(&("k2", &["a"]), Some(Lot::Unsent)).await;
        let gate = rig.store.hold_takeover();
        let rival = tokio::spawn({
            let rig = rig.clone();
            async move { rig.deliver(&("k1", &["a"]), Some(Lot::Done)).await }
        });
        gate.reached.notified().await;
        rig.deliver(&("k2", &["a"]), Some(second)).await;
        gate.open.notify_one();
        let rival = rival.await.unwrap();
        assert!(!matches!(rival, Got::Forwarded(_)), "the name is the other event's again");
        let forwards = rig.forwards.lock().unwrap();
        assert!(forwards.len() == 2 && crime(&forwards).is_none(), "{forwards:#?}");
    }
}

/// Many schedules of each set of shapes.
async fn schedules(shapes: &'static [&'static [(&str, &[&str])]], faults: u64) {
    let running: Vec<_> =
        (0..SCHEDULES).map(|seed| tokio::spawn(schedule(seed, shapes[seed as usize % shapes.len()], faults))).collect();
    let mut total = Tally::default();
    for run in running {
        let tally = run.await.unwrap();
        total.forwards += tally.forwards;
        total.vanished += tally.vanished;
        total.replays += tally.replays;
    }
    // Or the schedules did not meet what they are for.
    assert!(total.forwards > SCHEDULES as usize && total.vanished > 20 && total.replays > 100, "{total:?}");
}

#[derive(Debug, Default)]
struct Tally {
    forwards: usize,
    vanished: usize,
    replays: usize,
}

/// One schedule: some deliveries at once, some of which vanish; then all again until each is answered.
async fn schedule(seed: u64, shapes: &'static [(&str, &[&str])], faults: u64) -> Tally {
    let rig = Rig::new(seed, faults);
    // Every other schedule begins with names that point at an event which was not sent: free for all.
    if seed.is_multiple_of(2) {
        rig.deliver(&shapes[0], Some(Lot::Unsent)).await;
    }
    let mut running = Vec::new();
    for _ in 0..=rig.dice.roll(2) {
        for shape in shapes {
            let (rig, vanishes) = (rig.clone(), rig.dice.roll(4) == 0);
            running.push(tokio::spawn(async move {
                rig.dice.pause(15).await;
                let delivery = rig.deliver(shape, None);
                if vanishes {
                    let _ = tokio::time::timeout(Duration::from_millis(rig.dice.roll(90)), delivery).await;
                    return true;
                }
                delivery.await;
                false
            }));
        }
    }
    let mut tally = Tally::default();
    for run in running {
        tally.vanished += usize::from(run.await.unwrap());
    }
    *rig.store.faults.lock().unwrap() = 0;
    for shape in shapes {
        rig.settle(seed, shape).await;
    }
    for shape in shapes {
        assert!(rig.settle(seed, shape).await, "seed {seed}: {shape:?} is known by now");
    }
    let forwards = rig.forwards.lock().unwrap();
    assert!(crime(&forwards).is_none(), "seed {seed}: {:#?}\n{forwards:#?}", crime(&forwards));
    tally.forwards = forwards.len();
    tally.replays = *rig.replays.lock().unwrap();
    tally
}

#[derive(Clone)]
struct Rig {
    store: Arc<Slow>,
    dice: Arc<Dice>,
    /// Two gateways on one store.
    gateways: [Dedupe; 2],
    forwards: Arc<Mutex<Vec<Forward>>>,
    replays: Arc<Mutex<usize>>,
    policy: Policy,
    /// The journal's directory.
    _state: Arc<tempfile::TempDir>,
}

impl Rig {
    fn new(seed: u64, faults: u64) -> Self {
        let dice = Arc::new(Dice::new(seed + 1));
        let store = Arc::new(Slow::new(Arc::clone(&dice), faults));
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path(), SealingKeys::new(&[])).unwrap();
        let gateway = || {
            let keys = DigestKeys::new(&[7; 32], []);
            let shared = Shared::new(Keyring::new(Some(keys)), journal.clone());
            Dedupe::new(store.clone(), shared, TaskTracker::new())
        };
        let gateways = [gateway(), gateway()];
        Self {
            gateways,
            store,
            dice,
            _state: Arc::new(state),
            forwards: Arc::default(),
            replays: Arc::default(),
            policy: policy(),
        }
    }

    /// Delivers until the event is answered; whether it was known.
    async fn settle(&self, seed: u64, shape: &(&str, &[&str])) -> bool {
        let end = Instant::now() + LEASE * 6;
        loop {
            match self.deliver(shape, None).await {
                Got::Forwarded(true) => return false,
                Got::Known => return true,
                Got::Forwarded(false) | Got::Later => {}
            }
            assert!(Instant::now() < end, "seed {seed}: {shape:?} is stuck");
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    async fn deliver(&self, shape: &(&str, &[&str]), lot: Option<Lot>) -> Got {
        let gateway = &self.gateways[self.dice.roll(2) as usize];
        let id = identity(shape);
        let mut trail = Trail::new(0, Arc::new(RouteMeters::new("", "")));
        let owner = Owner(trail.event.clone());
        let terms = Terms { route: "pay", policy: &self.policy, with_claim: None, with_mismatch: None, place: None };
        let items = match gateway.begin(&owner, std::slice::from_ref(&id), terms, &mut trail).await {
            Ok(Begin::Fresh(items)) => items,
            Ok(Begin::Replay(_)) => {
                *self.replays.lock().unwrap() += 1;
                return Got::Known;
            }
            Ok(Begin::Busy { .. }) | Err(_) => return Got::Later,
            Ok(other) => panic!("{shape:?}: {other:?}"),
        };
        let [held]: [Held; 1] =
            items.into_iter().filter_map(Item::into_held).collect::<Vec<_>>().try_into().expect("one event");
        self.forward(gateway, &id, &held, lot).await
    }

    /// Forwards: the log has it from its first moment, as one that may vanish.
    async fn forward(&self, gateway: &Dedupe, id: &Identity, held: &Held, lot: Option<Lot>) -> Got {
        let at = {
            let mut forwards = self.forwards.lock().unwrap();
            let names: Vec<ScopeKey> = id.aliases.iter().chain([&id.key, &held.key]).cloned().collect();
            let lease_end = self.store.lease_end(&held.key, held.claim.fence);
            forwards.push(Forward { names, began: Instant::now(), lease_end, end: End::Unsure, ended: None });
            forwards.len() - 1
        };
        self.dice.pause(25).await;
        let lot = lot.unwrap_or_else(|| match self.dice.roll(8) {
            0 | 1 => Lot::Unsent,
            2 => Lot::Failed,
            3 => Lot::Unknown,
            _ => Lot::Done,
        });
        let (outcome, end) = match lot {
            Lot::Unsent => (Outcome::Unsent { error: String::new() }, End::Free),
            Lot::Failed => (Outcome::Answered(answer(500)), End::Free),
            Lot::Unknown => (Outcome::Ambiguous { reason: UnknownReason::Timeout, error: String::new() }, End::Unsure),
            Lot::Done => (Outcome::Answered(answer(200)), End::Kept),
        };
        {
            let forward = &mut self.forwards.lock().unwrap()[at];
            forward.ended = Some(Instant::now());
            forward.end = if end == End::Free { End::Free } else { End::Unsure };
        }
        let finish = gateway.finish(held, outcome, &self.policy).await;
        let kept = end == End::Kept && matches!(finish, Finish::Kept { .. });
        if kept {
            self.forwards.lock().unwrap()[at].end = End::Kept;
        }
        Got::Forwarded(kept)
    }
}

/// What becomes of a forward.
#[derive(Clone, Copy)]
enum Lot {
    Unsent,
    Failed,
    Unknown,
    Done,
}

/// What a delivery got.
enum Got {
    /// It was forwarded; whether it succeeded for all to know.
    Forwarded(bool),
    Known,
    Later,
}

/// A delivery's identity: a key (none: its body is the key) and other names, of which `$body` is its body.
fn identity((key, aliases): &(&str, &[&str])) -> Identity {
    let space = KeySpace { tenant: "t".into(), scope: "pay".into(), namespace: String::new() };
    let delivery = delivery();
    let event = Event {
        key: vec![(*key).to_owned()],
        aliases: aliases.iter().filter(|name| **name != "$body").map(|name| vec![(*name).to_owned()]).collect(),
        material: vec![Field { name: "/amount".into(), value: Value::Number("1".into()) }],
        ..Event::default()
    };
    let plugin = PluginVersion::default();
    if key.is_empty() {
        return Identity::of_body(&space, &plugin, &delivery, &[]).unwrap();
    }
    let id = Identity::of(&space, &plugin, &delivery, &event).unwrap();
    if aliases.contains(&"$body") { id.with_body(&space, &delivery) } else { id }
}

fn delivery() -> Delivery {
    Delivery {
        method: "POST".parse().unwrap(),
        scheme: "http",
        authority: "h".into(),
        path: "/pay".into(),
        query: None,
        params: Vec::new(),
        headers: Default::default(),
        body: bytes::Bytes::from_static(br#"{"amount":1}"#),
        received_at_ms: 0,
        client_certificate: None,
    }
}

fn answer(status: u16) -> StoredResponse {
    StoredResponse { status, headers: Vec::new(), body: StoredBody::Omitted }
}

fn policy() -> Policy {
    Policy {
        window: Duration::from_secs(3600),
        lease: LEASE,
        missing_key: OnMissingKey::HashBody,
        in_flight: InFlight { wait: Duration::from_millis(30), status: 409 },
        mismatch_status: 409,
        unknown: OnUnknown::Retry,
        failed: OnFailed::Retry,
        max_attempts: 5,
        body_alias: true,
        failed_window: Duration::from_secs(1800),
        final_statuses: FinalStatuses::parse(["2xx"]).unwrap(),
        store_down: OnStoreDown::Reject,
        plugin_failure: OnPluginFailure::Reject,
        keep_request: KeepRequest::Never,
        replay: Replay {
            body: ReplayBody::None,
            max_body: 0,
            drop_headers: Vec::new(),
            redact: Vec::new(),
            resource_id: String::new(),
        },
    }
}
