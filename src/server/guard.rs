//! The guard between a socket and hyper: hyper sees a request head only when every byte of it is good, and no byte of the next
//! request before it asks for one.
//!
//! hyper repairs what it can read (equal lengths are merged, a length beside `chunked` is dropped, bare line feeds pass). A gateway
//! must not: what it repairs, the next reader may read otherwise. So each head is checked raw, a body is passed by count, and a
//! refused request looks to hyper like a client that closed between two requests. The refusal itself is written by `close`.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio::time::{Duration, Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Refused;
use super::chunked::Chunks;
use super::connection::Link;
use super::head::{Framing, HeadParser, Verdict};
use super::target::Escapes;

/// Bytes read at once while a head comes in. On the stack, so that an idle connection holds none.
const HEAD_READ_BYTES: usize = 4096;

/// What a guard is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of a head.
    pub head_bytes_max: usize,
    /// What a path may hold.
    pub escapes: Escapes,
    /// From a head's first byte to its last.
    pub header_timeout: Duration,
    /// Between requests, and for a client that takes no byte of its answer.
    pub idle_timeout: Duration,
}

/// Why there is nothing more to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The client closed its side.
    Eof,
    /// Between two requests, by timeout or shutdown: nothing unread, nothing to say.
    Idle,
    /// The last request was refused; the client is still to be told.
    Refused(Refused),
}

#[derive(Debug)]
enum State {
    /// Between requests or within a head.
    Head(HeadParser),
    /// So many bytes of head and body are still to be passed.
    Length(u64),
    /// So many bytes of the head, then a body that ends itself. The connection's last request: a mistake about such a body's end
    /// can then not make a request of its rest.
    Chunked { head_left: usize, chunks: Chunks },
    /// Nothing more is passed.
    Ended,
}

/// Wraps a socket, see the module.
#[derive(Debug)]
pub(super) struct Guard<S> {
    io: Take<S>,
    limits: Limits,
    link: Arc<Link>,
    draining: CancellationToken,
    state: State,
    ending: Option<Ending>,
    /// Checked or still to be checked, not yet passed.
    buffered: BytesMut,
    timer: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    write_stalled_since: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    pub(super) fn new(io: S, limits: Limits, link: Arc<Link>, draining: CancellationToken) -> Self {
        Self {
            io: io.take(u64::MAX),
            limits,
            link,
            draining,
            state: State::Head(HeadParser::new(limits.head_bytes_max, limits.escapes)),
            ending: None,
            buffered: BytesMut::new(),
            timer: None,
            waiting_since: None,
            write_stalled_since: None,
        }
    }

    /// The socket and how reading ended, if it did. Bytes that were read and not passed are gone.
    pub(super) fn into_parts(self) -> (S, Option<Ending>) {
        (self.io.into_inner(), self.ending)
    }

    fn end(&mut self, ending: Ending) {
        self.state = State::Ended;
        self.ending = Some(ending);
    }

    /// Reads until there is a whole good head, or none will come.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let State::Head(parser) = &mut self.state else { return Poll::Ready(Ok(())) };
            match parser.read(&self.buffered) {
                Verdict::Partial => (),
                Verdict::Whole(head) => {
                    self.buffered.advance(head.skip);
                    self.waiting_since = None;
                    self.link.request_began();
                    self.state = match head.framing {
                        Framing::Length(length) => State::Length(head.len as u64 + length),
                        Framing::Chunked => State::Chunked { head_left: head.len, chunks: Chunks::new() },
                    };
                    return Poll::Ready(Ok(()));
                }
                Verdict::Refused(refused) => {
                    self.end(Ending::Refused(refused));
                    return Poll::Ready(Ok(()));
                }
            }
            match self.poll_more_head(cx) {
                Poll::Ready(Ok(0)) if self.buffered.is_empty() => self.end(Ending::Eof),
                Poll::Ready(Ok(0)) => self.end(Ending::Refused(Refused::BadRequest("an incomplete request head"))),
                Poll::Ready(Ok(_)) => (),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => ready!(self.poll_patience(cx)),
            }
        }
    }

    fn poll_more_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [const { MaybeUninit::uninit() }; HEAD_READ_BYTES];
        let mut read = ReadBuf::uninit(&mut space);
        self.io.set_limit(u64::MAX);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        if self.buffered.is_empty() {
            // The head's time runs from its first byte.
            self.waiting_since = None;
        }
        self.buffered.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Nothing to read now: ready, with the state changed, once waiting is over.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if self.draining.is_cancelled() {
            self.end(Ending::Idle);
            return Poll::Ready(());
        }
        let (patience, ending) = if self.buffered.is_empty() {
            (self.limits.idle_timeout, Ending::Idle)
        } else {
            (self.limits.header_timeout, Ending::Refused(Refused::HeaderTimeout))
        };
        ready!(poll_until(&mut self.timer, since + patience, cx));
        self.end(ending);
        Poll::Ready(())
    }

    /// Passes up to `left` bytes, first what is buffered. Returns how many.
    fn poll_pass(&mut self, cx: &mut Context<'_>, left: u64, into: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let left_here = usize::try_from(left).unwrap_or(usize::MAX);
        if !self.buffered.is_empty() {
            let passed = self.buffered.split_to(left_here.min(self.buffered.len()).min(into.remaining()));
            into.put_slice(&passed);
            if self.buffered.is_empty() {
                self.buffered = BytesMut::new();
            }
            return Poll::Ready(Ok(passed.len()));
        }
        let before = into.filled().len();
        self.io.set_limit(left);
        ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
        Poll::Ready(Ok(into.filled().len() - before))
    }

    fn poll_chunked(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let State::Chunked { head_left, .. } = &self.state else { return Poll::Ready(Ok(())) };
        let left = if *head_left > 0 { *head_left as u64 } else { u64::MAX };
        let before = into.filled().len();
        let passed = ready!(self.poll_pass(cx, left, into))?;
        let State::Chunked { head_left, chunks } = &mut self.state else { return Poll::Ready(Ok(())) };
        if *head_left > 0 {
            *head_left = head_left.saturating_sub(passed);
            return Poll::Ready(Ok(()));
        }
        let fresh = into.filled().get(before..).unwrap_or_default();
        match chunks.read(fresh) {
            Ok(good) => into.set_filled(before + good),
            Err(fault) => {
                self.state = State::Ended;
                into.set_filled(before);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
            }
        }
        if chunks.is_over() {
            self.state = State::Ended;
        }
        Poll::Ready(Ok(()))
    }

    /// A client that takes no byte for the idle timeout is gone.
    fn bound_write<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write_stalled_since = None;
            return result;
        }
        let since = *self.write_stalled_since.get_or_insert_with(Instant::now);
        ready!(poll_until(&mut self.timer, since + self.limits.idle_timeout, cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// One timer serves reading and writing: a head is never waited for while an answer is being written.
fn poll_until(timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.deadline() != deadline {
        timer.as_mut().reset(deadline);
    }
    timer.as_mut().poll(cx)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match &self.state {
                State::Head(_) => ready!(self.poll_head(cx))?,
                // hyper reads past a message's end only when its answer is on the way and the next one may begin.
                State::Length(0) => {
                    self.link.answered();
                    self.state = State::Head(HeadParser::new(self.limits.head_bytes_max, self.limits.escapes));
                }
                State::Length(left) => {
                    let left = *left;
                    let passed = ready!(self.poll_pass(cx, left, into))?;
                    self.state = State::Length(left - passed as u64);
                    if passed == 0 {
                        self.end(Ending::Eof);
                    }
                    return Poll::Ready(Ok(()));
                }
                State::Chunked { .. } => return self.poll_chunked(cx, into),
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.io.get_mut()).poll_write(cx, bytes);
        self.bound_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.io.get_mut()).poll_write_vectored(cx, slices);
        self.bound_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(self.io.get_mut()).poll_flush(cx);
        self.bound_write(cx, flushed)
    }

    /// Only flushes: the socket outlives hyper, for a refusal and for what is still to be discarded.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests;
