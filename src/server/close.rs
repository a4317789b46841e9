//! The end of a connection: the client gets to read what was written for it, whatever it is still sending.
//!
//! A socket that is closed with unread bytes is reset, and a reset destroys what the other side has not read yet. So after a last
//! answer the write side is closed, the rest is read and thrown away within limits, and only then is the socket closed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Unread bytes that are discarded for one answer.
pub(super) const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Time that is spent on it.
pub(super) const DISCARD_TIME_MAX: Duration = Duration::from_secs(5);

/// A TCP connection, encrypted or not.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// Under the encryption.
    fn tcp(&self) -> &TcpStream;
}

impl Socket for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Socket for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Closes a socket on which nothing is unread.
pub(super) async fn quietly<S: Socket>(mut io: S) {
    // It may be gone already, and nobody is left to tell.
    let _ = timeout(DISCARD_TIME_MAX, io.shutdown()).await;
}

/// Closes after an answer: says that it was the last, then discards what comes.
pub(super) async fn lingering<S: Socket>(mut io: S, time_max: Duration) {
    let discard = async {
        io.shutdown().await?;
        let mut space = vec![0; 16 * 1024];
        let mut left = DISCARD_BYTES_MAX;
        while left > 0 {
            match io.read(&mut space).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    // Every way out is the same: the socket closes now.
    let _ = timeout(time_max, discard).await;
}

/// Cuts an answer that broke off, so that no client takes it for a whole one, not even one whose end is the connection's.
pub(super) fn reset<S: Socket>(io: &S) {
    if let Err(error) = io.tcp().set_zero_linger() {
        tracing::debug!(%error, "a connection with a broken answer could not be reset");
    }
}

/// Writes an answer that hyper has no part in, then closes.
pub(super) async fn with_answer<S: Socket>(mut io: S, answer: http::Response<Bytes>, time_max: Duration) {
    let bytes = render(answer);
    let written = timeout(time_max, async {
        io.write_all(&bytes).await?;
        io.flush().await
    });
    if let Ok(Ok(())) = written.await {
        lingering(io, time_max).await;
    }
}

fn render(answer: http::Response<Bytes>) -> Vec<u8> {
    let (mut parts, body) = answer.into_parts();
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    #[expect(clippy::disallowed_methods, reason = "the Date field is the wall clock's; nothing is decided by it")]
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    if let Ok(now) = HeaderValue::try_from(now) {
        parts.headers.insert(DATE, now);
    }
    let reason = parts.status.canonical_reason().unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", parts.status.as_str()).into_bytes();
    for (name, value) in &parts.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    bytes
}
