//! What is said of one delivery in the log: filled along the journey, written once at its end.

use std::time::Instant;

use super::dedupe::{Begin, Item};
use super::rejection::Rejection;
use super::reply::{IdempotencyStatus, Reply};

/// One delivery's line in the log. Ids, digests and counts only: never a body, a header's value or a secret.
#[derive(Debug)]
pub struct Trail {
    /// This delivery's id: the owner token of its claims too.
    pub event: String,
    /// The trace that the upstream continues.
    pub trace_id: String,
    started: Instant,
    tenant: String,
    route: String,
    idempotency_key: String,
    /// The event's own key, when this delivery knew it by another name.
    known_as: Option<String>,
    fingerprint: String,
    state_before: &'static str,
    state_after: &'static str,
    /// Of the forward that this delivery made; 0 when it made none.
    attempt: u32,
    /// Likewise.
    fence: u64,
    upstream_status: Option<u16>,
    note: Option<String>,
}

impl Trail {
    /// Starts at a request's arrival.
    pub fn new(received_at_ms: u64) -> Self {
        Self {
            event: event_id(received_at_ms),
            trace_id: random_hex::<16>(),
            started: Instant::now(),
            tenant: String::new(),
            route: String::new(),
            idempotency_key: String::new(),
            known_as: None,
            fingerprint: String::new(),
            state_before: "",
            state_after: "",
            attempt: 0,
            fence: 0,
            upstream_status: None,
            note: None,
        }
    }

    /// Where it goes.
    pub fn routed(&mut self, tenant: &str, route: &str) {
        tenant.clone_into(&mut self.tenant);
        route.clone_into(&mut self.route);
    }

    /// What it is called.
    pub fn identified(&mut self, key: String) {
        self.idempotency_key = key;
    }

    /// It is an event that was found by an alias: under which key that stands.
    pub fn known_as(&mut self, key: String) {
        self.known_as = Some(key);
    }

    /// What its first event is compared by.
    pub fn fingerprint(&mut self, digest: &[u8; 32]) {
        self.fingerprint = hex::encode(digest.get(..8).unwrap_or_default());
    }

    /// What the engine met.
    pub fn decided(&mut self, begin: &Begin) {
        (self.state_before, self.state_after) = match begin {
            Begin::Fresh(items) => {
                let first = items.iter().find_map(|item| if let Item::First(held) = item { Some(held) } else { None });
                if let Some(held) = first {
                    self.attempt = held.claim.attempt;
                    self.fence = held.claim.fence;
                    if held.claim.ambiguous {
                        self.note("an earlier attempt may have reached the upstream: this may be its second forward");
                    }
                }
                (first.and_then(|held| held.before).map_or("new", |status| status.as_str()), "processing")
            }
            Begin::Replay(kept) => {
                if !kept.compared {
                    self.note("another version of the plugin made the record, and no field could be compared");
                }
                ("finished", "finished")
            }
            Begin::Busy { status, .. } => (status.as_str(), status.as_str()),
            Begin::Mismatch { fields, .. } => {
                let fields = fields.join(", ");
                // Somebody should look: a correction under an old key is lost as long as nobody does.
                tracing::warn!(
                    tenant = self.tenant,
                    route = self.route,
                    event = self.event,
                    idempotency_key = self.idempotency_key,
                    fields,
                    "another event came under a known key"
                );
                self.note = Some(format!("differing fields: {fields}"));
                ("other event", "other event")
            }
            Begin::Held { reason } => {
                self.note = Some(format!("held: {}", reason.as_str()));
                ("unknown", "unknown")
            }
        };
    }

    /// What the attempt left.
    pub fn finished(&mut self, state_after: &'static str, upstream_status: Option<u16>) {
        self.state_after = state_after;
        self.upstream_status = upstream_status;
    }

    /// The outcome is not in the store yet: what stands there is still the claim.
    pub fn unwritten(&mut self) {
        self.state_after = "processing";
        self.note("the store did not take the outcome; it is tried until the lease ends");
    }

    /// The cause behind a public text.
    pub fn note(&mut self, cause: impl std::fmt::Display) {
        self.note = Some(cause.to_string());
    }

    /// Notes the cause, and gives the public side of it.
    pub fn fault(&mut self, cause: impl std::fmt::Display, rejection: Rejection) -> Rejection {
        self.note(cause);
        rejection
    }

    /// The route's tenant, where there is one yet.
    pub fn is_routed(&self) -> bool {
        !self.route.is_empty()
    }

    /// Writes the line.
    pub fn log(&self, result: &Result<Reply, Rejection>) {
        let (decision, status) = match result {
            Ok(reply) => (reply.idempotency.as_str(), reply.response.status().as_u16()),
            Err(rejection) => (rejection.code(), 0),
        };
        let refused = matches!(result, Err(rejection) if rejection.idempotency_status() == IdempotencyStatus::First);
        tracing::info!(
            target: "onceward::event",
            tenant = self.tenant,
            route = self.route,
            event = self.event,
            idempotency_key = self.idempotency_key,
            known_as = self.known_as,
            fingerprint = self.fingerprint,
            state_before = self.state_before,
            state_after = self.state_after,
            decision,
            attempt = (self.attempt > 0).then_some(self.attempt),
            fence = (self.fence > 0).then_some(self.fence),
            upstream_status = self.upstream_status,
            status = (status != 0).then_some(status),
            forwarded_without_answer = refused.then_some(true),
            duration_ms = self.started.elapsed().as_millis() as u64,
            trace_id = self.trace_id,
            worker_id = std::process::id(),
            note = self.note,
        );
    }
}

/// Sorts by arrival: 12 hex digits of Unix milliseconds, then 80 random bits.
fn event_id(received_at_ms: u64) -> String {
    format!("{received_at_ms:012x}{}", random_hex::<10>())
}

fn random_hex<const N: usize>() -> String {
    let mut bytes = [0_u8; N];
    // The system's generator does not fail once it is seeded; were it to, the id would only be less unique, and the claim's
    // write would still be decided by the store.
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
}
