//! What a seed decides, who sends, and the upstream that writes down what it gets before it answers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::framing;
use super::log::{Delivered, Lines, Received};
use crate::support::client::{Answer, exchange, request};
use crate::support::gateway::Gateway;
use crate::support::random::Random;
use crate::support::upstream::{Act, Hit, Upstream, answer, later};

/// Two tenants with the same routes, ids and bodies, but for a canary of each.
pub const TENANTS: [&str; 2] = ["t", "u"];

/// Ids from here on are slow at the upstream at first, so that a gateway can be stopped while it forwards them.
pub const SLOW: u64 = 10_000;

/// What only this tenant's payloads hold.
fn canary(seed: u64, tenant: &str) -> String {
    format!("canary-{}", digest(format!("{seed} {tenant}").as_bytes()))
}

/// The tenants whose canary the bytes carry.
pub fn canaries(seed: u64, bytes: &[u8]) -> Vec<String> {
    let carries = |tenant: &&&str| {
        let canary = canary(seed, tenant);
        bytes.windows(canary.len()).any(|window| window == canary.as_bytes())
    };
    TENANTS.iter().filter(carries).map(|&tenant| tenant.to_owned()).collect()
}

/// A business event: whose it is, what its id is, and which of the events that carry it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Index in [`TENANTS`].
    pub tenant: usize,
    pub id: u64,
    pub variant: u32,
}

impl Event {
    pub fn key(self) -> String {
        format!("{}:pay:evt_{}", TENANTS[self.tenant], self.id)
    }

    /// Where it is sent.
    fn path(self) -> String {
        format!("/pay/{}", TENANTS[self.tenant])
    }

    /// Some are small, some fill several packets; the same event has always the same bytes.
    pub fn body(self, seed: u64) -> Vec<u8> {
        let mut random = Random(seed ^ (self.id << 8));
        let filler = if random.percent(20) { random.below(60_000) } else { random.below(200) };
        let filler: String = (0..filler).map(|_| char::from(b' ' + u8::try_from(random.below(90)).unwrap())).collect();
        let canary = canary(seed, TENANTS[self.tenant]);
        json!({ "id": format!("evt_{}", self.id), "amount": self.variant, "filler": filler, "canary": canary })
            .to_string()
            .into_bytes()
    }
}

/// Sends events to gateways and writes down what it was told.
pub struct Driver {
    pub seed: u64,
    pub gateways: Mutex<Vec<Option<Gateway>>>,
    pub lines: Lines,
    pub delivered: Mutex<Vec<Delivered>>,
}

impl Driver {
    pub fn new(seed: u64, gateways: Vec<Gateway>, lines: Lines) -> Self {
        let gateways = Mutex::new(gateways.into_iter().map(Some).collect());
        Self { seed, gateways, lines, delivered: Mutex::default() }
    }

    /// One delivery to one gateway; the status and what the gateway did, if a whole answer came.
    pub async fn deliver(&self, gateway: usize, event: Event) -> Option<(u16, String)> {
        let address = self.gateways.lock().unwrap()[gateway].as_ref().map(|gateway| gateway.ingest)?;
        let body = event.body(self.seed);
        let sent_at = self.lines.now();
        let told = exchange(address, &request(address, "POST", &event.path(), &[], &body)).await.ok();
        let delivered = Delivered {
            key: event.key(),
            variant: event.variant,
            sent_at,
            told_at: self.lines.now(),
            status: told.as_ref().map(|answer| answer.status),
            idempotency: told.as_ref().map(|answer| answer.idempotency().to_owned()).unwrap_or_default(),
            kept: told.as_ref().is_some_and(|answer| answer.header("idempotency-expires").is_some()),
            answer: told
                .as_ref()
                .map(|answer| digest(format!("{:?}", answer.repeated()).as_bytes()))
                .unwrap_or_default(),
            body: digest(&body),
            event: told.as_ref().and_then(|answer| answer.header("onceward-event")).unwrap_or_default().to_owned(),
            canaries: told.as_ref().map(|answer| canaries(self.seed, &raw(answer))).unwrap_or_default(),
        };
        self.lines.append(delivered.line(), false);
        self.delivered.lock().unwrap().push(delivered);
        told.map(|answer| (answer.status, answer.idempotency().to_owned()))
    }

    /// Redelivers an event, or the other one under its key where that came first, until it has succeeded.
    pub async fn settle(&self, mut event: Event, within: Duration) -> Result<(), String> {
        let end = Instant::now() + within;
        loop {
            let told = self.deliver(0, event).await;
            match &told {
                Some((200..=299, _)) => return Ok(()),
                Some((409, did)) if did == "mismatch" && event.variant < 1 => event.variant += 1,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            if Instant::now() > end {
                return Err(format!("{} had no answer in the end: {told:?}", event.key()));
            }
        }
    }
}

/// All of an answer, to be searched.
fn raw(answer: &Answer) -> Vec<u8> {
    let head: String = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    [head.as_bytes(), &answer.body].concat()
}

pub fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..8])
}

/// What the recording upstream shares with its runs.
pub struct Recording {
    pub upstream: Upstream,
    pub received: Arc<Mutex<Vec<Received>>>,
    /// Faults are over: from now on it answers well.
    pub healed: Arc<Mutex<bool>>,
    pub faults: Arc<Mutex<u64>>,
}

/// An upstream that writes each request to the disk before it answers, and answers as the seed says for the call.
pub async fn recording(seed: u64, path: &Path, run: &str, started: Instant) -> Recording {
    let lines = Lines::create(path, run, started);
    let received = Arc::<Mutex<Vec<Received>>>::default();
    let (healed, faults) = (Arc::<Mutex<bool>>::default(), Arc::<Mutex<u64>>::default());
    let calls = Mutex::<HashMap<String, u64>>::default();
    let (all, calm, count) = (Arc::clone(&received), Arc::clone(&healed), Arc::clone(&faults));
    let upstream = Upstream::start(move |hit, _| {
        let key = hit.header("idempotency-key").unwrap_or_default().to_owned();
        let call = {
            let mut calls = calls.lock().unwrap();
            let call = calls.entry(key.clone()).or_default();
            *call += 1;
            *call
        };
        let mut random = Random(seed ^ u64::from_str_radix(&digest(key.as_bytes()), 16).unwrap() ^ (call << 32));
        let canaries = canaries(seed, &[hit.head.as_slice(), &hit.body].concat());
        let slow = key.rsplit('_').next().and_then(|id| id.parse().ok()).is_some_and(|id: u64| id >= SLOW);
        let echo: Vec<String> = canaries.iter().map(|tenant| canary(seed, tenant)).collect();
        let (processed, act) = match fate(&mut random, &echo, call, slow || *calm.lock().unwrap()) {
            // The first until its gateway is stopped, the second until that goes on.
            (processed, act) if slow && call <= 2 => (processed, later(call * 250, act)),
            fate => fate,
        };
        *count.lock().unwrap() += u64::from(!matches!(act, Act::Write(_)) || !processed);
        let received = of(hit, key, canaries, lines.now(), processed);
        lines.append(received.line(), true);
        all.lock().unwrap().push(received);
        act
    })
    .await;
    Recording { upstream, received, healed, faults }
}

fn of(hit: &Hit, key: String, canaries: Vec<String>, at: u64, processed: bool) -> Received {
    let number = |name: &str| hit.header(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    Received {
        key,
        at,
        attempt: u32::try_from(number("onceward-attempt")).unwrap(),
        fence: number("onceward-fence"),
        event: hit.header("onceward-event").unwrap_or_default().to_owned(),
        body: digest(&hit.body),
        processed,
        canaries,
        misframed: framing::faults(hit),
    }
}

/// Whether it takes effect, and what the gateway sees of that. The answer carries the canaries of the request.
fn fate(random: &mut Random, canaries: &[String], call: u64, healed: bool) -> (bool, Act) {
    let length = if random.percent(20) { 0 } else { random.below(5_000) };
    let mut body = call.to_be_bytes().to_vec();
    body.extend((0..length).map(|_| u8::try_from(random.below(256)).unwrap()));
    if random.percent(10) {
        body.clear();
    }
    let call = call.to_string();
    let canaries = canaries.join(" ");
    let whole = answer(200, &[("x-call", &call), ("x-for", &canaries), ("x-twice", "a"), ("x-twice", "b")], &body);
    let cut = |act: Act| match act {
        Act::Write(bytes) => Act::WriteAndClose(bytes[..bytes.len() / 2].to_vec()),
        other => other,
    };
    match random.below(100) {
        _ if healed => (true, whole),
        0..4 => (false, Act::Reset),
        4..8 => (true, Act::Reset),
        8..12 => (true, cut(whole)),
        12..18 => (false, answer(503, &[], b"later")),
        18..24 => (true, later(random.below(1_500), whole)),
        _ => (true, whole),
    }
}

/// A line of figures as [`Value`], for the promise sheet.
pub fn line(pairs: &[(&str, Value)]) -> String {
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("\t")
}
