//! Takes a request in: who sent it, by which route it goes, and its whole body within the limits.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, Request};
use http_body::Body as _;
use http_body_util::BodyExt;
use ipnet::IpNet;

use crate::config::model;
use crate::event::Delivery;

use super::deployed::Deployed;
use super::rejection::Rejection;
use super::route::{Captures, Route, decoded};
use super::trail::Trail;
use super::{Body, BodyFault, BoxError, Gateway};

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The socket's address.
    pub address: IpAddr,
    /// Whether the connection is TLS.
    pub tls: bool,
}

/// Who sent a request, trusted proxies considered.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The address that limits and `allow_from` count.
    pub address: IpAddr,
    /// What the upstream gets as `X-Forwarded-For`.
    pub forwarded_for: String,
}

/// What a request must fit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes.
    pub body_max: usize,
    /// Networks whose `X-Forwarded-*` are believed.
    pub trusted_proxies: Arc<[IpNet]>,
}

impl Limits {
    /// From the server's settings.
    pub fn of(server: &model::Server) -> Self {
        Self { body_max: server.max_body, trusted_proxies: server.trusted_proxies.clone().into() }
    }
}

/// A request that was let in.
pub struct Admitted {
    /// Its route.
    pub route: Arc<Route>,
    /// The code that served its route when it was whole.
    pub code: Arc<Deployed>,
    /// What its path captured, as sent.
    pub captures: Captures,
    /// What was delivered.
    pub delivery: Arc<Delivery>,
    /// By whom.
    pub sender: Sender,
}

/// Finds the route before a byte of the body is read, then reads the body. Dropping the future (the client hung up) leaves
/// nothing behind.
///
/// # Errors
/// No route, an address that may not send or sends too often, a body that is too large, too slow or cut short, no code to read it.
pub async fn admit(
    gateway: &Gateway,
    request: Request<Body>,
    peer: Peer,
    received_at_ms: u64,
    trail: &mut Trail,
) -> Result<Admitted, Rejection> {
    let limits = &gateway.limits;
    let (head, body) = request.into_parts();
    let proxied = limits.trusted_proxies.iter().any(|network| network.contains(&peer.address));
    let authority = authority(&head.uri, &head.headers, proxied)?;
    let sender = sender(&head.headers, peer, &limits.trusted_proxies);
    gateway.rates.request(sender.address)?;
    let (route, captures) = gateway.routes.find(&authority, head.uri.path(), &head.method)?;
    trail.routed(&route);
    let allow_from = &route.config.allow_from;
    if !allow_from.is_empty() && !allow_from.iter().any(|network| network.contains(&sender.address)) {
        return Err(Rejection::AddressNotAllowed);
    }
    let body = read_body(&head.headers, body, limits).await?;
    let code = route.plugin.now().ok_or(Rejection::PluginUnavailable)?;
    let delivery = Delivery {
        scheme: scheme(&head.headers, peer, proxied),
        authority,
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        method: head.method,
        params: decoded(&captures),
        headers: head.headers,
        body,
        received_at_ms,
        client_certificate: None,
    };
    Ok(Admitted { route, code, captures, delivery: Arc::new(delivery), sender })
}

async fn read_body(headers: &HeaderMap, body: Body, limits: &Limits) -> Result<Bytes, Rejection> {
    // Said before a byte is read, so that a client that waits for `100 Continue` never sends the body.
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limits.body_max) {
        return Err(Rejection::BodyTooLarge);
    }
    match collect(body, limits.body_max).await {
        Ok(Some(body)) => Ok(body),
        Ok(None) => Err(Rejection::BodyTooLarge),
        Err(error) => Err(match error.downcast_ref() {
            Some(BodyFault::TimedOut) => Rejection::ClientTimeout,
            _ => Rejection::BadRequest("The body ended early or is not framed as HTTP/1.1 says."),
        }),
    }
}

/// The whole body; none when it is larger than `max`. Trailers are left out: they are neither signed nor forwarded.
async fn collect(mut body: Body, max: usize) -> Result<Option<Bytes>, BoxError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() > max - whole.len() {
            return Ok(None);
        }
        // Most deliveries come in one piece, which is not copied.
        if whole.is_empty() && body.is_end_stream() {
            return Ok(Some(data));
        }
        whole.extend_from_slice(&data);
    }
    Ok(Some(whole.freeze()))
}

/// Host and port as the sender used them: from the first proxy that is trusted, else from the request target or `Host`, which
/// the server has found to agree.
fn authority(uri: &http::Uri, headers: &HeaderMap, proxied: bool) -> Result<String, Rejection> {
    if let Some(host) = forwarded(headers, "x-forwarded-host", proxied) {
        return Ok(host.to_owned());
    }
    if let Some(authority) = uri.authority() {
        return Ok(authority.to_string());
    }
    let host = headers.get(HOST).map_or(Ok(""), |host| host.to_str());
    host.map(str::to_owned).map_err(|_| Rejection::BadRequest("The Host header is not a valid host."))
}

fn scheme(headers: &HeaderMap, peer: Peer, proxied: bool) -> &'static str {
    match forwarded(headers, "x-forwarded-proto", proxied) {
        Some("https") => "https",
        Some("http") => "http",
        _ if peer.tls => "https",
        _ => "http",
    }
}

/// The first entry of a forwarding header, from a trusted proxy only.
fn forwarded<'a>(headers: &'a HeaderMap, name: &str, proxied: bool) -> Option<&'a str> {
    let text = headers.get(name).filter(|_| proxied)?.to_str().ok()?;
    text.split(',').next().map(str::trim).filter(|entry| !entry.is_empty())
}

/// The sender is the last address that no trusted proxy vouches for: what stands left of it in the list is anybody's word.
fn sender(headers: &HeaderMap, peer: Peer, trusted: &[IpNet]) -> Sender {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut chain = vec![peer.address];
    let listed = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let mut listed: Vec<Option<IpAddr>> =
        listed.flat_map(|value| value.split(',')).map(|entry| entry.trim().parse().ok()).collect();
    while chain.last().is_some_and(is_trusted) {
        match listed.pop() {
            Some(Some(address)) => chain.push(address),
            _ => break,
        }
    }
    let address = chain.last().copied().unwrap_or(peer.address);
    chain.reverse();
    let forwarded_for = chain.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Sender { address, forwarded_for }
}

/// The gateway's own clock, Unix milliseconds: for the age of a signature, never for a lease.
pub fn wall_clock_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the one place that stamps an arrival")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
