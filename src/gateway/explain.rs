//! What is stored for an event, told for people, and what its next delivery would get: asked of the machine itself, with the
//! route's own policy.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::model::{Mode, Route};
use crate::event::{Fingerprint, ScopeKey, StoredBody, StoredResponse, Timestamp};
use crate::idempotency::history::{Attempt, Step};
use crate::idempotency::machine::Me;
use crate::idempotency::record::UnknownReason;
use crate::idempotency::{Decision, Owner, Record, State, on_request};
use crate::store::{Entry, Seen, Store, StoreError};

use super::rfc3339::{span, write};

/// One event as a list shows it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Whose.
    pub tenant: String,
    /// Where its key lives.
    pub scope: String,
    /// The plugin's key namespace, mostly empty.
    pub namespace: String,
    /// The key as it stands in this API's paths, before percent-encoding.
    pub key: String,
    /// What the upstream gets as `Idempotency-Key`, unless the event came in a batch.
    pub idempotency_key: String,
    /// `processing`, `succeeded`, `failed`, `unknown`, or `mismatch`: another event that came under the key.
    pub state: String,
    /// The route that the delivery took.
    pub route: String,
    /// The delivery that wrote last: the `Onceward-Event` of its answer.
    pub event: String,
    /// The number of the last forward.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
    /// When this attempt was claimed; RFC 3339, the store's clock, as all times here.
    pub started_at: String,
    /// When its outcome was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Until when its owner may work; for an unknown outcome, when it may be tried again.
    pub lease_until: String,
    /// When the record is forgotten; for a success the end of its window.
    pub expires_at: String,
    /// What the upstream answered, where that was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<u16>,
    /// Why nobody knows, or how it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// An operator released it.
    pub released: bool,
    /// An attempt may have reached the upstream without anybody knowing.
    pub ambiguous: bool,
    /// Its request is kept, so that it can be redelivered.
    pub request_kept: bool,
    /// Of a mismatch: what came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<MismatchView>,
}

/// What came under an event's key and was another event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MismatchView {
    /// The names of the fields in which the last one differed.
    pub fields: Vec<String>,
    /// How many came.
    pub count: u64,
    /// When the first one came.
    pub first_at: String,
    /// When the last one came.
    pub last_at: String,
}

/// An attempt, present or past.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// Its number.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
    /// The delivery that made it.
    pub event: String,
    /// When it was claimed.
    pub started_at: String,
    /// When its outcome was written; none: it runs, or its owner vanished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// What it left.
    pub state: String,
    /// Why nobody knows, or how it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the upstream answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<u16>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What an operator did.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperatorView {
    /// `release`, `succeed` or `redeliver`.
    pub verb: String,
    /// The name of the token.
    pub by: String,
    /// When.
    pub at: String,
}

/// What the next delivery would get.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NextView {
    /// `same` or `other` material fields.
    pub material: String,
    /// `forward`, `replay`, `in-flight`, `mismatch` or `held`.
    pub decision: String,
    /// The status that the sender would get; none: the upstream's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why.
    pub why: String,
}

/// All that is known of an event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// As a list shows it.
    #[serde(flatten)]
    pub event: EventView,
    /// The store's time now.
    pub now: String,
    /// The plugin that named the key, and its version.
    pub plugin: String,
    /// Of code and config.
    pub plugin_version: String,
    /// The names of the fields that two deliveries must share.
    pub fields: Vec<String>,
    /// How much of the answer's body is kept: `full`, `reference` or `omitted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_body: Option<String>,
    /// Every attempt, oldest first; the last one is the present one.
    pub attempts: Vec<AttemptView>,
    /// What operators did.
    pub operators: Vec<OperatorView>,
    /// What the next delivery gets by the route's policy, with the same and with other material fields.
    pub next: Vec<NextView>,
    /// The same key in other key namespaces of the plugins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub also: Vec<Explanation>,
}

/// What is stored under a key of a scope, in every key namespace; none when nothing is. `policy_of` gives the route whose policy
/// decides the next delivery, by the name of the route that the stored one took.
///
/// # Errors
/// When the store does not answer.
pub async fn explain<'r>(
    store: &dyn Store,
    (tenant, scope, key): (&str, &str, &str),
    policy_of: impl Fn(&str) -> Option<&'r Route>,
) -> Result<Option<Explanation>, StoreError> {
    let mut told: Vec<Explanation> = Vec::new();
    for Entry { key, record } in store.find(tenant, scope, key).await? {
        let Seen { current: other, now } = store.peek(&key.quarantine()).await?;
        let mut one = Explanation::of(&key, &record, now, policy_of(&record.route));
        one.event.mismatch = other.as_ref().and_then(mismatch_of);
        told.push(one);
    }
    told.sort_by(|a, b| a.event.namespace.cmp(&b.event.namespace));
    let mut told = told.into_iter();
    Ok(told.next().map(|first| Explanation { also: told.collect(), ..first }))
}

impl EventView {
    /// An entry as a list shows it.
    pub fn of(key: &ScopeKey, record: &Record) -> Self {
        let about = key.quarantined().unwrap_or_else(|| key.clone());
        let attempt = Attempt::of(record);
        Self {
            key: about.readable_key(),
            idempotency_key: about.readable(),
            tenant: about.tenant,
            scope: about.scope,
            namespace: about.namespace,
            state: record.state.status().as_str().to_owned(),
            route: record.route.clone(),
            event: record.owner.0.clone(),
            attempt: record.attempt,
            fence: record.fence,
            started_at: write(record.started_at),
            finished_at: record.finished_at.map(write),
            lease_until: write(record.lease_until),
            expires_at: write(record.expires_at),
            upstream_status: attempt.upstream_status,
            reason: reason(&attempt),
            error: record.error.clone(),
            released: record.released,
            ambiguous: record.ambiguous,
            request_kept: record.request.is_some(),
            mismatch: mismatch_of(record),
        }
    }
}

impl Explanation {
    fn of(key: &ScopeKey, record: &Record, now: Timestamp, route: Option<&Route>) -> Self {
        let mut attempts = Vec::new();
        let mut operators = Vec::new();
        for step in &record.history {
            match step {
                Step::Attempt(attempt) => attempts.push(AttemptView::of(attempt)),
                Step::Operator { verb, by, at } => {
                    operators.push(OperatorView { verb: verb.as_str().to_owned(), by: by.clone(), at: write(*at) });
                }
            }
        }
        // A released record's own attempt stands in its history already.
        if !record.released {
            attempts.push(AttemptView::of(&Attempt::of(record)));
        }
        Self {
            event: EventView::of(key, record),
            now: write(now),
            plugin: record.plugin.name.clone(),
            plugin_version: record.plugin.version.clone(),
            fields: record.fingerprint.fields.iter().map(|(name, _)| name.clone()).collect(),
            kept_body: response_of(record).map(|response| kept_body(&response.body).to_owned()),
            attempts,
            operators,
            next: route.map(|route| next(record, now, route)).unwrap_or_default(),
            also: Vec::new(),
        }
    }
}

impl AttemptView {
    fn of(attempt: &Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            fence: attempt.fence,
            event: attempt.event.clone(),
            started_at: write(attempt.started_at),
            finished_at: attempt.finished_at.map(write),
            state: attempt.status.as_str().to_owned(),
            reason: reason(attempt),
            upstream_status: attempt.upstream_status,
            error: attempt.error.clone(),
        }
    }
}

fn reason(attempt: &Attempt) -> Option<String> {
    let word = attempt.reason.map(UnknownReason::as_str).or(attempt.class.map(|class| class.as_str()));
    word.map(str::to_owned)
}

fn response_of(record: &Record) -> Option<&StoredResponse> {
    match &record.state {
        State::Succeeded { response } | State::Failed { response: Some(response), .. } => Some(response),
        _ => None,
    }
}

fn kept_body(body: &StoredBody) -> &'static str {
    match body {
        StoredBody::Full(_) => "full",
        StoredBody::Reference(_) => "reference",
        StoredBody::Omitted => "omitted",
    }
}

fn mismatch_of(record: &Record) -> Option<MismatchView> {
    match &record.state {
        State::Mismatch { fields, count, first_at } => Some(MismatchView {
            fields: fields.clone(),
            count: *count,
            first_at: write(*first_at),
            last_at: write(record.started_at),
        }),
        _ => None,
    }
}

/// What the machine would say to a delivery with the same material, and to one with other material.
fn next(record: &Record, now: Timestamp, route: &Route) -> Vec<NextView> {
    let other = Fingerprint {
        digest: record.fingerprint.digest.map(|byte| !byte),
        fields: record
            .fingerprint
            .fields
            .iter()
            .map(|(name, digest)| (name.clone(), digest.map(|byte| !byte)))
            .collect(),
        ..record.fingerprint.clone()
    };
    let owner = Owner(String::new());
    let of = |material: &str, fingerprint: &Fingerprint| {
        let me = Me { owner: &owner, fingerprint, plugin: &record.plugin, route: &route.name };
        told(material, on_request(Some(record), &me, now, &route.policy), record, now, route)
    };
    vec![of("same", &record.fingerprint), of("other", &other)]
}

fn told(material: &str, decision: Decision, record: &Record, now: Timestamp, route: &Route) -> NextView {
    let policy = &route.policy;
    let wait = span(policy.in_flight.wait);
    let (decision, status, why) = match decision {
        Decision::Claim(plan) => {
            ("forward", None, format!("it is forwarded as attempt {}: {}", plan.attempt, because(record)))
        }
        Decision::Own | Decision::Busy { .. } => {
            let left = span(record.lease_until.since(now));
            let state = record.state.status().as_str();
            let why = format!(
                "the event is {state} and its lease has {left} left: a duplicate waits {wait} for the answer at most"
            );
            ("in-flight", Some(policy.in_flight.status), why)
        }
        Decision::Replay { response, expires_at, .. } => {
            let why = format!("the kept answer, for {} more", span(expires_at.since(now)));
            ("replay", Some(response.status), why)
        }
        Decision::Mismatch { .. } => (
            "mismatch",
            Some(policy.mismatch_status),
            "other material fields under this key are another event".to_owned(),
        ),
        Decision::Held { reason } => {
            let why = format!("{}: an operator must release it, call it done or redeliver it", held(reason));
            ("held", Some(409), why)
        }
    };
    // Such a route decides and records, and forwards all the same.
    let (status, why) = match route.mode {
        Mode::Observe if decision != "forward" => {
            (None, format!("only observed, so it is forwarded all the same; otherwise: {why}"))
        }
        _ => (status, why),
    };
    NextView { material: material.to_owned(), decision: decision.to_owned(), status, why }
}

fn because(record: &Record) -> &'static str {
    match &record.state {
        _ if record.released => "an operator released the event",
        State::Processing => "the last owner's lease is over, and whether the upstream acted is unknown",
        State::Unknown { .. } => {
            "whether the last attempt took effect is unknown, and the route retries (`unknown = \"retry\"`)"
        }
        State::Failed { response: None, .. } => "nothing was sent by the last attempt",
        _ => "the last attempt failed for certain",
    }
}

fn held(reason: UnknownReason) -> &'static str {
    match reason {
        UnknownReason::Exhausted => "every allowed attempt failed (`max_attempts`)",
        UnknownReason::Timeout => {
            "the upstream did not answer in time, and the route holds such events (`unknown = \"hold\"`)"
        }
        UnknownReason::Broken => "the exchange broke off, and the route holds such events (`unknown = \"hold\"`)",
        UnknownReason::LeaseOver => "its owner vanished, and the route holds such events (`unknown = \"hold\"`)",
    }
}
