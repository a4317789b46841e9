//! The walk to the wanted places: it goes down where a pointer goes, and skips everything else in one loop.

use std::borrow::Cow;

use super::cursor::{Cursor, unescape};
use super::pointer::{Pointers, StepId};
use super::{DEPTH_MAX, Malformed, Node};

/// Validates the whole of `body` and puts what is at each wanted place into `found`.
pub(super) fn scan<'a>(body: &'a [u8], wanted: &Pointers<'_>, found: &mut [Option<Node<'a>>]) -> Result<(), Malformed> {
    let text = std::str::from_utf8(body).map_err(|error| Malformed { offset: error.valid_up_to(), why: "no UTF-8" })?;
    let visited = vec![false; wanted.steps()];
    let mut scanner = Scanner { text, cursor: Cursor::new(text), wanted, found, visited };
    scanner.value(Pointers::ROOT, 0)?;
    match scanner.cursor.next_token() {
        None => Ok(()),
        Some(_) => Err(scanner.cursor.fault("something after the value")),
    }
}

struct Scanner<'a, 'w> {
    text: &'a str,
    cursor: Cursor<'a>,
    wanted: &'w Pointers<'w>,
    found: &'w mut [Option<Node<'a>>],
    /// Which steps were met already; a second time is a repeated member.
    visited: Vec<bool>,
}

impl<'a> Scanner<'a, '_> {
    /// Reads the value at `step` within `depth` containers. Calls itself only as deep as a pointer of the plugin's own goes.
    fn value(&mut self, step: StepId, depth: usize) -> Result<(), Malformed> {
        let first = self.cursor.next_token();
        let start = self.cursor.at();
        match first {
            Some(b'{') if self.wanted.has_below(step) => self.object(step, depth)?,
            Some(b'[') if self.wanted.has_below(step) => self.array(step, depth)?,
            _ => self.cursor.skip(depth)?,
        }
        for place in self.wanted.wanted(step) {
            if let Some(slot) = self.found.get_mut(*place) {
                *slot = Some(node(self.text.get(start..self.cursor.at()).unwrap_or_default()));
            }
        }
        Ok(())
    }

    fn object(&mut self, step: StepId, depth: usize) -> Result<(), Malformed> {
        self.enter(depth)?;
        if self.cursor.next_token() == Some(b'}') {
            self.cursor.advance(1);
            return Ok(());
        }
        loop {
            match self.member(step)? {
                Some(below) => self.value(below, depth + 1)?,
                None => self.cursor.skip(depth + 1)?,
            }
            match self.cursor.next_token() {
                Some(b',') => self.cursor.advance(1),
                Some(b'}') => break,
                _ => return Err(self.cursor.fault("neither `,` nor `}`")),
            }
        }
        self.cursor.advance(1);
        Ok(())
    }

    fn array(&mut self, step: StepId, depth: usize) -> Result<(), Malformed> {
        self.enter(depth)?;
        if self.cursor.next_token() == Some(b']') {
            self.cursor.advance(1);
            return Ok(());
        }
        for index in 0.. {
            match self.wanted.item(step, index) {
                Some(below) => self.value(below, depth + 1)?,
                None => self.cursor.skip(depth + 1)?,
            }
            match self.cursor.next_token() {
                Some(b',') => self.cursor.advance(1),
                Some(b']') => break,
                _ => return Err(self.cursor.fault("neither `,` nor `]`")),
            }
        }
        self.cursor.advance(1);
        Ok(())
    }

    fn enter(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth == DEPTH_MAX {
            return Err(self.cursor.fault("more than 128 levels"));
        }
        self.cursor.advance(1);
        Ok(())
    }

    /// Reads a member's name and colon; gives the step of its value, if a pointer goes there.
    fn member(&mut self, object: StepId) -> Result<Option<StepId>, Malformed> {
        self.cursor.next_token();
        let start = self.cursor.at();
        self.cursor.name()?;
        let written = self.text.get(start..self.cursor.at()).unwrap_or_default();
        // The name ends at its closing quote, behind which stand white space and the colon only.
        let closing = written.as_bytes().iter().rposition(|byte| *byte == b'"').map_or(0, |quote| quote + 1);
        let name = written.get(..closing).unwrap_or_default();
        let Some(step) = self.wanted.member(object, &unquote(name)) else { return Ok(None) };
        match self.visited.get_mut(step.place()) {
            Some(visited) if !*visited => *visited = true,
            _ => return Err(Malformed { offset: start, why: "a member that counts is there twice" }),
        }
        Ok(Some(step))
    }
}

/// A valid value as written.
pub(super) fn node(written: &str) -> Node<'_> {
    match written.as_bytes().first() {
        Some(b'"') => Node::Text(unquote(written)),
        Some(b'{') => Node::Object(written),
        Some(b'[') => Node::Array(written),
        Some(b't') => Node::Bool(true),
        Some(b'f') => Node::Bool(false),
        Some(b'n') => Node::Null,
        _ => Node::Number(written),
    }
}

/// What a valid string stands for.
pub(super) fn unquote(written: &str) -> Cow<'_, str> {
    let raw = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
    if !raw.as_bytes().contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut decoded = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(backslash) = rest.find('\\') {
        let (plain, escape) = rest.split_at(backslash);
        decoded.push_str(plain);
        // The cursor checked every escape before it called this a string.
        let Some((character, length)) = unescape(escape.as_bytes()) else { break };
        decoded.push(character);
        rest = escape.get(length..).unwrap_or_default();
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}
