//! An event's data as bytes that are equal when the values are: members in any order, numbers in any spelling.

use onceward_plugin::json::{self, Malformed, Node};

/// Deeper values count as they are written: what is compared by value must not need a deep stack.
const DEPTH_MAX: usize = 16;
/// As many numbers, arrays and objects are compared by value, and what follows as it is written: each costs more fuel than its bytes
/// bring, and what a genuine sender says must not run out of it.
const VALUES_MAX: usize = 600;

/// Bytes that stand for a value, which was read before: what is walked here is valid JSON, each byte once.
pub(crate) fn canonical(node: &Node<'_>) -> Result<Vec<u8>, Malformed> {
    let mut bytes = Vec::new();
    match node {
        Node::Text(text) => put(&mut bytes, b's', text),
        Node::Number(token) => number(token, &mut bytes),
        Node::Bool(true) => bytes.push(b't'),
        Node::Bool(false) => bytes.push(b'f'),
        Node::Null => bytes.push(b'n'),
        Node::Object(text) | Node::Array(text) => Walk { text, at: 0, left: VALUES_MAX }.value(0, &mut bytes)?,
    }
    Ok(bytes)
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
    /// How many more values are compared by value.
    left: usize,
}

impl<'a> Walk<'a> {
    /// Every value starts with its kind and its length, so that no two of them can be read as others.
    fn value(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self.next_token() {
            Some(b'"') => self.string(out),
            Some(b'{' | b'[') if depth == DEPTH_MAX || !self.spend() => {
                let start = self.at;
                self.skip_nested();
                put(out, b'w', self.since(start));
                Ok(())
            }
            Some(b'{') => self.object(depth, out),
            Some(b'[') => self.array(depth, out),
            Some(_) => {
                let start = self.at;
                self.skip_while(|byte| !matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r'));
                match self.since(start) {
                    "" => return Err(self.fault()),
                    word @ ("true" | "false" | "null") => out.extend(word.bytes().take(1)),
                    token if self.spend() => number(token, out),
                    token => put(out, b'w', token),
                }
                Ok(())
            }
            None => Err(self.fault()),
        }
    }

    fn spend(&mut self) -> bool {
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }

    fn array(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (mut count, mut items) = (0_usize, Vec::new());
        self.at += 1;
        while self.next_token() != Some(b']') {
            self.value(depth + 1, &mut items)?;
            count += 1;
            self.comma();
        }
        self.at += 1;
        put(out, b'a', &count.to_string());
        out.append(&mut items);
        Ok(())
    }

    fn object(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut members = Vec::new();
        self.at += 1;
        while self.next_token() == Some(b'"') {
            let mut member = Vec::new();
            self.string(&mut member)?;
            // Over the colon.
            self.next_token();
            self.at += 1;
            self.value(depth + 1, &mut member)?;
            members.push(member);
            self.comma();
        }
        self.at += 1;
        // The name comes first, with its length. Members of one name are all there: which of them counts is the reader's guess.
        members.sort_unstable();
        put(out, b'o', &members.len().to_string());
        members.iter().for_each(|member| out.extend_from_slice(member));
        Ok(())
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let start = self.at;
        self.skip_string();
        let written = self.since(start);
        if written.contains('\\') {
            let [text] = json::find(written.as_bytes(), [""])?;
            put(out, b's', text.as_ref().and_then(Node::text).ok_or_else(|| self.fault())?);
        } else {
            put(out, b's', written.trim_matches('"'));
        }
        Ok(())
    }

    /// Moves behind a string, from its first quote.
    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            self.skip_while(|byte| !matches!(byte, b'"' | b'\\'));
            match self.byte() {
                Some(b'\\') => self.at += 2,
                _ => break,
            }
        }
        self.at += 1;
    }

    /// Moves behind an object or array, from its bracket.
    fn skip_nested(&mut self) {
        let mut open = 0_usize;
        while let Some(byte) = self.byte() {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open = open.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                break;
            }
        }
    }

    fn comma(&mut self) {
        if self.next_token() == Some(b',') {
            self.at += 1;
        }
    }

    fn next_token(&mut self) -> Option<u8> {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.byte()
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        while self.byte().is_some_and(&goes_on) {
            self.at += 1;
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn fault(&self) -> Malformed {
        Malformed { offset: self.at, why: "a value is missing" }
    }
}

fn number(token: &str, out: &mut Vec<u8>) {
    match json::canonical(token) {
        Some(number) => put(out, b'd', &number),
        None => put(out, b'w', token),
    }
}

fn put(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<u8> {
        let [node] = json::find(text.as_bytes(), [""]).unwrap();
        canonical(&node.unwrap()).unwrap()
    }

    #[test]
    fn equal_values_are_equal_bytes() {
        assert_eq!(of(r#"{"a":1.0,"b":["\u00e9",null]}"#), of(r#"{ "b" : ["é",null], "a":1e0 }"#));
        for (one, two) in [
            (r#"["ab","c"]"#, r#"["a","bc"]"#),
            (r#"[[1],2]"#, r#"[[1,2]]"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":null}"#, "{}"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"["\"","]"]"#, r#"["\",\"]"]"#),
            ("[[],1]", "[[1]]"),
            ("[true]", r#"["t"]"#),
            ("9007199254740993", "9007199254740992"),
        ] {
            assert_ne!(of(one), of(two), "{one} {two}");
        }
    }

    #[test]
    fn many_values_are_read_to_a_number() {
        let many = |last: &str| format!("[{}{last}]", "{\"a\":[1]},".repeat(1000));
        assert_ne!(of(&many("1")), of(&many("2")));
        assert_ne!(of(&many("1")), of(&many("1.0")));
    }

    #[test]
    fn deep_values_are_read_to_a_depth() {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(100), "]".repeat(100));
        assert_ne!(of(&nested("1")), of(&nested("2")));
        assert_ne!(of(&nested("1")), of(&nested("1.0")));
        assert_ne!(of(&format!("[{},3]", nested("\"]\\\"\""))), of(&format!("[{},4]", nested("\"]\\\"\""))));
    }
}
