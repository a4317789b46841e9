//! A connection to an upstream that refuses answer heads which another parser might read differently.
//!
//! hyper takes a head whose lines end in LF alone, and unfolds continued lines. A proxy between this gateway and the upstream may
//! not, and would then see other fields, or another body. Such an answer is none: the connection fails, and nothing is kept.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest head of a request that is written here is far below this: it fitted `server.max_headers` and got a few fields more.
const REQUEST_HEAD_MAX: usize = 1 << 20;

/// Checks what comes in as it is read.
pub(super) struct Strict<T> {
    inner: T,
    request: Request,
    answer: Answer,
}

impl<T> Strict<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, request: Request::Head(Vec::new()), answer: Answer::Unwatched }
    }

    fn wrote<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        for part in parts {
            if self.request.wrote(part) {
                // hyper writes a request only when the answer before it has been read whole.
                self.answer = Answer::Head(Head::default());
            }
        }
    }
}

/// How far the request is that is being written: what follows its end begins another one, and so another answer.
enum Request {
    Head(Vec<u8>),
    Body(u64),
}

impl Request {
    /// Takes what was written; says whether a request began with it.
    fn wrote(&mut self, mut bytes: &[u8]) -> bool {
        let mut began = false;
        while !bytes.is_empty() {
            match self {
                Self::Body(0) => *self = Self::Head(Vec::new()),
                Self::Body(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    bytes = bytes.get(taken..).unwrap_or_default();
                }
                Self::Head(head) => {
                    began |= head.is_empty();
                    let before = head.len();
                    head.extend_from_slice(bytes);
                    let from = before.saturating_sub(3);
                    let end = head.get(from..).and_then(|rest| rest.windows(4).position(|four| four == b"\r\n\r\n"));
                    let Some(end) = end.map(|at| from + at + 4) else {
                        head.truncate(REQUEST_HEAD_MAX);
                        return began;
                    };
                    bytes = bytes.get(end - before..).unwrap_or_default();
                    *self = Self::Body(length(head.get(..end).unwrap_or_default()));
                }
            }
        }
        began
    }
}

/// The length of a request's body by its own head. Requests are written with a length, or without a body.
fn length(head: &[u8]) -> u64 {
    let mut lines = head.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    length.unwrap_or(0)
}

/// Where the answer is that is being read.
enum Answer {
    /// In its body, or not asked for: hyper sees to both.
    Unwatched,
    Head(Head),
}

/// One head, byte by byte.
#[derive(Default)]
struct Head {
    last: u8,
    /// Bytes of the present line, without its end.
    line: usize,
    /// Lines before the present one.
    lines: usize,
    /// The first line's tenth byte: the class of the status.
    class: u8,
    /// The status is 101.
    switches: bool,
}

impl Answer {
    /// Takes what was read.
    fn read(&mut self, bytes: &[u8]) -> Result<()> {
        for byte in bytes {
            let Self::Head(head) = self else { return Ok(()) };
            match head.take(*byte).map_err(|why| Error::new(ErrorKind::InvalidData, why))? {
                // After an interim answer the actual one is to come.
                true if head.class == b'1' && !head.switches => *head = Head::default(),
                true => *self = Self::Unwatched,
                false => {}
            }
        }
        Ok(())
    }
}

impl Head {
    /// Takes a byte; says whether the head ends with it.
    fn take(&mut self, byte: u8) -> std::result::Result<bool, &'static str> {
        let last = std::mem::replace(&mut self.last, byte);
        match byte {
            b'\n' if last != b'\r' => return Err("a line of the answer's head ends in LF alone"),
            b'\n' => {
                let empty = std::mem::take(&mut self.line) == 0;
                self.lines += 1;
                return if empty && self.lines == 1 { Err("the answer begins with an empty line") } else { Ok(empty) };
            }
            _ if last == b'\r' => return Err("a CR stands alone in the answer's head"),
            b'\r' => return Ok(false),
            0 => return Err("a NUL stands in the answer's head"),
            b' ' | b'\t' if self.line == 0 => return Err("a line of the answer's head is folded"),
            _ => {}
        }
        if self.lines == 0 {
            match self.line {
                9 => self.class = byte,
                10 => self.switches = byte == b'0',
                11 => self.switches &= byte == b'1',
                _ => {}
            }
        }
        self.line += 1;
        Ok(false)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Strict<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, into))?;
        Poll::Ready(self.answer.read(into.filled().get(before..).unwrap_or_default()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Strict<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.wrote(std::iter::once(bytes.get(..written).unwrap_or_default()));
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, parts))?;
        let mut left = written;
        self.wrote(parts.iter().map(|part| {
            let taken = part.len().min(left);
            left -= taken;
            part.get(..taken).unwrap_or_default()
        }));
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: Connection> Connection for Strict<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of an answer that comes after a request, in pieces of this size.
    fn answers(bytes: &[u8], piece: usize) -> std::result::Result<(), String> {
        let mut connection = Strict::new(());
        connection.wrote([b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n".as_slice(), b"abc"].into_iter());
        bytes.chunks(piece).try_for_each(|piece| connection.answer.read(piece)).map_err(|error| error.to_string())
    }

    #[test]
    fn heads_that_can_be_read_in_two_ways_are_refused_however_they_are_cut() {
        let refused: [&[u8]; 7] = [
            b"HTTP/1.1 200 OK\ncontent-length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\n\r\nabc",
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\nabc",
            b"HTTP/1.1 200 OK\r\nx-a: 1\r\n folded\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-a: 1\rx-b: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-a: \0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\n\n",
        ];
        let taken: [&[u8]; 4] = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na\nb\rc\0 \n\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\n\n",
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n\n\n",
        ];
        for piece in [1, 2, 7, 1000] {
            for answer in refused {
                assert!(answers(answer, piece).is_err(), "{}", answer.escape_ascii());
            }
            for answer in taken {
                assert_eq!(answers(answer, piece), Ok(()), "{}", answer.escape_ascii());
            }
        }
    }

    /// A body that is still being written while its answer comes does not begin a new answer; the next request does.
    #[test]
    fn an_early_answer_is_no_second_one() {
        let mut connection = Strict::new(());
        connection.wrote([b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r".as_slice(), b"\nabcde"].into_iter());
        connection.answer.read(b"HTTP/1.1 413 No\r\ncontent-length: 4\r\n\r\na\n").unwrap();
        connection.wrote([b"fghij".as_slice()].into_iter());
        connection.answer.read(b"\nb").unwrap();
        connection.wrote([b"GET / HTTP/1.1\r\n\r\n".as_slice()].into_iter());
        assert!(connection.answer.read(b"HTTP/1.1 200 OK\n").is_err());
    }
}
