//! The scanner: one loop with a stack of its own, so that nesting costs heap and never the small stack of a guest.

use std::borrow::Cow;

use super::pointer::{Pointers, StepId};
use super::{DEPTH_MAX, Malformed, Node};

/// Validates the whole of `body` and puts what is at each wanted place into `found`.
pub(super) fn scan<'a>(body: &'a [u8], wanted: &Pointers, found: &mut [Option<Node<'a>>]) -> Result<(), Malformed> {
    let text = std::str::from_utf8(body).map_err(|error| Malformed { offset: error.valid_up_to(), why: "no UTF-8" })?;
    let visited = vec![false; wanted.steps()];
    Scanner { text, at: 0, wanted, found, visited, open: Vec::new() }.run()
}

struct Scanner<'a, 'w> {
    text: &'a str,
    /// The next byte's offset.
    at: usize,
    wanted: &'w Pointers,
    found: &'w mut [Option<Node<'a>>],
    /// Which steps were met already; a second time is a repeated member.
    visited: Vec<bool>,
    open: Vec<Open>,
}

/// An object or array whose end is still to come.
struct Open {
    kind: Kind,
    start: usize,
    /// Its step, if it is wanted or on the way to what is.
    step: Option<StepId>,
    /// How many items of an array are behind.
    items: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
}

/// A string as it stands in the text, quotes left out.
struct Quoted<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Scanner<'a, '_> {
    fn run(mut self) -> Result<(), Malformed> {
        let mut step = Some(Pointers::ROOT);
        loop {
            // A value stands here. An opened container has its first value next; anything else is followed by what closes.
            match self.value(step)? {
                Some(first) => step = first,
                None => match self.next_value()? {
                    Some(next) => step = next,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Reads a scalar or an empty container whole, or opens a container and gives its first value's step.
    fn value(&mut self, step: Option<StepId>) -> Result<Option<Option<StepId>>, Malformed> {
        self.skip_blanks();
        let start = self.at;
        let node = match self.peek() {
            Some(b'{') => return self.open(Kind::Object, step),
            Some(b'[') => return self.open(Kind::Array, step),
            Some(b'"') => {
                let quoted = self.string()?;
                if self.is_wanted(step) { Node::Text(quoted.decode()) } else { return Ok(None) }
            }
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                Node::Number(self.since(start))
            }
            Some(b't') => self.word("true", Node::Bool(true))?,
            Some(b'f') => self.word("false", Node::Bool(false))?,
            Some(b'n') => self.word("null", Node::Null)?,
            _ => return Err(self.fault("a value is missing")),
        };
        self.keep(step, node);
        Ok(None)
    }

    fn open(&mut self, kind: Kind, step: Option<StepId>) -> Result<Option<Option<StepId>>, Malformed> {
        if self.open.len() == DEPTH_MAX {
            return Err(self.fault("more than 128 levels"));
        }
        self.open.push(Open { kind, start: self.at, step, items: 0 });
        self.at += 1;
        self.skip_blanks();
        match (kind, self.peek()) {
            (Kind::Object, Some(b'}')) | (Kind::Array, Some(b']')) => {
                self.close();
                Ok(None)
            }
            (Kind::Object, _) => self.member(step).map(Some),
            (Kind::Array, _) => Ok(Some(self.item(step, 0))),
        }
    }

    /// Closes what ends here, up to the next value; none at the document's end.
    fn next_value(&mut self) -> Result<Option<Option<StepId>>, Malformed> {
        loop {
            self.skip_blanks();
            let Some(open) = self.open.last_mut() else {
                return if self.peek().is_none() { Ok(None) } else { Err(self.fault("something after the value")) };
            };
            let (kind, step) = (open.kind, open.step);
            open.items += 1;
            let items = open.items;
            match (kind, self.peek()) {
                (Kind::Object, Some(b',')) => {
                    self.at += 1;
                    self.skip_blanks();
                    return self.member(step).map(Some);
                }
                (Kind::Array, Some(b',')) => {
                    self.at += 1;
                    return Ok(Some(self.item(step, items)));
                }
                (Kind::Object, Some(b'}')) | (Kind::Array, Some(b']')) => self.close(),
                (Kind::Object, _) => return Err(self.fault("neither `,` nor `}`")),
                (Kind::Array, _) => return Err(self.fault("neither `,` nor `]`")),
            }
        }
    }

    fn close(&mut self) {
        self.at += 1;
        if let Some(open) = self.open.pop() {
            let written = self.since(open.start);
            self.keep(open.step, if open.kind == Kind::Object { Node::Object(written) } else { Node::Array(written) });
        }
    }

    /// Reads a member's name and colon; gives the step of its value.
    fn member(&mut self, object: Option<StepId>) -> Result<Option<StepId>, Malformed> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.fault("a member's name is missing"));
        }
        let name = self.string()?;
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.fault("no `:` after a member's name"));
        }
        self.at += 1;
        let Some(object) = object.filter(|object| self.wanted.has_below(*object)) else { return Ok(None) };
        let Some(step) = self.wanted.member(object, &name.decode()) else { return Ok(None) };
        match self.visited.get_mut(step.place()) {
            Some(visited) if !*visited => *visited = true,
            _ => return Err(Malformed { offset: start, why: "a member that counts is there twice" }),
        }
        Ok(Some(step))
    }

    fn item(&self, array: Option<StepId>, index: usize) -> Option<StepId> {
        array.and_then(|array| self.wanted.item(array, index))
    }

    fn is_wanted(&self, step: Option<StepId>) -> bool {
        step.is_some_and(|step| !self.wanted.wanted(step).is_empty())
    }

    fn keep(&mut self, step: Option<StepId>, node: Node<'a>) {
        let Some(step) = step else { return };
        for place in self.wanted.wanted(step) {
            if let Some(slot) = self.found.get_mut(*place) {
                *slot = Some(node.clone());
            }
        }
    }

    fn string(&mut self) -> Result<Quoted<'a>, Malformed> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            let Some(plain) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) else {
                self.at = self.text.len();
                return Err(self.fault("a string has no end"));
            };
            self.at += plain;
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.fault("a control character in a string")),
            }
        }
        let raw = self.since(start);
        self.at += 1;
        Ok(Quoted { raw, escaped })
    }

    /// Checks one escape, or the two of a surrogate pair.
    fn escape(&mut self) -> Result<(), Malformed> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        match unescape(rest) {
            Some((_, length)) => {
                self.at += length;
                Ok(())
            }
            None => Err(self.fault("no such escape")),
        }
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.skip_if(|byte| byte == b'-');
        if self.skip_if(|byte| byte == b'0') == 0 && self.digits() == 0 {
            return Err(self.fault("a digit is missing"));
        }
        if self.skip_if(|byte| byte == b'.') == 1 && self.digits() == 0 {
            return Err(self.fault("a digit is missing"));
        }
        if self.skip_if(|byte| matches!(byte, b'e' | b'E')) == 1 {
            self.skip_if(|byte| matches!(byte, b'+' | b'-'));
            if self.digits() == 0 {
                return Err(self.fault("a digit is missing"));
            }
        }
        Ok(())
    }

    fn digits(&mut self) -> usize {
        let mut count = 0;
        while self.skip_if(|byte| byte.is_ascii_digit()) == 1 {
            count += 1;
        }
        count
    }

    fn word(&mut self, word: &'static str, node: Node<'a>) -> Result<Node<'a>, Malformed> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.fault("a value is missing"));
        }
        self.at += word.len();
        Ok(node)
    }

    fn skip_if(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let skip = usize::from(self.peek().is_some_and(wanted));
        self.at += skip;
        skip
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn fault(&self, why: &'static str) -> Malformed {
        Malformed { offset: self.at, why }
    }
}

impl<'a> Quoted<'a> {
    fn decode(self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut decoded = String::with_capacity(self.raw.len());
        let mut rest = self.raw;
        while let Some(backslash) = rest.find('\\') {
            let (plain, escape) = rest.split_at(backslash);
            decoded.push_str(plain);
            // The scanner checked every escape before it called this a string.
            let Some((character, length)) = unescape(escape) else { break };
            decoded.push(character);
            rest = escape.get(length..).unwrap_or_default();
        }
        decoded.push_str(rest);
        Cow::Owned(decoded)
    }
}

/// The character that `text` starts with as an escape, and how many bytes it takes; none for what JSON does not know, and for
/// half of a surrogate pair.
fn unescape(text: &str) -> Option<(char, usize)> {
    let character = match text.as_bytes().get(1)? {
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
fn code_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}
