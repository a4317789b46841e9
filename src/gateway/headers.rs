//! Which header fields pass, which way. Pure rules over [`HeaderMap`].

use http::header::{self, HeaderMap, HeaderName};

/// Fields that belong to one connection (RFC 9110 §7.6.1) and never pass.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What the gateway itself says, to senders and to upstreams. Anybody else's copies are dropped, both ways.
const OWN: [HeaderName; 10] = [
    HeaderName::from_static("idempotency-status"),
    HeaderName::from_static("idempotency-replayed"),
    HeaderName::from_static("idempotency-expires"),
    HeaderName::from_static("idempotency-replay-body"),
    HeaderName::from_static("onceward-event"),
    HeaderName::from_static("onceward-attempt"),
    HeaderName::from_static("onceward-fence"),
    HeaderName::from_static("onceward-tenant"),
    HeaderName::from_static("onceward-route"),
    HeaderName::from_static("onceward-items"),
];

/// What the gateway says to upstreams of the way that a request took.
const FORWARDING: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("traceparent"),
];

/// The upstream's key is the business key, never the sender's word.
const BUSINESS_KEY: &str = "idempotency-key";

/// All fields but those of the connection: the standard ones, those that `Connection` names, and the framing's.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut passing = headers.clone();
    for value in headers.get_all(header::CONNECTION) {
        let names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for name in names.filter_map(|name| HeaderName::from_bytes(name).ok()) {
            passing.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        passing.remove(name);
    }
    // The framing is made anew on each connection: by the body's own length.
    passing.remove(header::CONTENT_LENGTH);
    passing
}

/// Drops the gateway's own names from what a sender or a plugin says.
pub fn remove_own(headers: &mut HeaderMap) {
    for name in OWN.iter().chain(&FORWARDING) {
        headers.remove(name);
    }
}

/// Drops names that many servers fold into one of ours: they read `_` as `-`.
fn remove_lookalikes(headers: &mut HeaderMap) {
    let ours = |name: &str| {
        let dashed = name.replace('_', "-");
        name.contains('_')
            && (dashed == BUSINESS_KEY || OWN.iter().chain(&FORWARDING).any(|own| own.as_str() == dashed))
    };
    let found: Vec<HeaderName> = headers.keys().filter(|name| ours(name.as_str())).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// What the upstream gets of a sender's fields: the end-to-end ones but the gateway's own names, `Idempotency-Key` among them
/// (the upstream's key is the business key), `Host` and `Expect`, which the gateway answers itself.
pub fn to_upstream(headers: &HeaderMap) -> HeaderMap {
    let mut passing = end_to_end(headers);
    remove_own(&mut passing);
    remove_lookalikes(&mut passing);
    passing.remove(BUSINESS_KEY);
    passing.remove("tracestate");
    passing.remove(header::HOST);
    passing.remove(header::EXPECT);
    passing
}

/// What a sender gets of an upstream's fields: all end-to-end ones but what only the gateway may say.
pub fn to_sender(headers: &HeaderMap) -> HeaderMap {
    let mut passing = end_to_end(headers);
    for name in &OWN {
        passing.remove(name);
    }
    passing
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
        }
        map
    }

    #[test]
    fn connection_named_fields_and_framing_do_not_pass() {
        let passing = end_to_end(&map(&[
            ("connection", "close, x-private"),
            ("connection", "X-Other"),
            ("x-private", "1"),
            ("x-other", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ]));
        assert_eq!(passing, map(&[("set-cookie", "a=1"), ("set-cookie", "b=2")]));
    }

    #[test]
    fn a_client_cannot_speak_as_the_gateway() {
        let passing = to_upstream(&map(&[
            ("idempotency-key", "mine"),
            ("onceward-fence", "9"),
            ("x-forwarded-for", "6.6.6.6"),
            ("traceparent", "00-1"),
            ("host", "evil"),
            ("expect", "100-continue"),
            ("idempotency_key", "mine"),
            ("Onceward_Fence", "9"),
            ("x_forwarded-for", "6.6.6.6"),
            ("x_mine", "1"),
            ("stripe-signature", "t=1"),
        ]));
        assert_eq!(passing, map(&[("x_mine", "1"), ("stripe-signature", "t=1")]));
    }

    proptest! {
        /// Whatever a peer sends, no hop-by-hop field, none that `Connection` names, and none of our own passes.
        #[test]
        fn nothing_private_passes(fields in prop::collection::vec(("[a-z-]{1,12}|te|upgrade|onceward-fence|keep-alive", "[a-z, -]{0,20}"), 0..12), named in "[a-z]{1,8}") {
            let mut headers = HeaderMap::new();
            for (name, value) in &fields {
                headers.append(HeaderName::try_from(name.as_str()).unwrap(), HeaderValue::try_from(value.as_str()).unwrap());
            }
            headers.append("connection", HeaderValue::try_from(named.as_str()).unwrap());
            headers.append(HeaderName::try_from(named.as_str()).unwrap(), HeaderValue::from_static("1"));
            let passing = to_upstream(&headers);
            prop_assert!(!passing.contains_key(named.as_str()));
            for name in HOP_BY_HOP.iter().chain(&OWN) {
                prop_assert!(!passing.contains_key(name));
            }
        }
    }
}
