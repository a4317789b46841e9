//! A delivery as the guest gets it: borrowed, and only the headers that it asked for.

use http::HeaderMap;

use super::generated::onceward::plugin::types::{HeaderParam, Request};
use crate::event::Delivery;

/// The lines of the wanted names, or all; names are lower case already, values stay octets.
pub(super) fn headers<'a>(all: &'a HeaderMap, wanted: &[String]) -> Vec<HeaderParam<'a>> {
    let line = |(name, value): (&'a http::HeaderName, &'a http::HeaderValue)| HeaderParam {
        name: name.as_str(),
        value: value.as_bytes(),
    };
    if wanted.iter().any(|name| name == "*") {
        return all.iter().map(line).collect();
    }
    all.iter().filter(|(name, _)| wanted.iter().any(|one| one == name.as_str())).map(line).collect()
}

pub(super) fn params(all: &[(String, String)]) -> Vec<(&str, &str)> {
    all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

pub(super) fn lower<'a>(
    delivery: &'a Delivery,
    params: &'a [(&'a str, &'a str)],
    headers: &'a [HeaderParam<'a>],
) -> Request<'a> {
    Request {
        method: delivery.method.as_str(),
        scheme: delivery.scheme,
        authority: &delivery.authority,
        path: &delivery.path,
        query: delivery.query.as_deref(),
        params,
        headers,
        body: &delivery.body,
        received_at_ms: delivery.received_at_ms,
        client_certificate: delivery.client_certificate.as_deref(),
    }
}
