//! Upstreams that break off, talk nonsense or cannot be reached.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::rig::{Rig, bad_once, event, forwards, is_first, is_problem, is_replay, pay, pay_request, second_attempt};
use crate::support::client::exchange;
use crate::support::config::{SQLITE, config, config_with};
use crate::support::gateway::Gateway;
use crate::support::redis::free_port;
use crate::support::upstream::{Act, Upstream, answer};

const SHORT: &str = "lease = \"700ms\"\nin_flight = { wait = \"0s\" }";

/// After an exchange that broke, nothing is kept: after the lease the event is forwarded once more.
async fn is_unknown(rig: &Rig, id: &str) {
    let first = rig.settle(&event(id, 1)).await;
    is_first(&first, "call 1");
    is_replay(&rig.pay(&event(id, 1)).await, &first);
    second_attempt(&forwards(&rig.upstream, id));
}

/// Scenario 42: processed, then reset: 502, outcome unknown.
#[tokio::test]
async fn s42_reset() {
    let rig = Rig::with(bad_once(|_| Act::Reset).await, SHORT);
    let broken = rig.pay(&event("evt_1", 1)).await;
    is_problem(&broken, 502, "upstream-failed");
    assert_eq!(broken.idempotency(), "first");
    is_unknown(&rig, "evt_1").await;
}

/// Scenario 42: processed, then closed without a word: 502, outcome unknown.
#[tokio::test]
async fn s42_closed() {
    let rig = Rig::with(bad_once(|_| Act::WriteAndClose(Vec::new())).await, SHORT);
    is_problem(&rig.pay(&event("evt_1", 1)).await, 502, "upstream-failed");
    is_unknown(&rig, "evt_1").await;
}

/// Scenario 42: processed, then silent: 504, outcome unknown.
#[tokio::test]
async fn s42_silence() {
    let rig = Rig::patient(bad_once(|_| Act::Silence).await, "400ms", SHORT);
    let broken = rig.pay(&event("evt_1", 1)).await;
    is_problem(&broken, 504, "upstream-timeout");
    assert_eq!(broken.idempotency(), "first");
    is_unknown(&rig, "evt_1").await;
}

/// Scenario 43: an answer that ends in the middle is no success; nothing of it is kept.
#[tokio::test]
async fn s43_cut_answers() {
    let cuts: [&[u8]; 4] = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\nff",
        b"HTTP/1.1 200 OK\r\ncontent-le",
    ];
    let upstream = bad_once(move |id| Act::WriteAndClose(cuts[number(id)].to_vec())).await;
    let rig = Rig::with(upstream, SHORT);
    for id in ["evt_0", "evt_1", "evt_2", "evt_3"] {
        if let Ok(answer) = exchange(rig.gateway.ingest, &pay_request(rig.gateway.ingest, &event(id, 1))).await {
            is_problem(&answer, 502, "upstream-failed");
        }
        is_unknown(&rig, id).await;
    }
}

/// `evt_3` is the third.
fn number(id: &str) -> usize {
    id["evt_".len()..].parse().unwrap()
}

/// Scenario 43 with an answer too large to keep: the client sees that it was cut, and it is no success.
#[tokio::test]
async fn s43_a_large_cut_answer() {
    let cut = [b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n".as_slice(), &vec![b'x'; 3 << 20]].concat();
    let rig = Rig::with(bad_once(move |_| Act::WriteAndClose(cut.clone())).await, SHORT);
    if let Ok(answer) = exchange(rig.gateway.ingest, &pay_request(rig.gateway.ingest, &event("evt_1", 1))).await {
        is_problem(&answer, 502, "upstream-failed");
    }
    is_unknown(&rig, "evt_1").await;
}

/// A bare upstream; its connections are served by `serve`.
async fn raw<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (SocketAddr, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    (address, serving)
}

/// Reads to the end of a head, no further than it must.
async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Scenario 44: an upstream that refuses before it has read the body: its answer is relayed, and counts as any complete one.
#[tokio::test]
async fn s44_an_early_413() {
    let (address, serving) = raw(|mut socket| async move {
        read_head(&mut socket).await;
        let early = b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 8\r\n\r\ntoo much";
        socket.write_all(early).await.unwrap();
        // It never reads the body, and does not reset the connection either.
        tokio::time::sleep(Duration::from_secs(20)).await;
    })
    .await;
    let gateway = Gateway::start(&config(SQLITE, address, "failed = \"replay\""));
    let body = format!(r#"{{"id":"evt_1","amount":1,"x":"{}"}}"#, "x".repeat(900 << 10));
    let asked = Instant::now();
    let refused = pay(&gateway, &body).await;
    assert_eq!((refused.status, refused.idempotency()), (413, "first"), "{refused:?}");
    assert_eq!(refused.body, b"too much");
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    is_replay(&pay(&gateway, &body).await, &refused);
    serving.abort();
}

/// Scenario 45: an answer that trickles on for ever ends with the upstream's timeout, and is no success.
#[tokio::test]
async fn s45_an_endless_answer() {
    let (address, serving) = raw(|mut socket| async move {
        read_head(&mut socket).await;
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        while socket.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let gateway = Gateway::start(&config_with(SQLITE, address, "timeout = \"1s\"", SHORT));
    let asked = Instant::now();
    if let Ok(answer) = exchange(gateway.ingest, &pay_request(gateway.ingest, &event("evt_1", 1))).await {
        is_problem(&answer, 504, "upstream-timeout");
    }
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    assert_ne!(pay(&gateway, &event("evt_1", 1)).await.idempotency(), "replay");
    serving.abort();
}

/// Scenario 46: an upstream that closes its connections when it likes gets no event twice.
#[tokio::test]
async fn s46_connections_that_close() {
    let upstream =
        Upstream::start(|_, _| Act::WriteAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec())).await;
    let rig = Rig::with(upstream, "");
    for at in 0..20 {
        let answer = rig.pay(&event(&format!("evt_{at}"), 1)).await;
        assert_eq!((answer.status, answer.idempotency()), (200, "first"), "{answer:?}");
        // The close arrives while the connection is idle, as it does with real servers.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(rig.upstream.count(), 20);
}

/// Scenario 47: an answer that could be read in two ways is none: 502, and nothing kept.
#[tokio::test]
async fn s47_answers_that_cannot_be_trusted() {
    let answers: [(&str, &[u8]); 12] = [
        (
            "CL and TE",
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        ("two lengths", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabcde"),
        ("a length that is none", b"HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc"),
        ("bare CR in a value", b"HTTP/1.1 200 OK\r\nx-a: 1\rx-b: 2\r\ncontent-length: 3\r\n\r\nabc"),
        ("NUL in a value", b"HTTP/1.1 200 OK\r\nx-a: 1\x002\r\ncontent-length: 3\r\n\r\nabc"),
        ("a folded line", b"HTTP/1.1 200 OK\r\nx-a: 1\r\n 2\r\ncontent-length: 3\r\n\r\nabc"),
        ("space before the colon", b"HTTP/1.1 200 OK\r\ncontent-length : 3\r\n\r\nabc"),
        ("101 unasked", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc"),
        ("a bad chunk size", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"),
        ("lines that end in LF alone", b"HTTP/1.1 200 OK\ncontent-length: 3\n\nabc"),
        ("one line that ends in LF alone", b"HTTP/1.1 200 OK\r\nx-a: 1\ncontent-length: 3\r\n\r\nabc"),
        ("no HTTP", b"220 mail.example ESMTP\r\n"),
    ];
    let upstream = bad_once(move |id| Act::WriteAndClose(answers[number(id)].1.to_vec())).await;
    let rig = Rig::with(upstream, SHORT);
    let mut faults = Vec::new();
    for (at, (name, _)) in answers.iter().enumerate() {
        let id = format!("evt_{at}");
        let answer = rig.pay(&event(&id, 1)).await;
        if (answer.status, answer.code().as_str()) == (502, "upstream-failed") {
            is_unknown(&rig, &id).await;
        } else {
            faults.push(format!("{name}: {answer:?}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Scenario 47: an upstream that never gets beyond 1xx answers is given up.
#[tokio::test]
async fn s47_a_flood_of_1xx() {
    let flood = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(200_000);
    let rig = Rig::patient(bad_once(move |_| Act::WriteAndClose(flood.clone())).await, "5s", SHORT);
    let answer = rig.pay(&event("evt_1", 1)).await;
    assert!([502, 504].contains(&answer.status), "{answer:?}");
    is_unknown(&rig, "evt_1").await;
}

/// One interim answer is no fault: the final one counts.
#[tokio::test]
async fn an_interim_answer_is_skipped() {
    let bytes = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
    let rig = Rig::with(Upstream::start(|_, _| Act::Write(bytes.to_vec())).await, "");
    let first = rig.pay(&event("evt_1", 1)).await;
    assert_eq!((first.status, first.body.as_slice()), (201, &b"ok"[..]), "{first:?}");
    is_replay(&rig.pay(&event("evt_1", 1)).await, &first);
}

/// Scenario 48: a redirect is relayed, never followed.
#[tokio::test]
async fn s48_redirects_are_not_followed() {
    let script = |id: &str| answer(u16::try_from(number(id)).unwrap(), &[("location", "/elsewhere")], b"");
    let rig = Rig::with(bad_once(script).await, "");
    for status in [301, 302, 303, 307, 308] {
        let id = format!("evt_{status}");
        let answer = rig.pay(&event(&id, 1)).await;
        assert_eq!((answer.status, answer.header("location")), (status, Some("/elsewhere")), "{answer:?}");
        assert_eq!(forwards(&rig.upstream, &id).len(), 1);
    }
}

/// §3, "upstream unreachable, nothing sent": 502, and the next delivery claims at once, as the same attempt, whatever its material.
#[tokio::test]
async fn an_upstream_that_is_not_there() {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = Gateway::start(&config(SQLITE, address, "lease = \"60s\"\nin_flight = { wait = \"0s\" }"));
    for _ in 0..2 {
        let refused = pay(&gateway, &event("evt_1", 1)).await;
        is_problem(&refused, 502, "upstream-unreachable");
        assert_eq!(refused.idempotency(), "first");
    }
    let upstream = Upstream::start_at(address, |_, at| answer(200, &[], format!("call {at}").as_bytes())).await;
    is_first(&pay(&gateway, &event("evt_1", 2)).await, "call 0");
    assert_eq!(upstream.hits()[0].header("onceward-attempt"), Some("1"));
    assert_eq!(upstream.count(), 1);
}
