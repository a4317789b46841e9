//! Scenarios 52 to 56 and 60: a table of raw requests and what becomes of them. A refused one is never seen by the handler.

use super::rig::{Rig, settings};

/// One connection a case: the refusal is readable and the last thing on it; the handler saw `seen` requests.
fn check(rig: &Rig, bytes: &[u8], status: u16, seen: usize) {
    let before = rig.requests();
    let mut client = rig.connect();
    client.send(bytes);
    for _ in 0..seen {
        assert_eq!(client.answer().status, 200, "{}", bytes.escape_ascii());
    }
    let answer = client.answer();
    assert_eq!(answer.status, status, "{}", bytes.escape_ascii());
    assert!(answer.closes() && answer.head.contains("x-refused: yes"), "{}", answer.head);
    assert_eq!(client.rest(), b"", "{}", bytes.escape_ascii());
    assert_eq!(rig.requests() - before, seen, "{}", bytes.escape_ascii());
}

#[test]
fn s52_ambiguous_heads_get_400_and_no_handler() {
    let rig = Rig::start();
    let lines: [&[u8]; 16] = [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5",
        b"Content-Length: 5\r\nContent-Length: 5",
        b"Content-Length: +5",
        b"Content-Length: 5, 5",
        b"Content-Length: 18446744073709551616",
        b"Transfer-Encoding: ,chunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding : chunked",
        b"X: a\nContent-Length: 5",
        b"X: a\rContent-Length: 5",
        b"X: a\r\n folded",
        b": empty",
        b"X: \x00",
        b"Host: b",
    ];
    for line in lines {
        let head = [b"POST /echo HTTP/1.1\r\nHost: a\r\n", line, b"\r\n\r\n"].concat();
        check(&rig, &[&head[..], b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), 400, 0);
    }
    for head in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 x\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02\n",
    ] {
        check(&rig, head.as_bytes(), 400, 0);
    }
}

#[test]
fn s53_s55_s56_other_protocols_hosts_and_paths_get_400() {
    let rig = Rig::start();
    for head in [
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nhello",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        check(&rig, head.as_bytes(), 400, 0);
    }
}

/// The request before a refused one is answered first, and the one after it is never one.
#[test]
fn a_refusal_waits_for_the_answer_before_it() {
    let rig = Rig::start();
    let good = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let bad = b"GET / HTTP/1.1\r\nHost : a\r\n\r\n";
    check(&rig, &[&good[..], bad, good].concat(), 400, 1);
}

#[test]
fn s60_too_long_heads_get_414_and_431() {
    let rig = Rig::start();
    check(&rig, format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(9000)).as_bytes(), 414, 0);
    check(&rig, format!("GET /{}", "a".repeat(400_000)).as_bytes(), 414, 0);
    check(&rig, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(400_000)).as_bytes(), 431, 0);
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(120));
    check(&rig, many.as_bytes(), 431, 0);
}

#[test]
fn an_incomplete_head_gets_400() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Le");
    client.half_close();
    assert_eq!(client.answer().status, 400);
    assert_eq!(rig.requests(), 0);
}

/// The largest head that is allowed is served, cut into single bytes or not.
#[test]
fn good_heads_pass_however_they_are_cut() {
    let mut settings = settings();
    settings.max_headers = 4096;
    let rig = Rig::with(settings, None);
    let start = "POST /echo?a=%2e%2e HTTP/1.1\r\nhost:a\r\nContent-Length: 2\r\nX: ";
    let padding = "x".repeat(4096 - start.len() - 4);
    let request = format!("{start}{padding}\r\n\r\nhi");
    let mut client = rig.connect();
    client.send(&request);
    assert_eq!(client.answer().body, b"hi");
    for byte in request.bytes() {
        client.send([byte]);
    }
    assert_eq!(client.answer().body, b"hi");
    client.send("\r\nGET http://A:1/echo HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_eq!(client.answer().status, 200);
}
