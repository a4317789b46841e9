//! The guard alone, fed read by read: what passes and how it ends are the bytes' doing, never the network's.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, join, sink};
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use super::{Ending, Escapes, Guard, Limits};
use crate::server::connection::Link;

const LIMITS: Limits = Limits {
    head_bytes_max: 512,
    escapes: Escapes::Plain,
    header_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(60),
};

/// A socket whose every read gives one piece at most, then the end.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(into.remaining()));
            into.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Everything that passes, read in steps of `step` bytes, and how it ended.
fn pass(pieces: Vec<Vec<u8>>, step: usize) -> (Vec<u8>, Option<io::ErrorKind>, Option<Ending>) {
    let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
    let link = Arc::new(Link::new(Arc::default()));
    let mut guard = Guard::new(join(Pieces(pieces), sink()), LIMITS, link, CancellationToken::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut passed = Vec::new();
    let fault = runtime.block_on(async {
        let mut space = vec![0; step];
        loop {
            match guard.read(&mut space).await {
                Ok(0) => return None,
                Ok(read) => passed.extend_from_slice(&space[..read]),
                Err(error) => return Some(error.kind()),
            }
        }
    });
    (passed, fault, guard.into_parts().1)
}

const LINES: &[&str] = &[
    "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n123",
    "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "3\r\nabc\r\n",
    "0\r\n\r\n",
    "+1\r\n",
    "POST /bad HTTP/1.1\r\nHost : a\r\n",
    "\r\n",
    "x",
];

/// Requests one after the other pass as they are, to the last byte and no further.
#[test]
fn a_refused_head_passes_no_byte() {
    let bytes = [LINES[0], LINES[2], LINES[6], LINES[0]].concat().into_bytes();
    let (passed, fault, ending) = pass(vec![bytes], 8192);
    assert_eq!(passed, [LINES[0], LINES[2]].concat().into_bytes());
    assert_eq!(fault, None);
    assert!(matches!(ending, Some(Ending::Refused(_))));
}

/// Whatever follows a chunked body is not passed, good or bad.
#[test]
fn nothing_passes_after_a_chunked_body() {
    let bytes = [LINES[1], LINES[3], LINES[4], LINES[0]].concat().into_bytes();
    let (passed, fault, _) = pass(vec![bytes], 8192);
    assert_eq!(passed, [LINES[1], LINES[3], LINES[4]].concat().into_bytes());
    assert_eq!(fault, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// For any split of the bytes into reads, and any size of the reader's buffer: the same bytes, the same ending.
    #[test]
    fn any_split_gives_the_same_verdict(
        lines in prop::collection::vec(prop::sample::select(LINES), 0..7),
        cuts in prop::collection::vec(1_usize..40, 0..40),
        step in 1_usize..100,
    ) {
        let bytes = lines.concat().into_bytes();
        let mut rest = bytes.clone();
        let mut pieces = Vec::new();
        for cut in cuts {
            let after = rest.split_off(cut.min(rest.len()));
            pieces.push(std::mem::replace(&mut rest, after));
        }
        pieces.push(rest);
        let (whole, fault, ending) = pass(vec![bytes], 8192);
        let (cut, cut_fault, cut_ending) = pass(pieces, step);
        prop_assert_eq!((fault, ending), (cut_fault, cut_ending));
        // A malformed chunk stops its read: how many good bytes passed before it is the reads' doing.
        if fault.is_none() {
            prop_assert_eq!(cut, whole);
        }
    }
}
