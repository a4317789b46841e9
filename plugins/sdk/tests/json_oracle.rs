//! The scanner against `serde_json` as an oracle: what it accepts, and what it finds where.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test's helpers may panic like the test itself")]

use onceward_plugin::json::{self, Node, Pointers};
use proptest::prelude::*;
use serde_json::Value;

/// A document in one of its many spellings, and the tree it stands for.
fn document() -> impl Strategy<Value = (String, Value)> {
    let blank = "[ \t\r\n]{0,2}";
    let number = "-?(0|[1-9][0-9]{0,25})([.][0-9]{1,8})?([eE][+-]?[0-9]{1,3})?";
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        number.prop_map(|token| token),
        text(),
    ];
    let tree = scalar.prop_recursive(5, 60, 6, move |inner| {
        let padded = (blank, inner, blank).prop_map(|(before, value, after)| [before, value, after].concat());
        let array = prop::collection::vec(padded.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(",")));
        // Names are numbered, so that no object repeats one.
        let members = prop::collection::vec(padded, 0..6).prop_map(|values| {
            let member = |(index, value): (usize, String)| format!("\"{}\":{value}", NAMES[index % NAMES.len()]);
            format!("{{{}}}", values.into_iter().enumerate().map(member).collect::<Vec<_>>().join(","))
        });
        prop_oneof![array, members]
    });
    tree.prop_map(|text| {
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    })
}

/// Member names as they are written: plain, escaped, empty, and with what a pointer has to escape.
const NAMES: [&str; 6] = ["a", "\\u0062", "", "c~d", "\\/e", "\\ud83d\\ude00"];

/// A string with every kind of escape.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ !#-\\[\\]-~é€😀]{0,4}",
        "\\\\[\"\\\\/bfnrt]",
        "\\\\u[0-9a-cA-C][0-9a-fA-F]{3}",
        Just("\\ud83d\\ude00".to_owned()),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// The pointers to every place of a tree.
fn places(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| places(item, &format!("{here}/{index}"), all));
        }
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            places(value, &format!("{here}/{}", name.replace('~', "~0").replace('/', "~1")), all);
        }),
        _ => {}
    }
}

fn agrees(node: &Node<'_>, value: &Value) -> bool {
    match (node, value) {
        (Node::Text(text), Value::String(expected)) => text == expected,
        // The oracle writes exponents in its own way, so its reading of the token is what is compared.
        (Node::Number(token), Value::Number(_)) => {
            serde_json::from_str::<Value>(token).is_ok_and(|read| read == *value)
        }
        (Node::Bool(flag), Value::Bool(expected)) => flag == expected,
        (Node::Null, Value::Null) => true,
        (Node::Object(raw), Value::Object(_)) | (Node::Array(raw), Value::Array(_)) => {
            serde_json::from_str::<Value>(raw).is_ok_and(|raw| raw == *value)
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Every place of a document is found in one pass, decoded as the oracle decodes it, and number tokens are untouched.
    #[test]
    fn finds_what_is_there((text, value) in document()) {
        let mut pointers = Vec::new();
        places(&value, "", &mut pointers);
        let there = pointers.len();
        pointers.extend(["/a/none", "/9", "/00", "/-", "/a~0"].map(str::to_owned));
        let found = json::find_all(text.as_bytes(), &Pointers::new(&pointers)).unwrap();
        for (pointer, node) in pointers.iter().zip(&found).take(there) {
            let expected = value.pointer(pointer).unwrap();
            prop_assert!(node.as_ref().is_some_and(|node| agrees(node, expected)), "{pointer}: {node:?}, {expected}");
        }
        for (pointer, node) in pointers.iter().zip(&found).skip(there) {
            prop_assert_eq!(node.is_some(), value.pointer(pointer).is_some(), "{}", pointer);
        }
    }

    /// A damaged document is refused exactly when the oracle refuses it.
    #[test]
    fn refuses_what_the_oracle_refuses(
        (text, _) in document(),
        place in any::<prop::sample::Index>(),
        damage in prop_oneof![any::<u8>(), prop::sample::select(b"\"\\{}[],:0-+.eEu \x00\x1f".to_vec())],
        how in 0..3_u8,
    ) {
        let mut body = text.into_bytes();
        let at = place.index(body.len());
        match how {
            0 => body[at] = damage,
            1 => body.insert(at, damage),
            _ => body.truncate(at),
        }
        let oracle = serde_json::from_slice::<Value>(&body).is_ok();
        prop_assert_eq!(json::find(&body, []).is_ok(), oracle, "{}", String::from_utf8_lossy(&body));
    }

    /// A plugin never traps on a body, whatever it is.
    #[test]
    fn any_bytes_get_an_answer(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let oracle = serde_json::from_slice::<Value>(&body).is_ok();
        prop_assert_eq!(json::find(&body, ["", "/a", "/0"]).is_ok(), oracle);
    }

    /// One spelling a value: scaling a number by moving its point and its exponent changes nothing.
    #[test]
    fn equal_numbers_have_one_spelling(digits in "[1-9][0-9]{0,40}", shift in 0..30_i32, power in -40..40_i32) {
        let plain = json::canonical(&format!("{digits}e{power}"));
        let zeros = "0".repeat(usize::try_from(shift).unwrap());
        let padded = json::canonical(&format!("{digits}{zeros}E{}", power - shift));
        let fraction = json::canonical(&format!("0.{zeros}{digits}0e{}", power + shift + i32::try_from(digits.len()).unwrap()));
        prop_assert!(plain.is_some());
        prop_assert_eq!(&plain, &padded);
        prop_assert_eq!(&plain, &fraction);
        let other = json::canonical(&format!("{digits}1e{power}"));
        prop_assert_ne!(&plain, &other);
        // The spelling is a number with the same value.
        prop_assert_eq!(json::canonical(&plain.clone().unwrap()), plain);
    }
}

fn why(body: &[u8], pointers: &[&str]) -> Option<&'static str> {
    json::find_all(body, &Pointers::new(pointers)).err().map(|malformed| malformed.why)
}

/// Two readers that disagree on which of two members counts would see two events: neither is read.
#[test]
fn a_repeated_member_on_a_wanted_path_is_malformed() {
    const TWICE: Option<&str> = Some("a member that counts is there twice");
    assert_eq!(why(br#"{"a":1,"a":1}"#, &["/a"]), TWICE);
    assert_eq!(why(br#"{"a":1,"\u0061":2}"#, &["/a"]), TWICE);
    assert_eq!(why(br#"{"a":{"b":1},"a":{"c":1}}"#, &["/a/b"]), TWICE);
    assert_eq!(why(br#"{"a":{"b":1,"b":1}}"#, &["/a/b"]), TWICE);
    assert_eq!(why(br#"[{"a":1},{"a":1,"a":1}]"#, &["/0/a"]), None);
    assert_eq!(why(br#"{"x":1,"x":2,"a":{"x":1,"x":1}}"#, &["/a", "/b"]), None);
}

#[test]
fn strictness_beyond_the_oracle() {
    assert_eq!(why(b"\xef\xbb\xbf{}", &[]), Some("a value is missing"));
    assert_eq!(why(b"{} {}", &[]), Some("something after the value"));
    assert_eq!(why(br#"{"x":"\ud800"}"#, &[]), Some("no such escape"));
    assert_eq!(why(br#"{"x":"\ud800\u0041"}"#, &[]), Some("no such escape"));
    assert_eq!(why(br#"{"x":"\udc00"}"#, &[]), Some("no such escape"));
    assert_eq!(why(b"\"\xff\"", &[]), Some("no UTF-8"));
    let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert_eq!(why(&nested(128), &["/0/0/0"]), None);
    assert_eq!(why(&nested(129), &[]), Some("more than 128 levels"));
    assert_eq!(why(&b"[".repeat(1 << 20), &[]), Some("more than 128 levels"));
}
