//! What is kept: as much of an answer as its replay needs, and the request of an event that may wait for a person.

mod redact;
mod request;

pub use request::{Unreadable, Written, read_back, write_down};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap};
use http::response;

use crate::event::{StoredBody, StoredResponse};
use crate::idempotency::policy::{KeepRequest, OnFailed, OnUnknown, Replay, ReplayBody};

use super::admission::Admitted;
use super::dedupe::Terms;
use super::headers;
use super::limits::Place;

use redact::Json;

/// Fields that vouch for a body's very bytes: beside another body they would lie. A content's length is never kept.
const OF_THE_BYTES: [&str; 5] = ["content-md5", "digest", "content-digest", "repr-digest", "etag"];

/// The most that the requests kept for one delivery may take together: each of its events gets one.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// What of an answer is kept: end-to-end fields but those the route drops, and as much of the body as it wants, without what it
/// redacts. `Date` is not kept: a replay has its own.
pub(super) fn answer(head: &response::Parts, body: Option<&Bytes>, replay: &Replay) -> StoredResponse {
    let mut passing = headers::to_sender(&head.headers);
    passing.remove(http::header::DATE);
    for name in &replay.drop_headers {
        passing.remove(name);
    }
    let kept = match (replay.body, body) {
        // What was empty is whole.
        (_, Some(body)) if body.is_empty() => StoredBody::Full(Bytes::new()),
        (ReplayBody::Full, Some(body)) => {
            redacted(body, &passing, &replay.redact).map_or(StoredBody::Omitted, StoredBody::Full)
        }
        (ReplayBody::Reference, Some(body)) => {
            let id = Json::parse(body).and_then(|json| json.text_at(&replay.resource_id));
            id.map_or(StoredBody::Omitted, StoredBody::Reference)
        }
        _ => StoredBody::Omitted,
    };
    let is_whole = matches!((&kept, body), (StoredBody::Full(kept), Some(body)) if kept == body);
    if !is_whole {
        for name in OF_THE_BYTES {
            passing.remove(name);
        }
    }
    let headers = passing
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())))
        .collect();
    StoredResponse { status: head.status.as_u16(), headers, body: kept }
}

/// The body without what is redacted; none when that cannot be done, since it is no JSON that can be read here. A body in which the
/// pointers name nothing stays as it is.
fn redacted(body: &Bytes, headers: &HeaderMap, pointers: &[String]) -> Option<Bytes> {
    if pointers.is_empty() {
        return Some(body.clone());
    }
    let plain =
        headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    match Json::parse(body).filter(|_| plain)?.without(pointers) {
        std::borrow::Cow::Borrowed(_) => Some(body.clone()),
        std::borrow::Cow::Owned(text) => Some(Bytes::from(text)),
    }
}

impl Admitted {
    /// What the store is to know of this delivery of so many events. The request is kept with each claim of an event that may come to
    /// wait for a person: from before the forward on, so that it is there after a crash too.
    pub(super) fn terms<'a>(&'a self, events: usize, place: &'a Place) -> Terms<'a> {
        let route = &self.route.config;
        let policy = &route.policy;
        let request = (policy.keep_request == KeepRequest::Attention)
            .then(|| write_down(&self.delivery, &self.captures, &self.sender, events));
        let may_wait = policy.unknown == OnUnknown::Hold || policy.failed == OnFailed::DeadLetter;
        let fits = self.delivery.body.len().saturating_mul(events) <= KEPT_BYTES_MAX;
        Terms {
            route: &route.name,
            policy,
            with_claim: request.clone().filter(|_| may_wait && fits),
            with_mismatch: request,
            place: Some(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn replay(body: ReplayBody, redact: &[&str]) -> Replay {
        let redact = redact.iter().map(|&pointer| pointer.to_owned()).collect();
        Replay { body, max_body: 1024, drop_headers: vec!["set-cookie".into()], redact, resource_id: "/id".into() }
    }

    fn kept(fields: &[(&str, &str)], body: &str, replay: &Replay) -> (Vec<String>, StoredBody) {
        let fields = fields.iter().fold(Response::builder(), |response, (name, value)| response.header(*name, *value));
        let (head, ()) = fields.body(()).unwrap().into_parts();
        let kept = answer(&head, Some(&Bytes::copy_from_slice(body.as_bytes())), replay);
        (kept.headers.into_iter().map(|(name, _)| name).collect(), kept.body)
    }

    fn full(body: &str) -> StoredBody {
        StoredBody::Full(Bytes::copy_from_slice(body.as_bytes()))
    }

    const VOUCHED: [(&str, &str); 5] =
        [("etag", "\"1\""), ("content-digest", "x"), ("x-keep", "1"), ("set-cookie", "a"), ("date", "d")];

    #[test]
    fn a_redacted_body_has_no_field_that_vouches_for_the_whole_one() {
        let redacting = replay(ReplayBody::Full, &["/card"]);
        assert_eq!(kept(&VOUCHED, r#"{"id":1,"card":2}"#, &redacting), (vec!["x-keep".into()], full(r#"{"id":1}"#)));
        let untouched = kept(&VOUCHED, r#"{ "id":1 }"#, &redacting);
        assert_eq!(untouched, (vec!["etag".into(), "content-digest".into(), "x-keep".into()], full(r#"{ "id":1 }"#)));
    }

    #[test]
    fn what_cannot_be_redacted_is_not_kept() {
        let redacting = replay(ReplayBody::Full, &["/card"]);
        for (fields, body) in
            [(&[][..], "card=4242"), (&[("content-encoding", "gzip")], r#"{"card":1}"#), (&[], r#"{"card":1"#)]
        {
            assert_eq!(kept(fields, body, &redacting).1, StoredBody::Omitted, "{body}");
        }
        assert_eq!(kept(&[("content-encoding", "identity")], r#"{"card":1}"#, &redacting).1, full("{}"));
        assert_eq!(kept(&[], "", &redacting).1, full(""), "nothing stands in an empty body");
    }

    #[test]
    fn a_reference_is_exact() {
        let reference = replay(ReplayBody::Reference, &[]);
        let id = kept(&[], r#"{"id":12345678901234567890123}"#, &reference).1;
        assert_eq!(id, StoredBody::Reference("12345678901234567890123".into()));
        assert_eq!(kept(&[], r#"{"id":null}"#, &reference).1, StoredBody::Omitted);
    }
}
