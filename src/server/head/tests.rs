//! The table of heads, good and bad, and the property that reads do not matter.

use proptest::prelude::*;

use super::{Escapes, Framing, Head, HeadParser, Verdict};
use crate::server::Refused;

const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Feeds pieces as a connection would and stops at the first verdict.
fn verdict(pieces: &[&[u8]]) -> Verdict {
    let mut parser = HeadParser::new(HEAD_BYTES_MAX, Escapes::Plain);
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(piece);
        match parser.read(&bytes) {
            Verdict::Partial => (),
            verdict => return verdict,
        }
    }
    Verdict::Partial
}

fn whole(head: &[u8]) -> Framing {
    match verdict(&[head]) {
        Verdict::Whole(Head { skip, len, framing }) => {
            assert_eq!(skip + len, head.len(), "{}", head.escape_ascii());
            framing
        }
        other => panic!("{other:?} for {}", head.escape_ascii()),
    }
}

/// Scenarios 52, 53 and 55: whatever two parsers could read in two ways is refused.
#[test]
fn ambiguous_heads_are_refused() {
    let lines: [&[u8]; 33] = [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: 5 5\r\n",
        b"Content-Length:\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: ,chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n",
        b"Transfer-Encoding: chunked\x0c\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Content-Length : 5\r\n",
        b"X-Folded: a\r\n b\r\n",
        b" X: a\r\n",
        b": a\r\n",
        b"no colon\r\n",
        b"X\x00Y: a\r\n",
        b"X: a\x00b\r\n",
        b"X: a\rb\r\n",
        b"X: a\nY: b\r\n",
        b"X: \x7f\r\n",
        b"X(Y): a\r\n",
        b"Host: b\r\n",
        b"Upgrade: websocket\r\n",
        b"\rX: a\r\n",
        b"X: a\r\r\n",
    ];
    for line in lines {
        let head = [b"POST / HTTP/1.1\r\nHost: a\r\n", line, b"\r\n"].concat();
        assert!(matches!(verdict(&[&head]), Verdict::Refused(Refused::BadRequest(_))), "{}", head.escape_ascii());
    }
    let heads: [&[u8]; 17] = [
        b"POST / HTTP/1.1\nHost: a\n\n",
        b"POST / HTTP/1.1\r\nHost: a\r\n\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a, b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost:\r\n\r\n",
        b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"POST\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"P(ST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.2\r\nHost: a\r\n\r\n",
        b"POST / http/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        b"POST http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for head in heads {
        assert!(matches!(verdict(&[head]), Verdict::Refused(Refused::BadRequest(_))), "{}", head.escape_ascii());
    }
}

#[test]
fn good_heads_say_how_the_body_ends() {
    assert_eq!(whole(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n"), Framing::Length(12));
    assert_eq!(whole(b"GET / HTTP/1.1\r\nhost:a\r\n\r\n"), Framing::Length(0));
    assert_eq!(whole(b"POST / HTTP/1.1\r\nHost: a\r\nTRANSFER-ENCODING:\tChunked \r\n\r\n"), Framing::Chunked);
    assert_eq!(whole(b"GET / HTTP/1.0\r\n\r\n"), Framing::Length(0));
    assert_eq!(whole(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Framing::Length(0));
    assert_eq!(whole(b"GET http://A:1/x HTTP/1.1\r\nHost: a:1\r\n\r\n"), Framing::Length(0));
    assert_eq!(whole(b"GET / HTTP/1.1\r\nHost: a\r\nX-Utf8: \xc3\xa9\t1\r\nEmpty:\r\n\r\n"), Framing::Length(0));
}

/// Scenario 60: too long is said as what it is.
#[test]
fn caps_are_reported_by_what_was_too_long() {
    let with = |target: usize, header: usize| {
        let (target, header) = ("a".repeat(target), "b".repeat(header));
        verdict(&[format!("GET /{target} HTTP/1.1\r\nHost: a\r\nX: {header}\r\n\r\n").as_bytes()])
    };
    assert!(matches!(with(8191, 0), Verdict::Whole(_)));
    assert_eq!(with(8192, 0), Verdict::Refused(Refused::UriTooLong));
    assert_eq!(with(100_000, 0), Verdict::Refused(Refused::UriTooLong));
    assert!(matches!(with(0, 32_000), Verdict::Whole(_)));
    assert_eq!(with(0, 32_768), Verdict::Refused(Refused::HeadersTooLarge));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(100));
    assert_eq!(verdict(&[many.as_bytes()]), Verdict::Refused(Refused::HeadersTooLarge));
}

proptest! {
    /// The verdict is the bytes', not the network's: any cutting into reads gives the same one.
    #[test]
    fn any_split_gives_the_same_verdict(
        lines in prop::collection::vec(
            prop::sample::select(vec![
                "POST /a HTTP/1.1\r\n", "GET http://a/ HTTP/1.0\r\n", "Host: a\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n",
                "X: y\n", "X : y\r\n", " fold\r\n", "\r\n", "\n", "\r", "X: 1\r\n", "GET /../ HTTP/1.1\r\n",
            ]),
            0..8,
        ),
        cuts in prop::collection::vec(1_usize..20, 0..30),
    ) {
        let bytes = lines.concat().into_bytes();
        let mut rest = bytes.as_slice();
        let mut pieces = Vec::new();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(verdict(&pieces), verdict(&[&bytes]));
    }

    #[test]
    fn any_bytes_end_in_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(verdict(&pieces), verdict(&[&bytes]));
    }
}
