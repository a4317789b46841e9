//! A whole body as it is compared where a plugin names no material: JSON by what it says, all else by its bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::number::{Number, canonical_number};

/// A body, ready to be compared.
#[derive(Debug, PartialEq)]
pub enum Whole {
    /// Strict JSON: the order of members and the spelling of numbers do not count.
    Json(Json),
    /// Anything else, JSON with a member twice included: readers differ in which one they take.
    Bytes(Vec<u8>),
}

/// A JSON value with exact numbers.
#[derive(Debug, PartialEq)]
pub enum Json {
    /// `null`, `true` or `false`.
    Literal(String),
    /// Compared as a decimal.
    Number(Number),
    /// After decoding.
    Text(String),
    /// In order.
    List(Vec<Json>),
    /// In no order.
    Object(BTreeMap<String, Json>),
}

impl Whole {
    /// Reads a body.
    pub fn of(body: &[u8]) -> Self {
        let raw = serde_json::from_slice::<&RawValue>(body).ok();
        raw.and_then(|raw| json(raw.get(), DEPTH_MAX)).map_or_else(|| Self::Bytes(body.to_vec()), Self::Json)
    }
}

/// How deep lists and objects may lie in one another; the reader that skips over raw values has no bound of its own.
const DEPTH_MAX: usize = 128;

/// Reads text that is known to be one JSON value.
fn json(text: &str, depth: usize) -> Option<Json> {
    let depth = depth.checked_sub(1)?;
    match text.as_bytes().first()? {
        b'{' => {
            let Members(members) = serde_json::from_str(text).ok()?;
            let members = members.into_iter().map(|(name, value)| Some((name, json(value.get(), depth)?)));
            members.collect::<Option<_>>().map(Json::Object)
        }
        b'[' => {
            let items = serde_json::from_str::<Vec<&RawValue>>(text).ok()?;
            items.into_iter().map(|item| json(item.get(), depth)).collect::<Option<_>>().map(Json::List)
        }
        b'"' => serde_json::from_str(text).ok().map(Json::Text),
        b'n' | b't' | b'f' => Some(Json::Literal(text.to_owned())),
        _ => canonical_number(text).map(Json::Number),
    }
}

/// An object's members, none of them twice.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = BTreeMap<String, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            match members.entry(name) {
                Entry::Vacant(place) => place.insert(value),
                Entry::Occupied(_) => return Err(A::Error::custom("a member twice")),
            };
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::Whole;

    fn check(one: &str, two: &str, equal: bool) {
        assert_eq!(Whole::of(one.as_bytes()) == Whole::of(two.as_bytes()), equal, "{one} {two}");
    }

    #[test]
    fn json_is_compared_by_what_it_says() {
        check(r#"{"a": 1, "b": [1e2, "x"]}"#, r#"{"b":[100.0,"\u0078"],"a":1}"#, true);
        check(r#"{"a": 9007199254740992}"#, r#"{"a": 9007199254740993}"#, false);
        check(r#"{"a": null}"#, "{}", false);
        check("[1, 2]", "[2, 1]", false);
        check(r#""1""#, "1", false);
    }

    #[test]
    fn all_else_is_compared_by_its_bytes() {
        check(r#"{"a":1,"a":2}"#, r#"{"a":2}"#, false);
        check(r#"{"a":1,"a":2}"#, r#"{ "a":1,"a":2}"#, false);
        check("a=1&b=2", "a=1&b=2", true);
        check("a=1&b=2", "b=2&a=1", false);
        let deep = "[".repeat(200) + &"]".repeat(200);
        check(&deep, &format!("{deep} "), false);
    }
}
