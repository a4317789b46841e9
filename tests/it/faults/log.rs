//! The three logs of a run, and one entry of each. Append-only JSON lines, so that a run can be checked again later.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::{Value, json};

/// One delivery, as its sender saw it.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub key: String,
    /// Which of the events under the key: 0 is the one that is sent until it is answered.
    pub variant: u32,
    /// When it was sent and when its answer was whole, in microseconds of the run.
    pub sent_at: u64,
    pub told_at: u64,
    /// The status; none: no whole answer came.
    pub status: Option<u16>,
    /// What the gateway says it did.
    pub idempotency: String,
    /// The gateway says until when the answer is kept.
    pub kept: bool,
    /// Digest of all that a replay must repeat.
    pub answer: String,
    /// Digest of the body that was sent.
    pub body: String,
    /// The gateway's id of the delivery; empty when none came.
    pub event: String,
    /// The tenants whose canary the answer carries, anywhere in it.
    pub canaries: Vec<String>,
}

/// One request at the upstream, written down before it was answered.
#[derive(Clone, Debug)]
pub struct Received {
    pub key: String,
    pub at: u64,
    pub attempt: u32,
    pub fence: u64,
    /// The delivery that the gateway made it for.
    pub event: String,
    /// Digest of the body.
    pub body: String,
    /// It took effect.
    pub processed: bool,
    /// The tenants whose canary it carries, anywhere in it.
    pub canaries: Vec<String>,
    /// What of its framing is not the one plain way.
    pub misframed: Vec<String>,
}

/// One thing that a gateway said about a key.
#[derive(Clone, Debug)]
pub struct Audited {
    pub kind: Kind,
    pub key: String,
    pub event: String,
    pub fence: u64,
}

/// What a gateway reports, as far as a promise hangs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The forward that follows may be a second one.
    SecondForward,
    /// Another owner has the event.
    LeaseLost,
    /// The outcome was never written.
    FinaliseFailure,
    /// The store was emptied. Counts for every key.
    WindowReset,
    /// The store lost this claim, and its outcome was written anew.
    ClaimGone,
}

/// One delivery, as its gateway logged it.
#[derive(Clone, Debug, Default)]
pub struct Logged {
    pub event: String,
    pub key: String,
    pub fingerprint: String,
    pub decision: String,
    pub state_after: String,
}

/// One gateway process, from its start to its end.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// It was killed: its counters are as they were read before that, and what it had under way went without a word.
    pub killed: bool,
    pub logged: Vec<Logged>,
    /// What its log lines make of each counter that they stand for.
    pub lines: BTreeMap<String, u64>,
    /// The same counters, as it told them.
    pub counters: BTreeMap<String, u64>,
    /// The tenants whose canary its log or its metrics carry.
    pub canaries: Vec<String>,
    /// What it used when all was quiet: warm and before any fault, and after all of them.
    pub used: Option<(Resources, Resources)>,
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub rss_kib: u64,
    pub fds: u64,
    pub threads: u64,
    /// Claims that it says are at work.
    pub processing: u64,
    /// It says that it may get traffic.
    pub ready: bool,
}

/// A time in which the store lost writes that it had acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Writes before that are safe; 0: none is.
    pub from: u64,
    /// And those after that.
    pub until: u64,
    /// It lost everything, and every gateway is to say so.
    pub emptied: bool,
}

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub delivered: Vec<Delivered>,
    pub received: Vec<Received>,
    pub audited: Vec<Audited>,
    pub processes: Vec<Process>,
    pub losses: Vec<Loss>,
}

/// An append-only file of JSON lines, on the disk before `append` returns.
pub struct Lines {
    file: Mutex<File>,
    run: String,
    started: Instant,
}

impl Lines {
    pub fn create(path: &Path, run: &str, started: Instant) -> Self {
        Self { file: Mutex::new(File::create(path).unwrap()), run: run.to_owned(), started }
    }

    /// The run's clock.
    pub fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap()
    }

    /// Adds a line with the run's name.
    pub fn append(&self, mut line: Value, durable: bool) {
        line["run"] = json!(self.run);
        let mut file = self.file.lock().unwrap();
        writeln!(file, "{line}").unwrap();
        if durable {
            file.sync_data().unwrap();
        }
    }
}

impl Delivered {
    pub fn line(&self) -> Value {
        json!({ "key": self.key, "variant": self.variant, "sent_at": self.sent_at, "told_at": self.told_at, "status": self.status,
            "idempotency": self.idempotency, "kept": self.kept, "answer": self.answer, "body": self.body,
            "event": self.event, "canaries": self.canaries })
    }
}

impl Received {
    pub fn line(&self) -> Value {
        json!({ "key": self.key, "at": self.at, "attempt": self.attempt, "fence": self.fence, "event": self.event,
            "body": self.body, "processed": self.processed, "canaries": self.canaries, "misframed": self.misframed })
    }
}

/// The lines of a log that are whole; a killed process may leave half of one.
fn lines(log: &str) -> impl Iterator<Item = Value> {
    log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok())
}

fn text(line: &Value, name: &str) -> String {
    line[name].as_str().unwrap_or_default().to_owned()
}

/// What a gateway's audit says of keys.
pub fn audited(log: &str) -> Vec<Audited> {
    let mut all = Vec::new();
    for line in lines(log) {
        let kind = match (text(&line, "kind").as_str(), text(&line, "message").as_str()) {
            ("second_forward", _) => Kind::SecondForward,
            ("lease_lost", _) => Kind::LeaseLost,
            ("finalise_failure", _) => Kind::FinaliseFailure,
            ("window_reset", _) => Kind::WindowReset,
            (_, message) if message.starts_with("the claim is gone from the store") => Kind::ClaimGone,
            _ => continue,
        };
        let (key, event) = (text(&line, "idempotency_key"), text(&line, "event"));
        all.push(Audited { kind, key, event, fence: line["fence"].as_u64().unwrap_or(0) });
    }
    all
}

/// What a gateway says of each delivery.
pub fn logged(log: &str) -> Vec<Logged> {
    let of = |line: Value| Logged {
        event: text(&line, "event"),
        key: text(&line, "idempotency_key"),
        fingerprint: text(&line, "fingerprint"),
        decision: text(&line, "decision"),
        state_after: text(&line, "state_after"),
    };
    lines(log).filter(|line| line["target"] == "onceward::event").map(of).collect()
}

/// The counters that each line of the log stands for, by the line's kind.
const COUNTED: [(&str, &str); 5] = [
    ("mismatch", "onceward_mismatches_total"),
    ("lease_lost", "onceward_lease_lost_total"),
    ("unknown_outcome", "onceward_unknown_outcomes_total"),
    ("finalise_failure", "onceward_finalise_failures_total"),
    ("window_reset", "onceward_window_resets_total"),
];
const BY_DECISION: [(&str, &str); 2] =
    [("replay", "onceward_replays_total"), ("in-flight", "onceward_in_flight_conflicts_total")];
const REQUESTS: &str = "onceward_requests_total";

/// What the counters must be, by the log.
pub fn counted(log: &str) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    let mut count = |name: String| *counted.entry(name).or_default() += 1;
    for line in lines(log) {
        let labels = format!("tenant=\"{}\",route=\"{}\"", text(&line, "tenant"), text(&line, "route"));
        if line["target"] == "onceward::event" {
            let decision = text(&line, "decision");
            count(format!("{REQUESTS}{{{labels},outcome=\"{decision}\"}}"));
            for (_, name) in BY_DECISION.iter().filter(|(word, _)| *word == decision) {
                count(format!("{name}{{{labels}}}"));
            }
        } else if line["target"] == "onceward::audit" {
            for (kind, name) in COUNTED.iter().filter(|(kind, _)| line["kind"] == *kind) {
                count(if *kind == "window_reset" { (*name).to_owned() } else { format!("{name}{{{labels}}}") });
            }
        }
    }
    counted
}

/// The same counters of a page of metrics, without those that are 0.
pub fn counters(metrics: &str) -> BTreeMap<String, u64> {
    let known = |name: &str| {
        let family = name.split(['{', ' ']).next().unwrap_or_default();
        family == REQUESTS || COUNTED.iter().chain(&BY_DECISION).any(|(_, known)| *known == family)
    };
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse::<u64>().ok().filter(|value| *value > 0)?))
    };
    metrics.lines().filter(|line| known(line)).filter_map(sample).collect()
}
