//! Scenario 8: how the server stops.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onceward::config::model::Drain;

use super::rig::{PATIENCE, Rig, eventually, wait};

#[test]
fn s08_idle_connections_close_and_work_in_flight_finishes() {
    let rig = Rig::start();
    let mut fresh = rig.connect();
    let mut half = rig.connect();
    half.send("POST /echo HTTP/1.1\r\nHo");
    let mut idle = rig.connect();
    idle.post("/echo", b"one");
    assert_eq!(idle.answer().status, 200);
    let mut busy = rig.connect();
    busy.post("/wait", b"busy");
    let mut sending = rig.connect();
    sending.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    eventually("both are running", || rig.requests() == 3);

    rig.server.shutdown(Drain { delay: Duration::ZERO, deadline: PATIENCE });
    assert_eq!((fresh.rest(), half.rest(), idle.rest()), (vec![], vec![], vec![]));
    eventually("nothing more is accepted", || TcpStream::connect(rig.address).is_err());

    sending.send("world");
    let answer = sending.answer();
    assert_eq!(answer.body, b"helloworld");
    assert!(answer.closes());
    rig.seen.gate.add_permits(1);
    let answer = busy.answer();
    assert_eq!(answer.body, b"busy");
    assert!(answer.closes());
    assert_eq!(busy.rest(), b"");
    drop((busy, sending));
    assert_eq!(wait(rig.server.wait()), 0);
}

/// Until the delay is over everything goes on as before.
#[test]
fn s08_the_delay_serves_on() {
    let rig = Rig::start();
    rig.server.shutdown(Drain { delay: Duration::from_millis(1500), deadline: PATIENCE });
    let started = Instant::now();
    let mut client = rig.connect();
    while started.elapsed() < Duration::from_millis(300) {
        client = rig.connect();
        client.post("/echo", b"late");
        let answer = client.answer();
        assert_eq!(answer.body, b"late");
        assert!(!answer.closes());
    }
    assert_eq!(client.rest(), b"");
    assert_eq!(wait(rig.server.wait()), 0);
}

/// What a handler leaves running is waited for as long as requests are.
#[test]
fn s08_work_after_an_answer_is_waited_for() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/later", b"");
    assert_eq!(client.answer().status, 202);
    let before = rig.seen.finished.load(Ordering::SeqCst);
    rig.server.shutdown(Drain { delay: Duration::ZERO, deadline: PATIENCE });
    assert_eq!(client.rest(), b"");
    drop(client);
    let seen = Arc::clone(&rig.seen);
    let ended = std::thread::spawn(move || wait(rig.server.wait()));
    std::thread::park_timeout(Duration::from_millis(200));
    assert!(!ended.is_finished(), "the server ended before its work");
    seen.gate.add_permits(1);
    assert_eq!(ended.join().unwrap(), 0);
    assert_eq!(seen.finished.load(Ordering::SeqCst), before + 1);
}

#[test]
fn s08_the_deadline_cuts_and_counts() {
    let rig = Rig::start();
    let mut waiting = rig.connect();
    waiting.post("/wait", b"never");
    let mut sending = rig.connect();
    sending.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    let mut gone = rig.connect();
    gone.post("/wait", b"gone");
    eventually("all are running", || rig.requests() == 3);
    drop(gone);
    let started = Instant::now();
    assert_eq!(rig.stop(Duration::from_millis(300)), 3);
    assert!(started.elapsed() < PATIENCE);
    assert!(matches!(waiting.stream.read(&mut [0; 16]), Ok(0) | Err(_)));
}

/// A handler whose client is gone is work in flight all the same.
#[test]
fn s08_a_handler_without_a_client_is_waited_for() {
    let rig = Rig::start();
    let mut client = rig.connect();
    client.post("/wait", b"gone");
    eventually("it is running", || rig.requests() == 1);
    drop(client);
    rig.server.shutdown(Drain { delay: Duration::ZERO, deadline: PATIENCE });
    rig.seen.gate.add_permits(1);
    assert_eq!(wait(rig.server.wait()), 0);
    assert_eq!(rig.seen.finished.load(Ordering::SeqCst), 1);
}

/// Under load: every request that was sent whole on an open connection is answered whole or not begun; no answer is reset.
#[test]
fn s08_no_answer_is_lost_under_load() {
    let rig = Rig::start();
    let address = rig.address;
    let clients: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = super::rig::Client::new(address);
                let mut answered = 0_usize;
                loop {
                    use std::io::Write;
                    let sent =
                        client.stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
                    let mut peeked = [0];
                    // Closed between two requests: this one was not begun.
                    if sent.is_err() || !matches!(client.stream.peek(&mut peeked), Ok(1)) {
                        return answered;
                    }
                    let answer = client.answer();
                    assert_eq!(answer.body, b"hi");
                    answered += 1;
                    if answer.closes() {
                        return answered;
                    }
                }
            })
        })
        .collect();
    eventually("there is load", || rig.requests() > 500);
    let seen = Arc::clone(&rig.seen);
    assert_eq!(rig.stop(PATIENCE), 0);
    let answered: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(answered, seen.requests.load(Ordering::SeqCst), "begun is answered");
}
