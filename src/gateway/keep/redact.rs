//! Parts of a JSON text by their pointers, as the text's own bytes: what is left is never parsed and written again, so numbers of
//! any size and members that come twice stay as they were.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// A text that is JSON. Its parts may be taken apart without looking for faults.
#[derive(Clone, Copy)]
pub(super) struct Json<'a>(&'a str);

/// The steps of a JSON pointer, decoded.
type Path = Vec<String>;

/// A member of an object, or an element of a list.
struct Part<'a> {
    /// As it is written, with its quotes; none in a list.
    name: Option<&'a str>,
    step: String,
    value: &'a str,
}

impl<'a> Json<'a> {
    /// None when the bytes are not JSON.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice::<IgnoredAny>(bytes).ok()?;
        std::str::from_utf8(bytes).ok().map(|text| Self(text.trim_ascii()))
    }

    /// The text without what the pointers name; borrowed when they name nothing in it. Of members that come twice, both go:
    /// readers differ in which one they take.
    pub(super) fn without(self, pointers: &[String]) -> Cow<'a, str> {
        let paths: Vec<Path> = pointers.iter().map(|pointer| path(pointer)).collect();
        without(self.0, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// The text or number that a pointer names, a number as it is written. Of members that come twice, the last.
    pub(super) fn text_at(self, pointer: &str) -> Option<String> {
        let found = path(pointer).iter().try_fold(self.0, |value, step| {
            parts(value)?.into_iter().rev().find(|part| part.step == *step).map(|part| part.value)
        })?;
        match found.as_bytes().first()? {
            b'"' => serde_json::from_str(found).ok(),
            b'-' | b'0'..=b'9' => Some(found.to_owned()),
            _ => None,
        }
    }
}

fn path(pointer: &str) -> Path {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// Goes no deeper than the paths are long, whatever the text nests.
fn without<'a>(value: &'a str, paths: &[&[String]]) -> Cow<'a, str> {
    let Some(parts) = parts(value).filter(|_| !paths.is_empty()) else { return Cow::Borrowed(value) };
    let mut kept = Vec::with_capacity(parts.len());
    let mut changed = false;
    for part in parts {
        let below: Vec<&[String]> = paths
            .iter()
            .filter_map(|path| path.split_first().filter(|(step, _)| **step == part.step))
            .map(|it| it.1)
            .collect();
        if below.iter().any(|rest| rest.is_empty()) {
            changed = true;
            continue;
        }
        let value = without(part.value, &below);
        changed |= matches!(value, Cow::Owned(_));
        kept.push(part.name.map_or_else(|| value.to_string(), |name| format!("{name}:{value}")));
    }
    if !changed {
        return Cow::Borrowed(value);
    }
    let kept = kept.join(",");
    Cow::Owned(if value.starts_with('{') { format!("{{{kept}}}") } else { format!("[{kept}]") })
}

/// The parts of an object or a list; none for any other value.
fn parts(value: &str) -> Option<Vec<Part<'_>>> {
    let is_object = value.starts_with('{');
    if !is_object && !value.starts_with('[') {
        return None;
    }
    let mut rest = value.get(1..value.len().checked_sub(1)?)?.trim_ascii();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let mut name = None;
        if is_object {
            let (literal, after) = rest.split_at_checked(string_end(rest)?)?;
            name = Some(literal);
            rest = after.trim_ascii_start().strip_prefix(':')?.trim_ascii_start();
        }
        let (value, after) = rest.split_at_checked(value_end(rest)?)?;
        let step = match name {
            Some(name) => serde_json::from_str(name).ok()?,
            None => parts.len().to_string(),
        };
        parts.push(Part { name, step, value });
        let after = after.trim_ascii_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_ascii_start();
    }
    Some(parts)
}

/// Where the value that starts here ends.
fn value_end(text: &str) -> Option<usize> {
    match text.as_bytes().first()? {
        b'"' => string_end(text),
        b'{' | b'[' => {
            let (mut at, mut depth) = (0, 0_usize);
            loop {
                match text.as_bytes().get(at)? {
                    b'"' => at += string_end(text.get(at..)?)? - 1,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => Some(text.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(text.len())),
    }
}

/// Where the string that starts here ends, its quotes included.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    let closes = |byte: u8| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    };
    text.bytes().skip(1).position(closes).map(|at| at + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn cut(text: &str, pointers: &[&str]) -> Option<String> {
        let pointers: Vec<String> = pointers.iter().map(|&pointer| pointer.to_owned()).collect();
        Json::parse(text.as_bytes()).map(|json| json.without(&pointers).into_owned())
    }

    #[test]
    fn what_is_named_goes_and_all_else_keeps_its_bytes() {
        for (text, pointers, left) in [
            (r#"{"id":1,"card":"4242"}"#, &["/card"][..], r#"{"id":1}"#),
            (r#"{"card":"4242"}"#, &["/card"], "{}"),
            // No number is read as a float, and no member is lost.
            (
                r#"{"n":12345678901234567890.10e+2,"n":-0.0,"card":1}"#,
                &["/card"],
                r#"{"n":12345678901234567890.10e+2,"n":-0.0}"#,
            ),
            // Both of a member that comes twice, however it is spelled.
            (r#"{"card":1,"a":2,"c\u0061rd":3}"#, &["/card"], r#"{"a":2}"#),
            (r#"{"a":{"card":1,"x":[1, 2]},"a":{"card":2}}"#, &["/a/card"], r#"{"a":{"x":[1, 2]},"a":{}}"#),
            (r#"[{"card":1},{"card":2}, "}]\"" ]"#, &["/1/card", "/0"], r#"[{},"}]\""]"#),
            (r#"{"a/b":1,"m~n":2,"":3}"#, &["/a~1b", "/m~0n", "/"], "{}"),
            // Nothing to remove: untouched, white space and all.
            (r#"{ "id" : 1 }"#, &["/card", "/id/x", "/id/0"], r#"{ "id" : 1 }"#),
            ("\"card\"", &["/card"], "\"card\""),
        ] {
            assert_eq!(cut(text, pointers).as_deref(), Some(left), "{text} {pointers:?}");
        }
    }

    #[test]
    fn what_is_no_json_is_not_touched_at_all() {
        for text in ["card=4242", "{\"card\":4242", "", "\u{feff}{}", "{'card':1}"] {
            assert_eq!(cut(text, &["/card"]), None, "{text}");
        }
        assert!(Json::parse(b"{\"card\":\"\xff\"}").is_none());
    }

    #[test]
    fn deep_texts_cost_no_stack() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let _ = cut(&deep, &["/0/0/0"]);
    }

    #[test]
    fn an_id_is_a_text_or_a_number_as_it_is_written() {
        let json =
            Json::parse(br#" {"id":"ch_\u0031","n":123456789012345678901,"o":{"id":[7,"x"]},"id":"last","t":true} "#)
                .unwrap();
        let at = |pointer| json.text_at(pointer);
        assert_eq!(at("/id").as_deref(), Some("last"));
        assert_eq!(at("/n").as_deref(), Some("123456789012345678901"));
        assert_eq!(at("/o/id/1").as_deref(), Some("x"));
        assert_eq!((at("/t"), at("/o"), at("/o/id/2"), at("/none")), (None, None, None, None));
    }

    proptest! {
        /// Without duplicates, what is left is what a parser would have left.
        #[test]
        fn agrees_with_a_parser(members in prop::collection::btree_map("[a-c/~\"é]{0,2}", -3_i64..3, 0..5), name in "[a-c/~\"é]{0,2}") {
            let value: Value = members.into_iter().map(|(name, value)| (name, value.into())).collect::<serde_json::Map<_, _>>().into();
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let left: Value = serde_json::from_str(&cut(&text, &[&pointer]).unwrap()).unwrap();
                let mut expected = value.clone();
                expected.as_object_mut().unwrap().remove(&name);
                prop_assert_eq!(left, expected);
            }
        }
    }
}
