//! What is said of one delivery in the log: filled along the journey, written once at its end. What the metrics count of a delivery is
//! counted here too, so that both say the same.

use std::sync::Arc;
use std::time::Instant;

use crate::idempotency::record::{Status, UnknownReason};
use crate::store::StoreError;

use super::audit;
use super::dedupe::{Begin, Held, Item};
use super::limits::Limited;
use super::meters::RouteMeters;
use super::rejection::Rejection;
use super::reply::{IdempotencyStatus, Reply};
use super::route::Route;

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
    meters: Arc<RouteMeters>,
}

impl Trail {
    /// Starts at a request's arrival. `meters` count it until it has a route.
    pub fn new(received_at_ms: u64, meters: Arc<RouteMeters>) -> Self {
        Self::of(event_id(received_at_ms), meters)
    }

    /// For an attempt that has its id already.
    pub fn of(event: String, meters: Arc<RouteMeters>) -> Self {
        Self {
            event,
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
            meters,
        }
    }

    /// Where it goes.
    pub fn routed(&mut self, route: &Route) {
        self.tenant.clone_from(&route.config.tenant);
        self.route.clone_from(&route.config.name);
        self.meters = Arc::clone(&route.meters);
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
        self.meters.claims.count(match begin {
            Begin::Fresh(_) => "claimed",
            Begin::Replay(_) => "replay",
            Begin::Busy { .. } => "in-flight",
            Begin::Mismatch { .. } => "mismatch",
            Begin::Held { .. } => "held",
        });
        (self.state_before, self.state_after) = match begin {
            Begin::Fresh(items) => {
                let held =
                    || items.iter().filter_map(|item| if let Item::First(held) = item { Some(held) } else { None });
                held().for_each(|held| self.claimed(held));
                let first = held().next();
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
                self.meters.mismatches.increment(1);
                audit::mismatch(&self.tenant, &self.route, &self.event, &self.idempotency_key, &fields);
                self.note = Some(format!("differing fields: {fields}"));
                ("other event", "other event")
            }
            Begin::Held { reason } => {
                self.note = Some(format!("held: {}", reason.as_str()));
                ("unknown", "unknown")
            }
        };
    }

    /// A claim stands: what that says of the attempt before it.
    fn claimed(&self, held: &Held) {
        if matches!(held.before, Some(Status::Processing | Status::Unknown)) {
            self.meters.takeovers.increment(1);
        }
        if held.before == Some(Status::Processing) {
            // Its owner vanished without a word, so this is where it is known.
            audit::unknown_outcome(held, UnknownReason::LeaseOver);
        }
        if held.claim.ambiguous {
            audit::second_forward(held);
        }
    }

    /// The store did not answer the engine.
    pub fn undecided(&mut self, error: &StoreError) {
        self.meters.claims.count("error");
        self.note(error);
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

    /// A limit of the tenant stops it.
    pub fn limited(&mut self, reached: Limited) -> Rejection {
        self.fault(reached, reached.rejection())
    }

    /// The route's tenant, where there is one yet.
    pub fn is_routed(&self) -> bool {
        !self.route.is_empty()
    }

    /// What the attempt left, as it was last said.
    pub fn state_after(&self) -> &'static str {
        self.state_after
    }

    /// What the upstream answered, where it did.
    pub fn upstream_status(&self) -> Option<u16> {
        self.upstream_status
    }

    /// Writes the line, and counts the request.
    pub fn log(&self, result: &Result<Reply, Rejection>) {
        let (decision, status) = match result {
            Ok(reply) => (reply.idempotency.as_str(), reply.response.status().as_u16()),
            Err(rejection) => (rejection.code(), 0),
        };
        self.meters.requests.count(decision);
        self.meters.request_seconds.record(self.started.elapsed());
        match result {
            Ok(reply) if reply.idempotency == IdempotencyStatus::Replay => self.meters.replays.increment(1),
            Err(Rejection::InFlight { .. }) => self.meters.in_flight_conflicts.increment(1),
            _ => {}
        }
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
pub(super) fn event_id(received_at_ms: u64) -> String {
    format!("{received_at_ms:012x}{}", random_hex::<10>())
}

pub(super) fn random_hex<const N: usize>() -> String {
    let mut bytes = [0_u8; N];
    // The system's generator does not fail once it is seeded; were it to, the id would only be less unique, and the claim's
    // write would still be decided by the store.
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
}
