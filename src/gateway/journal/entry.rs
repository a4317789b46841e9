//! One line of the journal: an outcome that the store has not taken, with all that is needed to write it there later.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::{Fingerprint, KeyKind, PluginVersion, ScopeKey, StoredBody, StoredResponse};
use crate::gateway::dedupe::Held;
use crate::gateway::identity::Identity;
use crate::idempotency::record::{FailureClass, Status, UnknownReason};
use crate::idempotency::{Claim, Draft, Fence, Outcome, Owner, Policy, Record, State, Ttl, on_outcome};

/// An outcome that waits for the store.
#[derive(Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Names it within the journals of a store.
    pub(super) id: String,
    pub(super) tenant: String,
    scope: String,
    namespace: String,
    kind: String,
    parts: Vec<String>,
    /// Key id, digest, digests of the fields; none: the digest key was not known when it was written.
    pub(super) fingerprint: Option<(String, String, Vec<(String, String)>)>,
    /// The delivery that was forwarded.
    pub(super) event: String,
    /// Of its claim; none: it was forwarded without one.
    pub(super) fence: Option<u64>,
    attempt: u32,
    ambiguous: bool,
    plugin: (String, String),
    pub(super) route: String,
    status: String,
    class: Option<String>,
    reason: Option<String>,
    answer: Option<Answer>,
    error: Option<String>,
    ttl_ms: u64,
    ttl_exact: bool,
    /// The gateway's own clock, for people.
    pub(super) at_ms: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Answer {
    status: u16,
    /// Each char of a value is one octet.
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Clone, Serialize, Deserialize)]
enum Body {
    Full(String),
    Reference(String),
    Omitted,
}

/// A delivery that was forwarded though it could not be claimed.
pub struct Beside<'a> {
    /// One of its events.
    pub id: &'a Identity,
    /// The event's fingerprint, if its key is known.
    pub fingerprint: Option<Fingerprint>,
    /// The delivery.
    pub event: &'a str,
    /// The route's name.
    pub route: &'a str,
}

impl Entry {
    /// What came of a forward without a claim.
    pub fn beside(beside: Beside<'_>, outcome: Outcome, policy: &Policy, at_ms: u64) -> Self {
        let unknown = || Fingerprint { key_id: String::new(), digest: [0; 32], fields: Vec::new() };
        let is_known = beside.fingerprint.is_some();
        let claim = Claim {
            owner: Owner(beside.event.to_owned()),
            fence: 0,
            attempt: 1,
            ambiguous: false,
            fingerprint: beside.fingerprint.unwrap_or_else(unknown),
            plugin: beside.id.plugin.clone(),
            route: beside.route.to_owned(),
            history: Vec::new(),
            request: None,
        };
        let entry = Self::of(&beside.id.key, None, &on_outcome(&claim, outcome, policy), at_ms);
        Self { fingerprint: entry.fingerprint.filter(|_| is_known), ..entry }
    }

    /// What came of a claim's forward.
    pub fn claimed(held: &Held, draft: &Draft, at_ms: u64) -> Self {
        Self::of(&held.key, Some(held.claim.fence), draft, at_ms)
    }

    fn of(key: &ScopeKey, fence: Option<u64>, draft: &Draft, at_ms: u64) -> Self {
        let (class, reason, answer) = match &draft.state {
            State::Succeeded { response } => (None, None, Some(response)),
            State::Failed { class, response } => (Some(class.as_str().to_owned()), None, response.as_ref()),
            State::Unknown { reason } => (None, Some(reason.as_str().to_owned()), None),
            State::Processing | State::Alias { .. } | State::Mismatch { .. } => (None, None, None),
        };
        let print = &draft.fingerprint;
        let fields = print.fields.iter().map(|(name, digest)| (name.clone(), hex::encode(digest))).collect();
        let (ttl, ttl_exact) = match draft.ttl {
            Ttl::AtLeast(ttl) => (ttl, false),
            Ttl::Exactly(ttl) => (ttl, true),
        };
        Self {
            id: format!("{}.{}", draft.owner.0, hex::encode(key.digest().get(..8).unwrap_or_default())),
            tenant: key.tenant.clone(),
            scope: key.scope.clone(),
            namespace: key.namespace.clone(),
            kind: key.kind.as_str().to_owned(),
            parts: key.parts.clone(),
            fingerprint: Some((print.key_id.clone(), hex::encode(print.digest), fields)),
            event: draft.owner.0.clone(),
            fence,
            attempt: draft.attempt,
            ambiguous: draft.ambiguous,
            plugin: (draft.plugin.name.clone(), draft.plugin.version.clone()),
            route: draft.route.clone(),
            status: draft.state.status().as_str().to_owned(),
            class,
            reason,
            answer: answer.map(Answer::of),
            error: draft.error.clone(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            ttl_exact,
            at_ms,
        }
    }

    /// The entry as it is written where nothing is encrypted: the answer's status alone.
    #[must_use]
    pub(super) fn bare(mut self) -> Self {
        if let Some(answer) = &mut self.answer {
            answer.headers.clear();
            answer.body = Body::Omitted;
        }
        self
    }

    /// Where its record stands; none when the line says nothing that can be read.
    pub(super) fn key(&self) -> Option<ScopeKey> {
        Some(ScopeKey {
            tenant: self.tenant.clone(),
            scope: self.scope.clone(),
            namespace: self.namespace.clone(),
            kind: KeyKind::parse(&self.kind)?,
            parts: self.parts.clone(),
        })
    }

    /// Whether a record is what this delivery's claim left, without the outcome.
    pub(super) fn owns(&self, record: &Record) -> bool {
        self.made(record) && matches!(record.state, State::Processing | State::Unknown { .. })
    }

    /// Whether the outcome stands already: its write's answer was lost.
    pub(super) fn stands_as(&self, record: &Record) -> bool {
        self.made(record) && record.state.status().as_str() == self.status
    }

    fn made(&self, record: &Record) -> bool {
        record.owner.0 == self.event && self.fence.is_none_or(|fence| fence == record.fence)
    }

    /// The record for a key that holds nothing; none without a fingerprint, since another event would then be answered with it.
    pub(super) fn anew(&self) -> Option<Draft> {
        let (key_id, digest, fields) = self.fingerprint.as_ref()?;
        let field = |(name, digest): &(String, String)| Some((name.clone(), octets(digest)?));
        let fingerprint = Fingerprint {
            key_id: key_id.clone(),
            digest: octets(digest)?,
            fields: fields.iter().map(field).collect::<Option<_>>()?,
        };
        let ttl = Duration::from_millis(self.ttl_ms);
        Some(Draft {
            state: self.state()?,
            fingerprint,
            owner: Owner(self.event.clone()),
            fence: Fence::Next { floor: self.fence.unwrap_or_default() },
            attempt: self.attempt,
            lease: None,
            ttl: if self.ttl_exact { Ttl::Exactly(ttl) } else { Ttl::AtLeast(ttl) },
            released: false,
            ambiguous: self.ambiguous,
            error: self.error.clone(),
            plugin: PluginVersion { name: self.plugin.0.clone(), version: self.plugin.1.clone() },
            route: self.route.clone(),
            history: Vec::new(),
            request: None,
        })
    }

    /// The record over what the delivery's own claim left.
    pub(super) fn over(&self, standing: &Record) -> Option<Draft> {
        let state = self.state()?;
        let waits = state.status() != Status::Succeeded;
        let ttl = Duration::from_millis(self.ttl_ms);
        Some(Draft {
            state,
            fingerprint: standing.fingerprint.clone(),
            owner: standing.owner.clone(),
            fence: Fence::Keep,
            attempt: standing.attempt,
            lease: None,
            ttl: if self.ttl_exact { Ttl::Exactly(ttl) } else { Ttl::AtLeast(ttl) },
            released: false,
            ambiguous: standing.ambiguous || self.ambiguous,
            error: self.error.clone(),
            plugin: standing.plugin.clone(),
            route: standing.route.clone(),
            history: standing.history.clone(),
            request: standing.request.clone().filter(|_| waits),
        })
    }

    fn state(&self) -> Option<State> {
        let answer = || self.answer.as_ref().map(Answer::response);
        match Status::parse(&self.status)? {
            Status::Succeeded => Some(State::Succeeded { response: answer()?? }),
            Status::Failed => {
                let class = FailureClass::parse(self.class.as_deref()?)?;
                Some(State::Failed { class, response: answer().flatten() })
            }
            Status::Unknown => Some(State::Unknown { reason: UnknownReason::parse(self.reason.as_deref()?)? }),
            Status::Processing | Status::Alias | Status::Mismatch => None,
        }
    }
}

impl Answer {
    fn of(response: &StoredResponse) -> Self {
        let octets = |value: &Bytes| value.iter().copied().map(char::from).collect();
        Self {
            status: response.status,
            headers: response.headers.iter().map(|(name, value)| (name.clone(), octets(value))).collect(),
            body: match &response.body {
                StoredBody::Full(body) => Body::Full(STANDARD.encode(body)),
                StoredBody::Reference(id) => Body::Reference(id.clone()),
                StoredBody::Omitted => Body::Omitted,
            },
        }
    }

    fn response(&self) -> Option<StoredResponse> {
        let value = |text: &str| text.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>().ok().map(Bytes::from);
        let headers = self.headers.iter().map(|(name, text)| Some((name.clone(), value(text)?)));
        Some(StoredResponse {
            status: self.status,
            headers: headers.collect::<Option<_>>()?,
            body: match &self.body {
                Body::Full(body) => StoredBody::Full(STANDARD.decode(body).ok()?.into()),
                Body::Reference(id) => StoredBody::Reference(id.clone()),
                Body::Omitted => StoredBody::Omitted,
            },
        })
    }
}

fn octets<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text).ok()?.try_into().ok()
}
