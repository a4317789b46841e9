//! A request head's raw bytes, checked line by line as they come in. Pure: no I/O, no clock.
//!
//! Stricter than RFC 9112 lets a recipient be: whatever another parser on the way might read differently is refused, not repaired.
//! A verdict depends on the bytes alone, never on how they were cut into reads.

use super::Refused;
use super::target::{self, Escapes, Target};

/// The longest request target, in bytes.
const TARGET_BYTES_MAX: usize = 8 * 1024;

/// The most header lines: hyper reads no more.
const FIELDS_MAX: usize = 100;

/// What is known of a head after some of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Good so far.
    Partial,
    /// Good and whole.
    Whole(Head),
    /// Not to be served; the bytes after it mean nothing.
    Refused(Refused),
}

/// Where a whole head lies and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes before the request line: a stray line end after the last body.
    pub skip: usize,
    /// Bytes from the request line to the empty line, inclusive.
    pub len: usize,
    /// How the body ends.
    pub framing: Framing,
}

/// How a request's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk and its trailers.
    Chunked,
}

/// Reads one head. It keeps no bytes, only how far it has come.
#[derive(Debug)]
pub(super) struct HeadParser {
    head_bytes_max: usize,
    line_start: usize,
    scanned: usize,
    facts: Facts,
}

/// What the lines so far have said.
#[derive(Debug, Default)]
struct Facts {
    escapes: Escapes,
    skip: usize,
    /// `HTTP/1.x`, once there was a request line.
    minor_version: Option<u8>,
    /// Of an absolute-form target.
    authority: Option<Box<[u8]>>,
    fields: usize,
    host: bool,
    length: Option<u64>,
    chunked: bool,
}

impl HeadParser {
    /// For a head of at most `head_bytes_max` bytes.
    pub(super) fn new(head_bytes_max: usize, escapes: Escapes) -> Self {
        Self { head_bytes_max, line_start: 0, scanned: 0, facts: Facts { escapes, ..Facts::default() } }
    }

    /// Reads on. `bytes` is everything since the head's start, more than last time.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Verdict {
        let window = bytes.get(..self.head_bytes_max).unwrap_or(bytes);
        while let Some(at) = window.get(self.scanned..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
            let end = self.scanned + at;
            let line = window.get(self.line_start..end).unwrap_or_default();
            self.scanned = end + 1;
            match self.facts.line(line, self.scanned) {
                Ok(None) => self.line_start = self.scanned,
                Ok(Some(framing)) => {
                    let skip = self.facts.skip;
                    return Verdict::Whole(Head { skip, len: self.scanned - skip, framing });
                }
                Err(refused) => return Verdict::Refused(refused),
            }
        }
        self.scanned = window.len();
        if bytes.len() <= self.head_bytes_max {
            Verdict::Partial
        } else if self.facts.minor_version.is_none() {
            Verdict::Refused(Refused::UriTooLong)
        } else {
            Verdict::Refused(Refused::HeadersTooLarge)
        }
    }
}

impl Facts {
    /// Takes one line, without its LF, that ends before `end`. Says how the body ends when the head is over.
    fn line(&mut self, line: &[u8], end: usize) -> Result<Option<Framing>, Refused> {
        let line = line.strip_suffix(b"\r").ok_or(Refused::BadRequest("a line that ends without CR"))?;
        match (self.minor_version, line.is_empty()) {
            // RFC 9112 §2.2 lets a server ignore one empty line here; some clients send it after a body.
            (None, true) if self.skip == 0 => {
                self.skip = end;
                Ok(None)
            }
            (None, _) => self.request_line(line).map(|()| None),
            (Some(minor), true) => self.finish(minor).map(Some),
            (Some(minor), false) => self.field(minor, line).map(|()| None),
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Refused> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Refused::BadRequest("a request line that is not three words"));
        };
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(Refused::BadRequest("an invalid method"));
        }
        if method == b"CONNECT" {
            return Err(Refused::BadRequest("CONNECT is not served here"));
        }
        let minor = match version {
            b"HTTP/1.1" => 1,
            b"HTTP/1.0" => 0,
            _ => return Err(Refused::BadRequest("a version other than HTTP/1.1 and HTTP/1.0")),
        };
        if target.len() > TARGET_BYTES_MAX {
            return Err(Refused::UriTooLong);
        }
        let target = target::check(method, target, self.escapes).map_err(Refused::BadRequest)?;
        if let Target::Absolute(authority) = target {
            self.authority = Some(authority.into());
        }
        self.minor_version = Some(minor);
        Ok(())
    }

    fn field(&mut self, minor: u8, line: &[u8]) -> Result<(), Refused> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(Refused::HeadersTooLarge);
        }
        let (name, value) = split_field(line).map_err(Refused::BadRequest)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length(value)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding(minor, value)
        } else if name.eq_ignore_ascii_case(b"host") {
            self.host(value)
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            Err(Refused::BadRequest("no other protocol is served here"))
        } else {
            Ok(())
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Refused> {
        if self.length.is_some() {
            return Err(Refused::BadRequest("more than one Content-Length"));
        }
        // 18 digits fit every counter between here and the upstream.
        if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
            return Err(Refused::BadRequest("an invalid Content-Length"));
        }
        self.length = Some(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')));
        Ok(())
    }

    fn transfer_encoding(&mut self, minor: u8, value: &[u8]) -> Result<(), Refused> {
        if minor == 0 {
            return Err(Refused::BadRequest("Transfer-Encoding in HTTP/1.0"));
        }
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refused::BadRequest("a Transfer-Encoding other than one chunked"));
        }
        self.chunked = true;
        Ok(())
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Refused> {
        if self.host {
            return Err(Refused::BadRequest("more than one Host"));
        }
        target::check_authority(value).map_err(Refused::BadRequest)?;
        if self.authority.as_deref().is_some_and(|authority| !authority.eq_ignore_ascii_case(value)) {
            return Err(Refused::BadRequest("a Host that differs from the request target's"));
        }
        self.host = true;
        Ok(())
    }

    fn finish(&self, minor: u8) -> Result<Framing, Refused> {
        if minor == 1 && !self.host {
            return Err(Refused::BadRequest("no Host"));
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refused::BadRequest("Content-Length together with Transfer-Encoding")),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

/// Splits a header or trailer line, without its line end, into name and value.
///
/// # Errors
/// A text for the sender.
pub(super) fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err("a folded header line");
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or("a header line without a colon")?;
    let (name, value) = line.split_at(colon);
    let value = value.get(1..).unwrap_or_default();
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err("an invalid header name");
    }
    if !value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..)) {
        return Err("an invalid byte in a header value");
    }
    // Only now: the only white space left is the one that may stand around a value.
    Ok((name, value.trim_ascii()))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
