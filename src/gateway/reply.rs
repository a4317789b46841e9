//! An answer on its way to the sender, and what the gateway says about it.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::event::{PluginReply, StoredBody, StoredResponse, Timestamp};

use super::Body;
use super::dedupe::Kept;
use super::headers;

/// What the idempotency engine did with a delivery: the value of `Idempotency-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotencyStatus {
    /// This request was forwarded, whatever came of it.
    First,
    /// A kept answer.
    Replay,
    /// The same event still runs.
    InFlight,
    /// Another event stands under the key.
    Mismatch,
    /// It waits for an operator.
    Held,
    /// Forwarded or answered without dedupe.
    Bypassed,
    /// Refused before a claim.
    Rejected,
}

impl IdempotencyStatus {
    /// The header's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Replay => "replay",
            Self::InFlight => "in-flight",
            Self::Mismatch => "mismatch",
            Self::Held => "held",
            Self::Bypassed => "bypassed",
            Self::Rejected => "rejected",
        }
    }
}

/// An answer, with what its headers will say.
#[derive(Debug)]
pub struct Reply {
    /// Status, end-to-end headers, body.
    pub response: Response<Body>,
    /// What the engine did.
    pub idempotency: IdempotencyStatus,
    /// The end of the window, for an answer that is kept.
    pub expires_at: Option<Timestamp>,
    /// The kept body was not whole.
    pub body_omitted: bool,
}

impl Reply {
    /// An answer that is not kept.
    pub fn new(response: Response<Body>, idempotency: IdempotencyStatus) -> Self {
        Self { response, idempotency, expires_at: None, body_omitted: false }
    }

    /// The same status, fields and bytes as the first time.
    pub fn replay(kept: Kept) -> Self {
        let (body, body_omitted) = match &kept.response.body {
            StoredBody::Full(bytes) => (bytes.clone(), false),
            StoredBody::Reference(id) => (Bytes::from(json!({ "resource_id": id }).to_string()), true),
            StoredBody::Omitted => (Bytes::new(), true),
        };
        let mut response = restore(&kept.response, body);
        if let StoredBody::Reference(_) = kept.response.body {
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        }
        if body_omitted {
            response.headers_mut().remove(http::header::CONTENT_ENCODING);
        }
        Self { response, idempotency: IdempotencyStatus::Replay, expires_at: Some(kept.expires_at), body_omitted }
    }

    /// The plugin's own answer: not an event.
    pub fn from_plugin(reply: PluginReply) -> Self {
        let mut response = Response::new(full(reply.body));
        *response.status_mut() = reply.status;
        *response.headers_mut() = headers::end_to_end(&reply.headers);
        headers::remove_own(response.headers_mut());
        Self::new(response, IdempotencyStatus::Bypassed)
    }

    /// The response with the gateway's headers on it.
    pub fn into_response(mut self, event: &str) -> Response<Body> {
        let headers = self.response.headers_mut();
        let mut say = |name: &'static str, value: Option<HeaderValue>| {
            if let Some(value) = value {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        say("onceward-event", HeaderValue::from_str(event).ok());
        say("idempotency-status", Some(HeaderValue::from_static(self.idempotency.as_str())));
        let replayed = self.idempotency == IdempotencyStatus::Replay;
        say("idempotency-replayed", replayed.then(|| HeaderValue::from_static("true")));
        say("idempotency-expires", self.expires_at.and_then(http_date));
        say("idempotency-replay-body", self.body_omitted.then(|| HeaderValue::from_static("omitted")));
        self.response
    }
}

/// A whole body.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn restore(kept: &StoredResponse, body: Bytes) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in &kept.headers {
        // Both were valid when they were kept: a fault here is a store's, and the field is left out.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::from_bytes(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn http_date(at: Timestamp) -> Option<HeaderValue> {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(at.as_micros()))?;
    // The format has four digits for the year.
    let last = Duration::from_hours(24) * 365 * 8000;
    (at.since(Timestamp::default()) < last).then(|| HeaderValue::from_str(&httpdate::fmt_http_date(time)).ok())?
}
