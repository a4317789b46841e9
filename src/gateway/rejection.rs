//! What a sender is told when the gateway itself answers: the only place that turns a fault into HTTP.
//!
//! Each rejection has a public text, which reveals nothing of the store, the upstream's address or a secret, and is apart from
//! the cause that the journey logs.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

use crate::plugin::FailureKind;

use super::reply::IdempotencyStatus;

/// Why a delivery got no answer from upstream or store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Not HTTP as it should be.
    BadRequest(&'static str),
    /// The client took too long.
    ClientTimeout,
    /// The head is larger than `max_headers`.
    HeadersTooLarge,
    /// The request target is too long.
    UriTooLong,
    /// The body is larger than `max_body`.
    BodyTooLarge,
    /// No route has this path and host.
    NoRoute,
    /// The route's `allow_from` does not name the sender's address.
    AddressNotAllowed,
    /// The route is for other methods.
    MethodNotAllowed {
        /// Which, as the `Allow` header says them.
        allow: String,
    },
    /// Too many requests from this sender.
    RateLimited {
        /// When to come again.
        after: Duration,
    },
    /// Too much is under way.
    Overloaded,
    /// The sender could not be verified.
    Unverified {
        /// The route's or the plugin's 4xx.
        status: StatusCode,
    },
    /// The signature's time is outside the tolerance.
    Stale {
        /// The route's 4xx.
        status: StatusCode,
    },
    /// The plugin refuses the event.
    PluginRejected {
        /// Its 4xx.
        status: StatusCode,
        /// Its code and text.
        detail: String,
    },
    /// The plugin could not read the delivery.
    Malformed {
        /// Its text.
        detail: String,
    },
    /// The plugin failed on this event.
    PluginFailed {
        /// How.
        kind: FailureKind,
    },
    /// The plugin failed so often that it is left alone for a while.
    PluginOff {
        /// When it is tried again.
        after: Duration,
    },
    /// There is no plugin to run, or it cannot decide yet.
    PluginUnavailable,
    /// The delivery has no key and the route wants one.
    MissingKey,
    /// The same event is still being worked on.
    InFlight {
        /// The route's status for that.
        status: StatusCode,
        /// When to come again.
        after: Duration,
    },
    /// Another event stands under this key.
    Mismatch {
        /// The route's status for that.
        status: StatusCode,
        /// The material fields that differ.
        fields: Vec<String>,
    },
    /// The event waits for an operator.
    Held,
    /// The store cannot answer, so nothing was forwarded.
    StoreUnavailable,
    /// The upstream could not be connected to: nothing was sent.
    UpstreamUnreachable,
    /// The exchange with the upstream broke after bytes were sent.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// A fault of the gateway's own.
    Internal,
}

/// What HTTP says of a rejection.
struct Problem<'a> {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: &'a str,
    /// Sending the same request again cannot make the event happen twice.
    retry_safe: bool,
}

impl Rejection {
    /// How the idempotency engine counts it.
    pub const fn idempotency_status(&self) -> IdempotencyStatus {
        match self {
            Self::InFlight { .. } => IdempotencyStatus::InFlight,
            Self::Mismatch { .. } => IdempotencyStatus::Mismatch,
            Self::Held => IdempotencyStatus::Held,
            Self::UpstreamUnreachable | Self::UpstreamFailed | Self::UpstreamTimeout => IdempotencyStatus::First,
            _ => IdempotencyStatus::Rejected,
        }
    }

    /// The code in the body, also the word of logs and metrics.
    pub fn code(&self) -> &'static str {
        self.problem().code
    }

    /// The answer, with the delivery's id where one was given out.
    pub fn into_response(self, event: Option<&str>) -> Response<Bytes> {
        let problem = self.problem();
        let mut body = json!({
            "type": format!("urn:onceward:problem:{}", problem.code),
            "title": problem.title,
            "status": problem.status.as_u16(),
            "code": problem.code,
            "detail": problem.detail,
            "retry_safe": problem.retry_safe,
        });
        if let Some(members) = body.as_object_mut() {
            members.extend(event.map(|event| ("event".to_owned(), json!(event))));
            match &self {
                Self::Mismatch { fields, .. } => {
                    members.insert("fields".to_owned(), json!(fields));
                }
                Self::PluginFailed { kind } => {
                    members.insert("kind".to_owned(), json!(kind.as_str()));
                }
                Self::PluginOff { .. } => {
                    members.insert("kind".to_owned(), json!("breaker-open"));
                }
                _ => {}
            }
        }
        let mut response = Response::new(Bytes::from(format!("{body}\n")));
        *response.status_mut() = problem.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if let Self::MethodNotAllowed { allow } = &self
            && let Ok(allow) = HeaderValue::from_str(allow)
        {
            headers.insert(ALLOW, allow);
        }
        response
    }

    /// Every 429 and 503 says when to come again, and so does an event that runs.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InFlight { after, .. } | Self::RateLimited { after } | Self::PluginOff { after } => Some(*after),
            Self::StoreUnavailable => Some(Duration::from_secs(2)),
            Self::PluginUnavailable | Self::PluginFailed { .. } => Some(Duration::from_secs(30)),
            Self::Overloaded => Some(Duration::from_secs(1)),
            // A route or a plugin may choose these statuses for its refusals too.
            _ => matches!(self.problem().status.as_u16(), 429 | 503).then_some(Duration::from_secs(30)),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one table, a row a rejection")]
    fn problem(&self) -> Problem<'_> {
        let of = |status, code, title, detail| Problem { status, code, title, detail, retry_safe: true };
        match self {
            Self::BadRequest(detail) => {
                of(StatusCode::BAD_REQUEST, "bad-request", "The request is not valid HTTP", detail)
            }
            Self::ClientTimeout => of(
                StatusCode::REQUEST_TIMEOUT,
                "timeout",
                "The request came too slowly",
                "Send the whole request in one go.",
            ),
            Self::HeadersTooLarge => of(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                "The request's head is too large",
                "The head is larger than this gateway accepts.",
            ),
            Self::UriTooLong => of(
                StatusCode::URI_TOO_LONG,
                "uri-too-long",
                "The request target is too long",
                "Use a shorter path and query.",
            ),
            Self::BodyTooLarge => of(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
                "The body is larger than this gateway accepts.",
            ),
            Self::NoRoute => {
                of(StatusCode::NOT_FOUND, "no-route", "No route", "No route of this gateway has this host and path.")
            }
            Self::AddressNotAllowed => of(
                StatusCode::FORBIDDEN,
                "address-not-allowed",
                "Address not allowed",
                "This route does not accept deliveries from your address.",
            ),
            Self::MethodNotAllowed { .. } => of(
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "Method not allowed",
                "This route is for other methods; see the Allow header.",
            ),
            Self::RateLimited { .. } => {
                of(StatusCode::TOO_MANY_REQUESTS, "rate-limited", "Too many requests", "Send more slowly.")
            }
            Self::Overloaded => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "The gateway is busy",
                "Nothing was forwarded. Send the request again.",
            ),
            Self::Unverified { status } => of(
                *status,
                "unverified",
                "The sender could not be verified",
                "The signature, token or certificate of this request was not accepted.",
            ),
            Self::Stale { status } => of(
                *status,
                "stale",
                "The signature is too old or in the future",
                "Sign the request again with the current time.",
            ),
            Self::PluginRejected { status, detail } => of(*status, "rejected", "The event was refused", detail),
            Self::Malformed { detail } => {
                of(StatusCode::BAD_REQUEST, "malformed", "The delivery could not be read", detail)
            }
            Self::PluginFailed { kind } => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "plugin-failed",
                "The route's plugin failed on this event",
                kind.meaning(),
            ),
            Self::PluginOff { .. } => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "plugin-failed",
                "The route's plugin fails too often to be run now",
                "It is tried again soon. Nothing was forwarded or stored. Send the request again.",
            ),
            Self::PluginUnavailable => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "plugin-unavailable",
                "The route's plugin is not available",
                "Nothing was forwarded or stored. Send the request again later.",
            ),
            Self::MissingKey => of(
                StatusCode::BAD_REQUEST,
                "missing-key",
                "No idempotency key",
                "The event has no key where this route's plugin looks for one.",
            ),
            Self::InFlight { status, .. } => of(
                *status,
                "in-flight",
                "The same event is still being processed",
                "Send it again after the time in Retry-After to get its answer.",
            ),
            Self::Mismatch { status, .. } => of(
                *status,
                "fingerprint-mismatch",
                "Another event was sent under this key",
                "The key is known with other material fields. Nothing was forwarded; the first event and its answer stand.",
            ),
            Self::Held => of(
                StatusCode::CONFLICT,
                "held",
                "The event waits for an operator",
                "An earlier attempt may have reached the service, or all attempts failed. Nothing was forwarded.",
            ),
            Self::StoreUnavailable => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The gateway cannot check for duplicates now",
                "Nothing was forwarded. Send the request again.",
            ),
            Self::UpstreamUnreachable => of(
                StatusCode::BAD_GATEWAY,
                "upstream-unreachable",
                "The service could not be reached",
                "Nothing was sent to it. Send the request again.",
            ),
            Self::UpstreamFailed => Problem {
                retry_safe: false,
                ..of(
                    StatusCode::BAD_GATEWAY,
                    "upstream-failed",
                    "The exchange with the service broke",
                    "The service may have processed the event: its answer was not received whole.",
                )
            },
            Self::UpstreamTimeout => Problem {
                retry_safe: false,
                ..of(
                    StatusCode::GATEWAY_TIMEOUT,
                    "upstream-timeout",
                    "The service did not answer in time",
                    "The service may have processed the event.",
                )
            },
            Self::Internal => Problem {
                retry_safe: false,
                ..of(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "The gateway failed",
                    "A fault of the gateway's own.",
                )
            },
        }
    }
}

/// Whole seconds, rounded up, at least one: a sender that comes a moment too early comes in vain.
fn whole_seconds(after: Duration) -> u64 {
    let up = u64::from(after.subsec_nanos() > 0);
    (after.as_secs() + up).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_fields_and_is_a_problem_document() {
        let rejection = Rejection::Mismatch { status: StatusCode::CONFLICT, fields: vec!["/amount".into()] };
        let response = rejection.into_response(Some("e1"));
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "urn:onceward:problem:fingerprint-mismatch");
        assert_eq!(body["fields"], json!(["/amount"]));
        assert_eq!(body["event"], "e1");
        assert_eq!(body["retry_safe"], true);
    }

    #[test]
    fn every_429_and_503_says_when_to_come_again() {
        let after = Duration::from_millis(1200);
        for rejection in [
            Rejection::RateLimited { after },
            Rejection::Overloaded,
            Rejection::PluginFailed { kind: FailureKind::GuestTrap },
            Rejection::PluginOff { after },
            Rejection::PluginUnavailable,
            Rejection::StoreUnavailable,
            Rejection::Unverified { status: StatusCode::TOO_MANY_REQUESTS },
            Rejection::InFlight { status: StatusCode::SERVICE_UNAVAILABLE, after },
        ] {
            assert!(rejection.clone().into_response(None).headers().contains_key("retry-after"), "{rejection:?}");
        }
        let response = Rejection::InFlight { status: StatusCode::CONFLICT, after }.into_response(None);
        assert_eq!(response.headers()["retry-after"], "2");
    }
}
