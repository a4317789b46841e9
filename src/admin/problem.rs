//! The API's faults as RFC 9457 problem documents, like those of the ingest side.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::deploy::Refused;
use crate::gateway::operator::NotDone;
use crate::store::StoreError;

use super::refused;

/// Why a request of an operator is not done.
#[derive(Debug)]
pub enum Problem {
    /// 401: no token, or none that is known.
    Unauthorized,
    /// 404: not there, or not for this token.
    NotFound,
    /// 405.
    MethodNotAllowed(Method),
    /// 400: a parameter, by its name.
    BadParameter(&'static str, String),
    /// 400: a body.
    BadBody(String),
    /// 413.
    BodyTooLarge,
    /// 409: the event is not in a state for that.
    Conflict(String),
    /// 503.
    Store(StoreError),
    /// 500: the log says why.
    Internal,
    /// What the desk for plugins says.
    Refused(Refused),
}

impl Problem {
    /// Status, code, title and detail.
    fn words(&self) -> (StatusCode, &'static str, &'static str, String) {
        match self {
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "A token is needed",
                "Send `Authorization: Bearer TOKEN` with a token of [admin] tokens; `onceward token new` makes one."
                    .to_owned(),
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not-found",
                "Nothing here",
                "There is no such thing, or this token may not see it.".to_owned(),
            ),
            Self::MethodNotAllowed(method) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "Method not allowed",
                format!("{method} is not for this path; /v1/openapi.json lists what is."),
            ),
            Self::BadParameter(name, why) => {
                (StatusCode::BAD_REQUEST, "bad-parameter", "A parameter cannot be read", format!("`{name}` {why}"))
            }
            Self::BadBody(why) => (StatusCode::BAD_REQUEST, "bad-body", "The body cannot be read", why.clone()),
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
                "The body is larger than this API accepts.".to_owned(),
            ),
            Self::Conflict(why) => {
                (StatusCode::CONFLICT, "conflict", "The event is not in a state for that", why.clone())
            }
            Self::Store(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store cannot answer",
                "Nothing is known to have changed. Look at the event, then try again.".to_owned(),
            ),
            Self::Internal => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "The gateway could not do that",
                "It is the gateway's own fault; its log says more.".to_owned(),
            ),
            Self::Refused(why) => refused::words(why),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // The details may name an address: they are for the log.
        match &self {
            Self::Store(error) => tracing::warn!(%error, "the admin API could not reach the store"),
            Self::Refused(Refused::Registry(error)) => {
                tracing::warn!(?error, "the admin API could not reach the registry")
            }
            _ => {}
        }
        let (status, code, title, detail) = self.words();
        let mut problem = json!({
            "type": format!("urn:onceward:problem:{code}"),
            "title": title,
            "status": status.as_u16(),
            "code": code,
            "detail": detail,
            "retry_safe": true,
        });
        if let (Self::Refused(why), Some(members)) = (&self, problem.as_object_mut()) {
            members.extend(refused::members(why));
        }
        let mut response = Json(problem).into_response();
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            Self::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"onceward\""));
            }
            Self::Store(_) => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("2"));
            }
            Self::Refused(why) => {
                if let Some(seconds) = refused::retry_after_seconds(&why) {
                    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
                }
            }
            _ => {}
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refused> for Problem {
    fn from(why: Refused) -> Self {
        Self::Refused(why)
    }
}

impl From<NotDone> for Problem {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Absent => Self::NotFound,
            NotDone::Store(error) => Self::Store(error),
            NotDone::Several(_) | NotDone::Refused(_) | NotDone::Changed | NotDone::Unsendable(_) => {
                Self::Conflict(format!("{why}."))
            }
        }
    }
}

/// No such path.
pub(super) async fn not_found(_: Uri) -> Problem {
    Problem::NotFound
}

/// A path with other methods. Axum adds `Allow`.
pub(super) async fn method_not_allowed(method: Method) -> Problem {
    Problem::MethodNotAllowed(method)
}
