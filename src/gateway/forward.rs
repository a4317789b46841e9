//! One forward: the request as the upstream gets it, and the exchange up to a whole answer, a large one, or a fault.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use futures::future::ready;
use futures::stream::{self, StreamExt};
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{Request, Uri, response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::config::model::Target;
use crate::event::Delivery;

use super::admission::Sender;
use super::dedupe::Item;
use super::headers;
use super::identity::Identity;
use super::rejection::Rejection;
use super::route::{Captures, Route};
use super::upstream::{SendFault, Upstream};
use super::{Body, BoxError};

/// What the upstream is told about a delivery, beside the client's own bytes.
pub struct Forward<'a> {
    /// The route.
    pub route: &'a Route,
    /// What its path captured, as sent.
    pub captures: &'a Captures,
    /// The delivery.
    pub delivery: &'a Delivery,
    /// Who sent it.
    pub sender: &'a Sender,
    /// This delivery's id.
    pub event: &'a str,
    /// The trace it starts, 32 hex digits.
    pub trace_id: &'a str,
}

/// How an exchange ended.
pub enum Exchange {
    /// A whole answer, no larger than what a route keeps.
    Whole(response::Parts, Bytes),
    /// An answer that is larger: its head, what has come, and what is to come.
    Large(response::Parts, Bytes, Body),
    /// No byte was sent.
    Unsent(String),
    /// Bytes may have been sent, and no whole answer came.
    Broken(String),
    /// The upstream's time was over.
    TimedOut,
}

impl Forward<'_> {
    /// The request of a deduplicated delivery: with the business key, the attempt and the fence of its claims.
    ///
    /// # Errors
    /// [`Rejection::Internal`] when the target cannot be written as a URI.
    pub fn deduplicated(
        &self,
        upstream: &Upstream,
        ids: &[Identity],
        items: &[Item],
    ) -> Result<Request<Full<Bytes>>, Rejection> {
        let mut request = self.plain(upstream)?;
        let held = || items.iter().filter_map(|item| if let Item::First(held) = item { Some(held) } else { None });
        let attempt = held().map(|held| held.claim.attempt).max().unwrap_or(1);
        let fence = held().map(|held| held.claim.fence).max().unwrap_or_default();
        let headers = request.headers_mut();
        // An event that was claimed under the key it is known by goes out under that, as it did before.
        let key = match items {
            [Item::First(held)] => held.key.readable(),
            _ => Identity::readable(ids),
        };
        put(headers, "idempotency-key", &key);
        put(headers, "onceward-attempt", &attempt.to_string());
        put(headers, "onceward-fence", &fence.to_string());
        if items.len() > 1 {
            let words = items.iter().map(|item| if matches!(item, Item::First(_)) { "first" } else { "replay" });
            put(headers, "onceward-items", &words.collect::<Vec<_>>().join(", "));
        }
        Ok(request)
    }

    /// The request of a delivery that has keys and could not be claimed: the upstream may know the key.
    ///
    /// # Errors
    /// As [`Self::deduplicated`].
    pub fn unclaimed(&self, upstream: &Upstream, ids: &[Identity]) -> Result<Request<Full<Bytes>>, Rejection> {
        let mut request = self.plain(upstream)?;
        put(request.headers_mut(), "idempotency-key", &Identity::readable(ids));
        Ok(request)
    }

    /// The request of a delivery that is not deduplicated.
    ///
    /// # Errors
    /// As [`Self::deduplicated`].
    pub fn plain(&self, upstream: &Upstream) -> Result<Request<Full<Bytes>>, Rejection> {
        let delivery = self.delivery;
        let mut request = Request::new(Full::new(delivery.body.clone()));
        *request.method_mut() = delivery.method.clone();
        let (uri, authority) = self.target(upstream).map_err(|error| {
            tracing::error!(event = self.event, %error, "the upstream's address cannot be written");
            Rejection::Internal
        })?;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers::to_upstream(&delivery.headers);
        let headers = request.headers_mut();
        put(headers, HOST.as_str(), if upstream.settings.preserve_host { &delivery.authority } else { &authority });
        put(headers, "onceward-tenant", &self.route.config.tenant);
        put(headers, "onceward-route", &self.route.config.name);
        put(headers, "onceward-event", self.event);
        put(headers, "x-forwarded-for", &self.sender.forwarded_for);
        put(headers, "x-forwarded-proto", delivery.scheme);
        put(headers, "x-forwarded-host", &delivery.authority);
        let span = self.trace_id.get(..16).unwrap_or_default();
        put(headers, "traceparent", &format!("00-{}-{span}-01", self.trace_id));
        Ok(request)
    }

    fn target(&self, upstream: &Upstream) -> Result<(Uri, String), http::Error> {
        let path = self.route.upstream_path(self.delivery, self.captures);
        let (scheme, authority, prefix) = match &upstream.settings.target {
            Target::Echo => (http::uri::Scheme::HTTP, http::uri::Authority::from_static("builtin"), ""),
            Target::Http { scheme, authority, prefix } => (scheme.clone(), authority.clone(), prefix.as_str()),
        };
        let target = match &self.delivery.query {
            Some(query) => format!("{prefix}{path}?{query}"),
            None => format!("{prefix}{path}"),
        };
        let host = authority.to_string();
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(authority)
            .path_and_query(PathAndQuery::try_from(target)?)
            .build()?;
        Ok((uri, host))
    }
}

/// Sends and collects, until `deadline`, at most `keep_max` bytes of body.
pub async fn exchange(
    upstream: &Upstream,
    request: Request<Full<Bytes>>,
    keep_max: usize,
    deadline: Instant,
) -> Exchange {
    let sent = match timeout_at(deadline, upstream.send(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(SendFault::Unsent(error))) => return Exchange::Unsent(error),
        Ok(Err(SendFault::Broken(error))) => return Exchange::Broken(error),
        Err(_) => return Exchange::TimedOut,
    };
    fail::fail_point!("forward.sent");
    let (head, mut body) = sent.into_parts();
    if head.status.is_informational() {
        return Exchange::Broken(format!("the upstream switched protocols ({}) without being asked", head.status));
    }
    // hyper goes by the encoding; whoever goes by the length reads another body (RFC 9112 §6.3).
    if head.headers.contains_key(CONTENT_LENGTH) && head.headers.contains_key(TRANSFER_ENCODING) {
        return Exchange::Broken("the answer has both a length and a transfer encoding".to_owned());
    }
    let mut start = BytesMut::new();
    loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => return Exchange::TimedOut,
            Ok(None) => return Exchange::Whole(head, start.freeze()),
            Ok(Some(Err(error))) => return Exchange::Broken(format!("the answer ended early: {error}")),
            Ok(Some(Ok(frame))) => {
                // Trailers are not forwarded: a frame without data is passed over.
                start.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
                if start.len() > keep_max {
                    return Exchange::Large(head, start.freeze(), body);
                }
            }
        }
    }
}

/// Passes a large answer on, one frame behind, and keeps the last one back: the sender's copy is whole only after the caller has
/// written the outcome. Returns the frame that was kept back.
///
/// Only the upstream decides the outcome. A sender that hung up, or that takes nothing for half of the time that is left, is given up
/// (`to_sender` becomes none, which cuts it), and the rest of the answer is read all the same.
///
/// # Errors
/// Why the answer did not come whole.
pub async fn pump(
    start: Bytes,
    rest: Body,
    to_sender: &mut Option<mpsc::Sender<Part>>,
    deadline: Instant,
) -> Result<Bytes, Exchange> {
    let mut rest = pin!(rest);
    let mut behind = start;
    loop {
        match timeout_at(deadline, rest.frame()).await {
            Err(_) => return Err(Exchange::TimedOut),
            Ok(None) => return Ok(behind),
            Ok(Some(Err(error))) => return Err(Exchange::Broken(format!("the answer ended early: {error}"))),
            Ok(Some(Ok(frame))) => {
                let Ok(data) = frame.into_data() else { continue };
                let piece = Part::More(std::mem::replace(&mut behind, data));
                let Some(sender) = to_sender else { continue };
                let now = Instant::now();
                let patience = now + deadline.saturating_duration_since(now) / 2;
                if !matches!(timeout_at(patience, sender.send(piece)).await, Ok(Ok(()))) {
                    *to_sender = None;
                }
            }
        }
    }
}

/// A piece of an answer on its way to the sender.
pub enum Part {
    /// One of several.
    More(Bytes),
    /// The last one.
    Last(Bytes),
}

/// A body that is fed through a channel. It ends with its last part only: when the feeding side goes away before that, the body
/// fails, and the connection is cut.
pub fn parts_body() -> (mpsc::Sender<Part>, Body) {
    let (sender, receiver) = mpsc::channel(8);
    let parts = stream::unfold(Some(receiver), |receiver| async {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Part::More(bytes)) => Some((Ok(Frame::data(bytes)), Some(receiver))),
            Some(Part::Last(bytes)) => Some((Ok(Frame::data(bytes)), None)),
            None => Some((Err(BoxError::from("the upstream's answer ended early")), None)),
        }
    });
    (sender, StreamBody::new(parts).boxed_unsync())
}

/// A body that is passed on as it comes, until `deadline`.
pub fn passing(start: Bytes, rest: Body, deadline: Instant) -> Body {
    let frames = stream::unfold((Some(start), Some(rest)), move |(start, rest)| async move {
        if let Some(start) = start {
            return Some((Ok(Frame::data(start)), (None, rest)));
        }
        let mut rest = rest?;
        match timeout_at(deadline, rest.frame()).await {
            Ok(frame) => Some((frame?, (None, Some(rest)))),
            Err(_) => Some((Err(BoxError::from("the upstream's time was over")), (None, None))),
        }
    });
    // Trailers are not forwarded.
    StreamBody::new(frames.filter(|frame| ready(!matches!(frame, Ok(frame) if frame.is_trailers())))).boxed_unsync()
}

fn put(headers: &mut http::HeaderMap, name: &'static str, value: &str) {
    // Names and values are ASCII by the config's rules or made here; what is not is left out rather than sent broken.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
