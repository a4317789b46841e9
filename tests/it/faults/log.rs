//! The three logs of a run, and one entry of each. Append-only JSON lines, so that a run can be checked again later.

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
    /// The store was emptied, or lost what it had acknowledged. Counts for every key.
    WindowReset,
}

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub delivered: Vec<Delivered>,
    pub received: Vec<Received>,
    pub audited: Vec<Audited>,
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
            "idempotency": self.idempotency, "kept": self.kept, "answer": self.answer, "body": self.body })
    }
}

impl Received {
    pub fn line(&self) -> Value {
        json!({ "key": self.key, "at": self.at, "attempt": self.attempt, "fence": self.fence, "event": self.event,
            "body": self.body, "processed": self.processed })
    }
}

/// What a gateway's audit says of keys.
pub fn audited(log: &str) -> Vec<Audited> {
    let mut all = Vec::new();
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
        let text = |name: &str| fields[name].as_str().unwrap_or_default();
        let kind = match (text("kind"), text("message")) {
            ("second_forward", _) => Kind::SecondForward,
            ("lease_lost", _) => Kind::LeaseLost,
            ("finalise_failure", _) => Kind::FinaliseFailure,
            ("window_reset", _) => Kind::WindowReset,
            (_, message) if message.starts_with("the claim is gone from the store") => Kind::WindowReset,
            _ => continue,
        };
        let key = text("idempotency_key").to_owned();
        all.push(Audited { kind, key, event: text("event").to_owned(), fence: fields["fence"].as_u64().unwrap_or(0) });
    }
    all
}
