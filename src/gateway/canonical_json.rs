//! Brings a JSON text into one form, so that two spellings of the same document compare equal.
//!
//! Members in RFC 8785 order (by UTF-16 code units), no white space, strings with one set of escapes, and numbers as exact
//! decimals, where RFC 8785 itself would round them to floats: 9007199254740992 and 9007199254740993 must not meet.

use serde::de::IgnoredAny;

use crate::number::canonical_number;

/// How deep a document may nest.
const DEPTH_MAX: usize = 128;

/// The canonical form, or none when the text is not strict JSON, repeats a member, or nests deeper than 128.
pub fn canonical(text: &[u8]) -> Option<Vec<u8>> {
    // One pass of the library's parser first: what follows may take the grammar for granted and only copies.
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let mut walk = Walk { rest: text, out: Vec::with_capacity(text.len()) };
    walk.value(0)?;
    Some(walk.out)
}

struct Walk<'a> {
    rest: &'a str,
    out: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_white();
        match self.rest.bytes().next()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => {
                let text = self.string()?;
                self.write_string(&text)
            }
            b'-' | b'0'..=b'9' => {
                let end = self.rest.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(self.rest.len());
                let number = canonical_number(self.take(end)?)?;
                self.out.extend_from_slice(number.to_string().as_bytes());
                Some(())
            }
            b't' | b'n' => self.copy(4),
            _ => self.copy("false".len()),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.take(1)?;
        let mut members: Vec<(String, Vec<u8>)> = Vec::new();
        while !self.ends_with('}')? {
            let name = self.string()?;
            self.skip_white();
            self.take(":".len())?;
            let outer = std::mem::take(&mut self.out);
            self.value(depth + 1)?;
            members.push((name, std::mem::replace(&mut self.out, outer)));
        }
        members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        if members.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return None;
        }
        self.out.push(b'{');
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.write_string(name)?;
            self.out.push(b':');
            self.out.extend_from_slice(value);
        }
        self.out.push(b'}');
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.take(1)?;
        self.out.push(b'[');
        let mut first = true;
        while !self.ends_with(']')? {
            if !first {
                self.out.push(b',');
            }
            first = false;
            self.value(depth + 1)?;
        }
        self.out.push(b']');
        Some(())
    }

    /// Steps over white space and a comma; true when the container ends here, which is stepped over too.
    fn ends_with(&mut self, close: char) -> Option<bool> {
        self.skip_white();
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            self.skip_white();
        }
        match self.rest.strip_prefix(close) {
            Some(rest) => {
                self.rest = rest;
                Some(true)
            }
            None if self.rest.is_empty() => None,
            None => Some(false),
        }
    }

    /// A string literal, decoded by the library (escapes, surrogate pairs).
    fn string(&mut self) -> Option<String> {
        let mut escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        })?;
        serde_json::from_str(self.take(end + 2)?).ok()
    }

    fn write_string(&mut self, text: &str) -> Option<()> {
        serde_json::to_writer(&mut self.out, text).ok()
    }

    fn copy(&mut self, len: usize) -> Option<()> {
        let literal = self.take(len)?;
        self.out.extend_from_slice(literal.as_bytes());
        Some(())
    }

    fn take(&mut self, len: usize) -> Option<&'a str> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    fn skip_white(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(text: &str) -> Option<String> {
        canonical(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn order_space_and_escapes_do_not_count() {
        assert_eq!(form(r#" { "b" : [ 1 , 2.50 ], "a":"\u00e9\/" } "#), form(r#"{"a":"é/","b":[1,25e-1]}"#));
        assert_eq!(form("[]"), Some("[]".into()));
        assert_eq!(form("{}"), Some("{}".into()));
        assert_eq!(form("[true,false,null,\"\"]"), Some("[true,false,null,\"\"]".into()));
    }

    #[test]
    fn members_sort_by_utf16_units() {
        // RFC 8785 §3.2.3: U+1F600 starts with the unit D83D, which comes before U+FB33.
        let sorted = form("{\"\u{fb33}\":1,\"\u{1f600}\":2}").unwrap();
        assert!(sorted.starts_with("{\"\u{1f600}\""), "{sorted}");
    }

    #[test]
    fn numbers_stay_exact() {
        assert_ne!(form("9007199254740992"), form("9007199254740993"));
        assert_eq!(form("[100]"), form("[1e2]"));
        assert_eq!(form("-0"), form("0"));
    }

    #[test]
    fn what_is_ambiguous_has_no_form() {
        for text in
            ["{\"a\":1,\"a\":1}", "{\"a\":1,\"\\u0061\":2}", "", "{", "[1,]", "01", "\u{feff}1", "1 2", "{\"a\" 1}"]
        {
            assert_eq!(form(text), None, "{text}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(form(&deep(DEPTH_MAX)).is_some());
        assert!(form(&deep(DEPTH_MAX + 2)).is_none());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
                prop::collection::btree_map(".*", inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        /// Pretty or compact, the form is the same, means the same document, and is its own form.
        #[test]
        fn spelling_does_not_count(value in json()) {
            let compact = form(&serde_json::to_string(&value).unwrap()).unwrap();
            prop_assert_eq!(&form(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), &compact);
            prop_assert_eq!(form(&compact).unwrap(), compact);
        }

        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = canonical(&bytes);
        }
    }
}
