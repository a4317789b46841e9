//! Request bodies: counted, checked, limited in time, and read away where nobody wants them.

use std::time::{Duration, Instant};

use onceward::server::BodyFault;

use super::rig::{Rig, eventually, settings};

const CHUNKED: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_body_of_5_mib_comes_through_whole() {
    let rig = Rig::start();
    let body: Vec<u8> = (0..5 << 20).map(|at: u32| (at % 251) as u8).collect();
    let mut client = rig.connect();
    for _ in 0..2 {
        let (mut sender, copy) = (client.stream.try_clone().unwrap(), body.clone());
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", copy.len());
            sender.write_all(head.as_bytes()).unwrap();
            sender.write_all(&copy).unwrap();
        });
        let answer = client.answer();
        sending.join().unwrap();
        assert!(answer.body == body, "the body changed on its way");
        assert!(!answer.closes());
    }
}

/// Scenario 58 and 60: a client that reads only after it has sent everything still reads why it was refused, and nothing of what
/// it sent is taken for a request.
#[test]
fn s58_a_413_is_readable_while_10_mib_are_still_coming() {
    let rig = Rig::start();
    let mut client = rig.connect();
    let body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(300_000);
    client.post("/refuse", &body);
    client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.as_slice()), (413, &b"too large"[..]));
    assert!(answer.closes());
    client.half_close();
    assert_eq!(client.rest(), b"");
    assert_eq!(rig.requests(), 1);
}

/// An answer too long for any buffer is on its way while the body is read away: neither side waits for the other for ever.
#[test]
fn s58_a_long_answer_and_an_unread_body_do_not_block_each_other() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/refuse-at-length", &vec![b'y'; 40 << 20]);
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (413, 16 << 20));
    assert_eq!(client.rest(), b"");
}

/// A small unread body too: whether it has come already is chance, so it must not matter.
#[test]
fn s58_a_refusal_with_a_small_unread_body_closes() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/refuse", b"hello");
    client.post("/echo", b"never");
    assert!(client.answer().closes());
    assert_eq!(client.rest(), b"");
    assert_eq!(rig.requests(), 1);
}

/// Discarding has an end: a client that never stops is cut off.
#[test]
fn s58_discarding_is_limited() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    let started = Instant::now();
    let piece = vec![0; 1 << 20];
    let mut sent = 0_u64;
    use std::io::Write;
    while client.stream.write_all(&piece).is_ok() {
        sent += 1 << 20;
        assert!(sent < 512 << 20, "nobody stopped the client");
    }
    assert!(started.elapsed() < Duration::from_secs(15));
}

/// Scenario 57: the client hears 100 only when somebody reads, and else the final answer alone.
#[test]
fn s57_100_continue_comes_when_the_body_is_wanted() {
    let rig = Rig::start();
    let expecting =
        |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let mut client = rig.connect();
    client.send(expecting("/echo"));
    assert_eq!(client.answer().status, 100);
    client.send("hello");
    assert_eq!(client.answer().body, b"hello");

    client.send(expecting("/refuse"));
    let answer = client.answer();
    assert_eq!(answer.status, 413);
    assert!(answer.closes());
    // It sends all the same: discarded, and the connection ends without a reset.
    client.send("hello");
    client.half_close();
    assert_eq!(client.rest(), b"");
    assert_eq!(rig.requests(), 2);
}

#[test]
fn s54_chunks_are_joined_and_trailers_dropped() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.send(CHUNKED);
    client.send("3;x=\"y\"\r\nabc\r\n0A\r\n0123456789\r\n0\r\nContent-Length: 7\r\nX-Sum: 1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"abc0123456789"[..]));
    assert!(answer.closes(), "a chunked request is its connection's last");
    assert_eq!(client.rest(), b"");
    assert_eq!(rig.requests(), 1);
}

/// Scenario 52: the handler gets an error, never a short body, and the client a readable answer.
#[test]
fn s52_malformed_chunks_break_the_body() {
    let rig = Rig::start();
    let bodies = [
        "+5\r\nhello",
        "0x5\r\nhello",
        "5 \r\nhello",
        "5\nhello",
        "10000000000000000\r\n",
        "5\r\nhello\n",
        "5;\x01\r\nhello",
        "0\r\na\n\r\n",
    ];
    for body in bodies {
        let mut client = rig.connect();
        client.send(CHUNKED);
        client.send(body);
        client.send("\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{}", body.escape_default());
        assert!(answer.closes());
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(*rig.seen.faults.lock().unwrap(), [BodyFault::Malformed; 8]);
    assert_eq!(rig.requests(), 8);
}

/// Scenario 50.
#[test]
fn s50_a_hang_up_within_a_body_is_an_error() {
    let rig = Rig::start();
    let start = ["POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello", &format!("{CHUNKED}5\r\nhel")];
    for (sent, before) in start.into_iter().zip(1..) {
        let mut client = rig.connect();
        client.send(sent);
        eventually("the handler has the request", || rig.requests() == before);
        drop(client);
        eventually("the handler is told", || rig.seen.faults.lock().unwrap().len() == before);
    }
    assert_eq!(*rig.seen.faults.lock().unwrap(), [BodyFault::Incomplete; 2]);
}

/// Scenario 59.
#[test]
fn s59_a_slow_body_gets_408() {
    let mut settings = settings();
    settings.timeouts.body = Duration::from_millis(200);
    let rig = Rig::with(settings, None);
    let mut client = rig.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    let answer = client.answer();
    assert_eq!(answer.status, 408);
    assert!(answer.closes());
    assert_eq!(*rig.seen.faults.lock().unwrap(), [BodyFault::TimedOut]);
}

/// Scenario 6: an answer that broke off is never taken for a whole one, not even by a client that knows only the connection's end.
#[test]
fn s06_a_broken_answer_does_not_look_whole() {
    use std::io::Read;
    let rig = Rig::start();
    for version in ["1.0", "1.1"] {
        let mut client = rig.connect();
        client.send(format!("GET /broken HTTP/{version}\r\nHost: a\r\n\r\n"));
        let mut answer = Vec::new();
        let end = client.stream.read_to_end(&mut answer);
        assert!(
            end.is_err() || !answer.ends_with(b"0\r\n\r\n") && version == "1.1",
            "{end:?} {}",
            answer.escape_ascii()
        );
    }
}
