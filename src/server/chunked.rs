//! A chunked body's framing, checked byte by byte on its way to hyper. Pure: no I/O, no clock.
//!
//! hyper takes white space after a size, any byte in an extension and bare line feeds in trailers; other parsers read those in
//! other ways, so they are refused here. Extensions and trailers that are well formed pass and are ignored.

use super::head::split_field;

/// The longest chunk extension, in bytes.
const EXTENSION_BYTES_MAX: usize = 256;

/// All trailer lines together, in bytes.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// The most hexadecimal digits of a chunk's size: 15 never overflow 64 bits.
const SIZE_DIGITS_MAX: usize = 15;

/// Where in a chunked body the bytes have come to.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    trailer_bytes: usize,
    trailer_line: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum At {
    Size { size: u64, digits: usize },
    Extension { size: u64, bytes: usize },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailer,
    TrailerLf,
    Over,
}

impl Chunks {
    /// Before the first chunk.
    pub(super) fn new() -> Self {
        Self { at: At::Size { size: 0, digits: 0 }, trailer_bytes: 0, trailer_line: Vec::new() }
    }

    /// Whether the body has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.at, At::Over)
    }

    /// Reads on and says how many of `bytes` belong to the body: fewer than all only where it ended.
    ///
    /// # Errors
    /// What is wrong with the framing. Nothing after it means anything.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let mut rest = bytes;
        while !self.is_over() {
            if let At::Data { left } = self.at {
                let skipped = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - skipped as u64;
                rest = rest.get(skipped..).unwrap_or_default();
                self.at = if left == 0 { At::DataCr } else { At::Data { left } };
            }
            let Some((byte, after)) = rest.split_first() else { break };
            self.at = self.step(*byte)?;
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }

    fn step(&mut self, byte: u8) -> Result<At, &'static str> {
        match (self.at, byte) {
            (At::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return Err("a chunk size with too many digits");
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Ok(At::Size { size: size * 16 + u64::from(digit), digits: digits + 1 })
            }
            (At::Size { size, digits: 1.. }, b'\r') => Ok(At::SizeEnd { size }),
            (At::Size { size, digits: 1.. }, b';') => Ok(At::Extension { size, bytes: 0 }),
            (At::Size { .. }, _) => Err("an invalid chunk size"),
            (At::Extension { size, .. }, b'\r') => Ok(At::SizeEnd { size }),
            (At::Extension { size, bytes }, b'\t' | b' '..=b'~') if bytes < EXTENSION_BYTES_MAX => {
                Ok(At::Extension { size, bytes: bytes + 1 })
            }
            (At::Extension { .. }, _) => Err("an invalid chunk extension"),
            (At::SizeEnd { size: 0 }, b'\n') => Ok(At::Trailer),
            (At::SizeEnd { size }, b'\n') => Ok(At::Data { left: size }),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Size { size: 0, digits: 0 }),
            (At::Trailer, b'\r') => Ok(At::TrailerLf),
            (At::Trailer, _) => self.trailer_byte(byte),
            (At::TrailerLf, b'\n') => self.trailer_end(),
            (At::SizeEnd { .. } | At::DataCr | At::DataLf | At::TrailerLf, _) => {
                Err("a chunk that does not end in CRLF")
            }
            (At::Data { .. } | At::Over, _) => Ok(self.at),
        }
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<At, &'static str> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err("trailers that are too large");
        }
        self.trailer_line.push(byte);
        Ok(At::Trailer)
    }

    fn trailer_end(&mut self) -> Result<At, &'static str> {
        if self.trailer_line.is_empty() {
            return Ok(At::Over);
        }
        split_field(&self.trailer_line)?;
        self.trailer_line.clear();
        Ok(At::Trailer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Chunks;

    fn read_all(pieces: &[&[u8]]) -> Result<(usize, bool), &'static str> {
        let mut chunks = Chunks::new();
        let mut read = 0;
        for piece in pieces {
            read += chunks.read(piece)?;
        }
        Ok((read, chunks.is_over()))
    }

    /// Scenario 52: sizes and line ends that two parsers could read in two ways.
    #[test]
    fn loose_framing_is_refused() {
        let bad: [&[u8]; 17] = [
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"-5\r\nhello\r\n0\r\n\r\n",
            b"5\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhelloX",
            b"\r\n\r\n",
            b";x\r\n",
            b"10000000000000005\r\nhello",
            b"5;\x00\r\nhello\r\n0\r\n\r\n",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            b"0\r\nA: b\nContent-Length: 5\r\n\r\n",
            b"0\r\nA b\r\n\r\n",
            b"0\r\n A: b\r\n\r\n",
            b"0\r\r\n",
        ];
        for body in bad {
            assert!(read_all(&[body]).is_err(), "{} must be refused", body.escape_ascii());
        }
        assert!(read_all(&[&[b"0\r\n".to_vec(), vec![b'a'; 9000]].concat()]).is_err(), "endless trailers");
        assert!(read_all(&[&[b"5;".to_vec(), vec![b'a'; 300]].concat()]).is_err(), "an endless extension");
    }

    #[test]
    fn the_end_is_found_where_it_is() {
        let good: [&[u8]; 4] = [
            b"0\r\n\r\n",
            b"5\r\nhello\r\n0\r\n\r\n",
            b"000a;n=\"v\"\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
            b"1\r\n\n\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n",
        ];
        for body in good {
            let with_more = [body, b"POST / HTTP/1.1\r\n"].concat();
            assert_eq!(read_all(&[&with_more]), Ok((body.len(), true)), "{}", body.escape_ascii());
            assert_eq!(read_all(&[body.split_last().unwrap().1]), Ok((body.len() - 1, false)));
        }
    }

    proptest! {
        /// The verdict is the bytes', not the network's.
        #[test]
        fn any_split_gives_the_same_verdict(
            body in prop::collection::vec(prop::sample::select(b"05aF\r\n;: x".to_vec()), 0..40),
            cut in 0_usize..40,
        ) {
            let (one, two) = body.split_at(cut.min(body.len()));
            let bytewise: Vec<&[u8]> = body.chunks(1).collect();
            let whole = read_all(&[&body]);
            prop_assert_eq!(read_all(&[one, two]), whole);
            prop_assert_eq!(read_all(&bytewise), whole);
        }
    }
}
