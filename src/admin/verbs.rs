//! `POST /v1/tenants/{tenant}/events/{scope}/{key}/release | succeed | redeliver`

use std::collections::BTreeMap;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::event::{StoredBody, StoredResponse};
use crate::gateway::operator::Wish;

use super::auth::Caller;
use super::{Api, Problem, query};

/// The longest body of a verb: an answer with 256 KiB, encoded.
const BODY_MAX: usize = 1 << 20;

/// Fields that belong to a connection, or that the gateway writes itself: no kept answer has them.
const NOT_KEPT: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// An answer that redeliveries get.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Answer {
    /// 200 without it.
    status: Option<u16>,
    /// Each a name with its value.
    headers: BTreeMap<String, String>,
    /// Text.
    body: Option<String>,
    /// Bytes, instead of `body`.
    body_base64: Option<String>,
}

/// A verb that was done.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DoneView {
    verb: &'static str,
    /// What stands in the store now.
    state: &'static str,
}

/// A redelivery that was made, whatever came of it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RedeliveredView {
    verb: &'static str,
    /// The attempt's id.
    event: String,
    /// `first`, or why there is no answer: the code of the problem that a sender would have got.
    outcome: &'static str,
    /// What the upstream answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_status: Option<u16>,
    /// What stands in the store now.
    state: &'static str,
}

type Named = Path<(String, String, String)>;

/// The next delivery claims, whatever it holds; attempt and fence go on.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/events/{scope}/{key}/release", params(
    ("tenant" = String, Path, description = "Whose"),
    ("scope" = String, Path, description = "Where its key lives"),
    ("key" = String, Path, description = "Readable, percent-encoded"),
    ("namespace" = Option<String>, Query, description = "The plugin's key namespace, where the key stands in several"),
), responses(
    (status = 200, description = "Released.", body = DoneView),
    (status = 401, description = "No token."),
    (status = 404, description = "No such event, or not for this token."),
    (status = 409, description = "The event has succeeded, or is being forwarded now."),
), security(("bearer" = [])))]
pub(super) async fn release(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, scope, key)): Named,
    RawQuery(query): RawQuery,
) -> Result<Json<DoneView>, Problem> {
    let namespace = query::one(query.as_deref().unwrap_or_default(), "namespace");
    let wish = Wish { by: &caller.name, tenant: &tenant, scope: &scope, key: &key, namespace: namespace.as_deref() };
    api.gateway.release(wish).await?;
    Ok(Json(DoneView { verb: "release", state: "failed" }))
}

/// The event counts as done; redeliveries get the given answer, or 200 with an empty body.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/events/{scope}/{key}/succeed", params(
    ("tenant" = String, Path, description = "Whose"),
    ("scope" = String, Path, description = "Where its key lives"),
    ("key" = String, Path, description = "Readable, percent-encoded"),
    ("namespace" = Option<String>, Query, description = "The plugin's key namespace, where the key stands in several"),
), request_body = Option<Answer>, responses(
    (status = 200, description = "Done.", body = DoneView),
    (status = 400, description = "An answer that cannot be read."),
    (status = 401, description = "No token."),
    (status = 404, description = "No such event, or not for this token."),
    (status = 409, description = "The event has succeeded already, or is being forwarded now."),
    (status = 413, description = "An answer that is too large."),
), security(("bearer" = [])))]
pub(super) async fn succeed(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, scope, key)): Named,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Json<DoneView>, Problem> {
    let body = to_bytes(body, BODY_MAX).await.map_err(|_| Problem::BodyTooLarge)?;
    let answer = match body.trim_ascii() {
        [] => Answer::default(),
        // A list of values would be read as the members in their order.
        json @ [b'{', ..] => serde_json::from_slice(json)
            .map_err(|error| Problem::BadBody(format!("The answer is no JSON as expected: {error}.")))?,
        _ => return Err(Problem::BadBody("The answer is a JSON object, or nothing.".to_owned())),
    };
    let namespace = query::one(query.as_deref().unwrap_or_default(), "namespace");
    let wish = Wish { by: &caller.name, tenant: &tenant, scope: &scope, key: &key, namespace: namespace.as_deref() };
    api.gateway.succeed(wish, stored(answer)?).await?;
    Ok(Json(DoneView { verb: "succeed", state: "succeeded" }))
}

/// The kept request is sent again, as a new attempt.
#[utoipa::path(post, path = "/v1/tenants/{tenant}/events/{scope}/{key}/redeliver", params(
    ("tenant" = String, Path, description = "Whose"),
    ("scope" = String, Path, description = "Where its key lives"),
    ("key" = String, Path, description = "Readable, percent-encoded"),
    ("namespace" = Option<String>, Query, description = "The plugin's key namespace, where the key stands in several"),
), responses(
    (status = 200, description = "The attempt was made; its outcome.", body = RedeliveredView),
    (status = 401, description = "No token."),
    (status = 404, description = "No such event, or not for this token."),
    (status = 409, description = "The event has succeeded, is being forwarded now, or its request was not kept: release it, then let the sender resend."),
), security(("bearer" = [])))]
pub(super) async fn redeliver(
    State(api): State<Api>,
    caller: Caller,
    Path((tenant, scope, key)): Named,
    RawQuery(query): RawQuery,
) -> Result<Json<RedeliveredView>, Problem> {
    let namespace = query::one(query.as_deref().unwrap_or_default(), "namespace");
    let wish = Wish { by: &caller.name, tenant: &tenant, scope: &scope, key: &key, namespace: namespace.as_deref() };
    let made = api.gateway.redeliver(wish).await?;
    Ok(Json(RedeliveredView {
        verb: "redeliver",
        event: made.event,
        outcome: made.outcome,
        upstream_status: made.upstream_status,
        state: made.state,
    }))
}

/// The answer as it is kept; only what can be sent as it stands.
fn stored(answer: Answer) -> Result<StoredResponse, Problem> {
    let status = answer.status.unwrap_or(200);
    if !(200..=599).contains(&status) {
        return Err(Problem::BadBody("`status` is a number from 200 to 599.".to_owned()));
    }
    let mut headers = Vec::new();
    for (name, value) in answer.headers {
        let bad = || Problem::BadBody(format!("`headers` holds {name:?}, which no answer can have."));
        let field = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        HeaderValue::try_from(value.as_str()).map_err(|_| bad())?;
        let own = field.as_str().starts_with("idempotency-") || field == "onceward-event";
        if own || NOT_KEPT.contains(&field.as_str()) {
            return Err(bad());
        }
        headers.push((field.as_str().to_owned(), Bytes::from(value)));
    }
    let body = match (answer.body, answer.body_base64) {
        (Some(_), Some(_)) => return Err(Problem::BadBody("Give `body` or `body_base64`, not both.".to_owned())),
        (Some(text), None) => Bytes::from(text),
        (None, Some(base64)) => {
            let decoded = STANDARD.decode(base64);
            decoded.map_err(|error| Problem::BadBody(format!("`body_base64` is no base64: {error}.")))?.into()
        }
        (None, None) => Bytes::new(),
    };
    Ok(StoredResponse { status, headers, body: StoredBody::Full(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<StoredResponse, Problem> {
        stored(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn an_answer_is_what_it_says_or_200_without_a_body() {
        let empty = StoredResponse { status: 200, headers: Vec::new(), body: StoredBody::Full(Bytes::new()) };
        assert_eq!(read("{}").unwrap(), empty);
        let given = read(r#"{"status":201,"headers":{"X-Id":"7"},"body_base64":"/wA="}"#).unwrap();
        assert_eq!(given.status, 201);
        assert_eq!(given.headers, [("x-id".to_owned(), Bytes::from_static(b"7"))]);
        assert_eq!(given.body, StoredBody::Full(Bytes::from_static(b"\xff\0")));
    }

    #[test]
    fn what_no_answer_can_be_is_refused() {
        for bad in [
            r#"{"status":99}"#,
            r#"{"status":101}"#,
            r#"{"status":600}"#,
            r#"{"body":"a","body_base64":"YQ=="}"#,
            r#"{"body_base64":"%"}"#,
            r#"{"headers":{"a b":"c"}}"#,
            r#"{"headers":{"a":"b\r\nc: d"}}"#,
            r#"{"headers":{"Transfer-Encoding":"chunked"}}"#,
            r#"{"headers":{"Content-Length":"9"}}"#,
            r#"{"headers":{"Idempotency-Status":"first"}}"#,
        ] {
            assert!(matches!(read(bad), Err(Problem::BadBody(_))), "{bad}");
        }
        assert!(serde_json::from_str::<Answer>(r#"{"stauts":200}"#).is_err());
    }
}
