//! A place in the body that moves over tokens, and skips whole values that nobody wants.

use super::{DEPTH_MAX, Malformed};

/// The rest of the body. Small and copied, so that the loops below keep it in registers.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    end: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes(), end: text.len() }
    }

    /// The offset from the start, in bytes.
    pub(super) fn at(&self) -> usize {
        self.end - self.rest.len()
    }

    pub(super) fn fault(&self, why: &'static str) -> Malformed {
        Malformed { offset: self.at(), why }
    }

    #[inline(always)]
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Moves over blanks and gives the byte after them.
    #[inline(always)]
    pub(super) fn next_token(&mut self) -> Option<u8> {
        while let Some((b' ' | b'\t' | b'\n' | b'\r', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
        self.peek()
    }

    /// Moves over a member's name and its colon.
    #[inline(always)]
    pub(super) fn name(&mut self) -> Result<(), Malformed> {
        if self.next_token() != Some(b'"') {
            return Err(self.fault("a member's name is missing"));
        }
        self.string()?;
        if self.next_token() != Some(b':') {
            return Err(self.fault("no `:` after a member's name"));
        }
        self.advance(1);
        Ok(())
    }

    /// Moves over a value inside `depth` containers, whatever it holds. Its own containers are remembered as bits, so that
    /// nesting costs none of a guest's small stack.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), Malformed> {
        let mut cursor = *self;
        let mut levels = 0;
        // The lowest bit is the innermost container: one for an object.
        let mut objects: u128 = 0;
        'value: loop {
            match cursor.next_token() {
                Some(open @ (b'{' | b'[')) => {
                    if depth + levels == DEPTH_MAX {
                        return Err(cursor.fault("more than 128 levels"));
                    }
                    cursor.advance(1);
                    levels += 1;
                    objects = objects << 1 | u128::from(open == b'{');
                    match (open, cursor.next_token()) {
                        (b'{', Some(b'}')) | (b'[', Some(b']')) => {}
                        (b'{', _) => {
                            cursor.name()?;
                            continue 'value;
                        }
                        _ => continue 'value,
                    }
                }
                Some(first) => cursor.scalar(first)?,
                None => return Err(cursor.fault("a value is missing")),
            }
            while levels > 0 {
                match (cursor.next_token(), objects & 1 == 1) {
                    (Some(b','), in_object) => {
                        cursor.advance(1);
                        if in_object {
                            cursor.name()?;
                        }
                        continue 'value;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        cursor.advance(1);
                        levels -= 1;
                        objects >>= 1;
                    }
                    (_, true) => return Err(cursor.fault("neither `,` nor `}`")),
                    (_, false) => return Err(cursor.fault("neither `,` nor `]`")),
                }
            }
            *self = cursor;
            return Ok(());
        }
    }

    #[inline(always)]
    fn scalar(&mut self, first: u8) -> Result<(), Malformed> {
        match first {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(self.fault("a value is missing")),
        }
    }

    #[inline(always)]
    fn string(&mut self) -> Result<(), Malformed> {
        self.advance(1);
        loop {
            self.advance(plain(self.rest));
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(());
                }
                [b'\\', ..] => {
                    let (_, length) = unescape(self.rest).ok_or_else(|| self.fault("no such escape"))?;
                    self.advance(length);
                }
                [] => return Err(self.fault("a string has no end")),
                _ => return Err(self.fault("a control character in a string")),
            }
        }
    }

    #[inline(always)]
    fn number(&mut self) -> Result<(), Malformed> {
        self.skip_one(|byte| byte == b'-');
        if !self.skip_one(|byte| byte == b'0') {
            self.digits()?;
        }
        if self.skip_one(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.skip_one(|byte| matches!(byte, b'e' | b'E')) {
            self.skip_one(|byte| matches!(byte, b'+' | b'-'));
            self.digits()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<(), Malformed> {
        let before = self.rest.len();
        while self.skip_one(|byte| byte.is_ascii_digit()) {}
        if self.rest.len() < before { Ok(()) } else { Err(self.fault("a digit is missing")) }
    }

    #[inline(always)]
    fn skip_one(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if wanted(*first) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn word(&mut self, word: &'static [u8]) -> Result<(), Malformed> {
        self.rest = self.rest.strip_prefix(word).ok_or_else(|| self.fault("a value is missing"))?;
        Ok(())
    }
}

/// How many bytes at the start stand for themselves in a string. Eight are looked at in one go: strings are most of a body.
#[inline(always)]
fn plain(bytes: &[u8]) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x8080_8080_8080_8080;
    // The top bit of each byte that is below `limit`; above the lowest such byte also of some that are not.
    let below = |word: u64, limit: u64| word.wrapping_sub(EACH * limit) & !word & TOP;
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = below(word ^ (EACH * u64::from(b'"')), 1);
        let backslash = below(word ^ (EACH * u64::from(b'\\')), 1);
        let special = quote | backslash | below(word, 0x20);
        if special != 0 {
            return bytes.len() - rest.len() + special.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let tail = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
    bytes.len() - rest.len() + tail
}

/// The character that `text` starts with as an escape, and how many bytes it takes; none for what JSON does not know, and for
/// half of a surrogate pair.
pub(super) fn unescape(text: &[u8]) -> Option<(char, usize)> {
    let character = match text.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let high = code_unit(text)?;
            if !(0xd800..0xdc00).contains(&high) {
                return char::from_u32(high).map(|character| (character, 6));
            }
            let low = code_unit(text.get(6..)?).filter(|low| (0xdc00..0xe000).contains(low))?;
            return char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).map(|character| (character, 12));
        }
        _ => return None,
    };
    Some((character, 2))
}

/// The UTF-16 unit of a `\uXXXX` that `text` starts with.
fn code_unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}
