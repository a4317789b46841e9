//! A request written down, so that an operator can have it sent again: all that a forward needs, as the sender sent it.
//!
//! It holds whatever the sender wrote, credentials too, since the upstream is to get the same bytes. So it is kept encrypted only:
//! the config demands encryption keys, and the store's wrapper seals it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::{Deserialize, Serialize};

use crate::event::Delivery;
use crate::gateway::admission::{Admitted, Sender};
use crate::gateway::deployed::Deployed;
use crate::gateway::route::{Captures, Route, decoded};

/// The first byte of all that is written down by this version.
const VERSION: u8 = 1;

/// A request as it was read back.
#[derive(Clone, Debug)]
pub struct Written {
    /// What was delivered.
    pub delivery: Arc<Delivery>,
    /// What the path captured, as sent.
    pub captures: Captures,
    /// By whom.
    pub sender: Sender,
    /// How many events it carries.
    pub events: usize,
}

/// Octets that are no request as this version writes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kept request cannot be read: a later version wrote it, or it is damaged")]
pub struct Unreadable;

impl Written {
    /// As if it had just come in by `route`, which `code` serves.
    pub fn into_admitted(self, route: Arc<Route>, code: Arc<Deployed>) -> Admitted {
        Admitted { route, code, captures: self.captures, delivery: self.delivery, sender: self.sender }
    }
}

/// All but the body, as JSON.
#[derive(Serialize, Deserialize)]
struct Head {
    method: String,
    scheme: String,
    authority: String,
    path: String,
    query: Option<String>,
    captures: Captures,
    /// Each char of a value is one octet.
    headers: Vec<(String, String)>,
    received_at_ms: u64,
    client_certificate: Option<String>,
    address: IpAddr,
    forwarded_for: String,
    events: usize,
}

/// A version, the head's length, the head, the body.
pub fn write_down(delivery: &Delivery, captures: &Captures, sender: &Sender, events: usize) -> Bytes {
    let octets = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    let head = Head {
        method: delivery.method.to_string(),
        scheme: delivery.scheme.to_owned(),
        authority: delivery.authority.clone(),
        path: delivery.path.clone(),
        query: delivery.query.clone(),
        captures: captures.clone(),
        headers: delivery.headers.iter().map(|(name, value)| (name.to_string(), octets(value))).collect(),
        received_at_ms: delivery.received_at_ms,
        client_certificate: delivery.client_certificate.clone(),
        address: sender.address,
        forwarded_for: sender.forwarded_for.clone(),
        events,
    };
    #[expect(clippy::expect_used, reason = "strings, numbers and lists of them always have a JSON form")]
    let head = serde_json::to_vec(&head).expect("plain data has a JSON form");
    let mut written = BytesMut::with_capacity(5 + head.len() + delivery.body.len());
    written.put_u8(VERSION);
    // A head is bounded by `server.max_headers`.
    written.put_u32(u32::try_from(head.len()).unwrap_or(u32::MAX));
    written.extend_from_slice(&head);
    written.extend_from_slice(&delivery.body);
    written.freeze()
}

/// The request that [`write_down`] wrote.
///
/// # Errors
/// [`Unreadable`].
pub fn read_back(written: &[u8]) -> Result<Written, Unreadable> {
    read(written).ok_or(Unreadable)
}

fn read(written: &[u8]) -> Option<Written> {
    let (version, rest) = written.split_first()?;
    if *version != VERSION {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (head, body) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for (name, value) in head.headers {
        let octets = value.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>().ok()?;
        headers.append(HeaderName::try_from(name).ok()?, HeaderValue::from_bytes(&octets).ok()?);
    }
    let delivery = Delivery {
        method: Method::from_bytes(head.method.as_bytes()).ok()?,
        scheme: if head.scheme == "https" { "https" } else { "http" },
        authority: head.authority,
        path: head.path,
        query: head.query,
        params: decoded(&head.captures),
        headers,
        body: Bytes::copy_from_slice(body),
        received_at_ms: head.received_at_ms,
        client_certificate: head.client_certificate,
    };
    let sender = Sender { address: head.address, forwarded_for: head.forwarded_for };
    Some(Written { delivery: Arc::new(delivery), captures: head.captures, sender, events: head.events })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-a", &b"1"[..]), ("x-b", b"\xff\xe9"), ("x-a", b"2"), ("authorization", b"Bearer t")] {
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        Delivery {
            method: Method::PUT,
            scheme: "https",
            authority: "hooks.example.com:8443".into(),
            path: "/pay/a%2Fb".into(),
            query: Some("a=1&a=%20".into()),
            params: vec![("shop".into(), "a/b".into())],
            headers,
            body: Bytes::from_static(b"\x00\xff{\"id\":1}"),
            received_at_ms: 1_700_000_000_123,
            client_certificate: Some("CN=a".into()),
        }
    }

    #[test]
    fn a_request_comes_back_to_the_byte() {
        let before = delivery();
        let captures = vec![("shop".to_owned(), "a%2Fb".to_owned())];
        let sender = Sender { address: [203, 0, 113, 7].into(), forwarded_for: "203.0.113.7, 10.0.0.1".into() };
        let after = read_back(&write_down(&before, &captures, &sender, 3)).unwrap();
        assert_eq!(format!("{:?}", after.delivery), format!("{before:?}"), "octets and order of every field");
        assert_eq!((after.captures, after.events), (captures, 3));
        assert_eq!((after.sender.address, after.sender.forwarded_for), (sender.address, sender.forwarded_for));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let captures = Captures::new();
        let sender = Sender { address: [127, 0, 0, 1].into(), forwarded_for: String::new() };
        let good = write_down(&delivery(), &captures, &sender, 1);
        for bad in [&b""[..], b"\x02", b"\x01\0\0", b"\x01\0\0\0\x02{}", &good[..40]] {
            assert!(read_back(bad).is_err(), "{bad:?}");
        }
        let mut later = good.to_vec();
        later[0] = 2;
        assert!(read_back(&later).is_err());
    }
}
