//! Connections: reuse, order, patience, limits, and handlers that fail.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rig::{Client, Rig, eventually, settings};

#[test]
fn a_connection_is_reused() {
    let rig = Rig::start();
    let mut client = rig.connect();
    for round in 0..100 {
        let body = format!("{round}");
        client.post("/echo", body.as_bytes());
        let answer = client.answer();
        assert_eq!(answer.body, body.as_bytes());
        assert!(!answer.closes());
        assert!(answer.head.to_ascii_lowercase().contains("\r\ndate: "));
    }
}

/// Pipelined requests are answered in order, and none begins before the one before it is answered.
#[test]
fn pipelined_requests_wait_for_their_turn() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/wait", b"one");
    client.post("/echo", b"two");
    client.send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the first is running", || rig.requests() == 1);
    assert_eq!(rig.requests(), 1);
    rig.seen.gate.add_permits(1);
    assert_eq!(client.answer().body, b"one");
    assert_eq!(client.answer().body, b"two");
    assert_eq!(client.answer().body, b"");
}

/// Scenario 59.
#[test]
fn s59_a_slow_head_gets_408() {
    let mut settings = settings();
    settings.timeouts.header = Duration::from_millis(200);
    let rig = Rig::with(settings, None);
    let mut client = rig.connect();
    client.post("/echo", b"quick");
    assert_eq!(client.answer().status, 200);
    client.send("POST /echo HT");
    assert_eq!(client.answer().status, 408);
    client.half_close();
    assert_eq!(client.rest(), b"");
    assert_eq!(rig.requests(), 1);
}

/// Scenario 59: without a word, since the client has said none.
#[test]
fn s59_an_idle_connection_is_closed() {
    let mut settings = settings();
    settings.timeouts.idle = Duration::from_millis(200);
    let rig = Rig::with(settings, None);
    let mut fresh = rig.connect();
    let mut used = rig.connect();
    used.post("/echo", b"one");
    assert_eq!(used.answer().status, 200);
    assert_eq!(fresh.rest(), b"");
    assert_eq!(used.rest(), b"");
}

/// A long-running handler is no idle connection.
#[test]
fn waiting_for_a_handler_is_not_idling() {
    let mut settings = settings();
    settings.timeouts.idle = Duration::from_millis(50);
    settings.timeouts.header = Duration::from_millis(50);
    let rig = Rig::with(settings, None);
    let mut slow = rig.connect();
    slow.post("/wait", b"slow");
    let mut idle = rig.connect();
    for _ in 0..3 {
        assert_eq!(idle.rest(), b"");
        idle = rig.connect();
    }
    rig.seen.gate.add_permits(1);
    assert_eq!(slow.answer().body, b"slow");
}

#[test]
fn a_client_that_closed_its_write_side_gets_its_answer() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/wait", b"hello");
    client.half_close();
    eventually("the handler runs", || rig.requests() == 1);
    rig.seen.gate.add_permits(1);
    assert_eq!(client.answer().body, b"hello");
    assert_eq!(client.rest(), b"");
}

/// Scenario 10.
#[test]
fn s10_a_panic_is_that_requests_500() {
    let rig = Rig::start();
    let mut other = rig.connect();
    other.post("/wait", b"other");
    let mut client = rig.connect();
    client.post("/panic", b"");
    assert_eq!(client.answer().status, 500);
    client.post("/echo", b"after");
    assert_eq!(client.answer().body, b"after");
    rig.seen.gate.add_permits(1);
    assert_eq!(other.answer().body, b"other");
}

/// Scenario 51, decision D7: what was begun for a client is finished without it.
#[test]
fn s51_a_handler_survives_its_client() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/wait", b"hello");
    eventually("the handler runs", || rig.requests() == 1);
    client.stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    drop(client);
    rig.seen.gate.add_permits(1);
    eventually("the handler finished", || rig.seen.finished.load(Ordering::SeqCst) == 1);
}

#[test]
fn connections_are_spread_and_capped() {
    let mut settings = settings();
    settings.max_connections = 2;
    let rig = Rig::with(settings, None);
    let mut first = rig.connect();
    first.post("/echo", b"1");
    assert_eq!(first.answer().body, b"1");
    let mut second = rig.connect();
    second.post("/echo", b"2");
    assert_eq!(second.answer().body, b"2");
    // The third waits in the system's queue until there is a place.
    let mut third = rig.connect();
    third.post("/echo", b"3");
    third.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut space = [0];
    assert!(std::io::Read::read(&mut third.stream, &mut space).is_err(), "served over the limit");
    assert_eq!(rig.requests(), 2);
    drop(first);
    third.stream.set_read_timeout(Some(super::rig::PATIENCE)).unwrap();
    assert_eq!(third.answer().body, b"3");
}

#[test]
fn one_address_has_only_so_many_connections() {
    let mut settings = settings();
    settings.connections_per_address = 1;
    let rig = Rig::with(settings.clone(), None);
    let mut first = rig.connect();
    first.post("/echo", b"1");
    assert_eq!(first.answer().body, b"1");
    let mut second = rig.connect();
    second.post("/echo", b"2");
    let answer = second.answer();
    assert_eq!(answer.status, 503);
    assert!(answer.closes());
    drop(first);
    eventually("the place is free again", || {
        let mut next = rig.connect();
        next.post("/echo", b"3");
        next.answer().status == 200
    });

    // A proxy speaks for many.
    settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let rig = Rig::with(settings, None);
    let mut clients: Vec<Client> = (0..3).map(|_| rig.connect()).collect();
    for client in &mut clients {
        client.post("/echo", b"x");
        assert_eq!(client.answer().status, 200);
    }
}

/// Scenario 59: a client that never reads its answers is given up, and its place with it.
#[test]
fn s59_a_client_that_does_not_read_is_given_up() {
    let mut settings = settings();
    settings.timeouts.idle = Duration::from_millis(300);
    settings.max_connections = 1;
    let rig = Rig::with(settings, None);
    let mut deaf = rig.connect();
    deaf.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let body = vec![b'x'; 16 << 20];
    use std::io::Write;
    deaf.stream
        .write_all(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())
        .unwrap();
    deaf.stream.set_write_timeout(Some(super::rig::PATIENCE)).unwrap();
    deaf.stream.write_all(&body).unwrap();
    let mut next = rig.connect();
    next.post("/echo", b"next");
    assert_eq!(next.answer().body, b"next");
    drop(deaf);
}
