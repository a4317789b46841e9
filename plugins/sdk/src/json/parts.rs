//! The items of an array and the members of an object, one by one: for batches, and for objects whose names are not known before.

use std::borrow::Cow;

use super::cursor::Cursor;
use super::scan::{node, unquote};
use super::{Malformed, Node};

/// The items of an array, as written: each is a document of its own.
///
/// # Errors
/// [`Malformed`] for what is no array; its offset counts from the array's start.
pub fn items(array: &str) -> Result<Vec<&str>, Malformed> {
    let mut parts = Parts::open(array, b'[')?;
    let mut items = Vec::new();
    while parts.goes_on(b']')? {
        items.push(parts.value()?);
    }
    Ok(items)
}

/// The members of an object, in their order; a name may come twice.
///
/// # Errors
/// [`Malformed`] for what is no object; its offset counts from the object's start.
pub fn members(object: &str) -> Result<Vec<(Cow<'_, str>, Node<'_>)>, Malformed> {
    let mut parts = Parts::open(object, b'{')?;
    let mut members = Vec::new();
    while parts.goes_on(b'}')? {
        let name = parts.name()?;
        members.push((name, node(parts.value()?)));
    }
    Ok(members)
}

struct Parts<'a> {
    text: &'a str,
    cursor: Cursor<'a>,
    is_first: bool,
}

impl<'a> Parts<'a> {
    fn open(text: &'a str, bracket: u8) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(text);
        if cursor.next_token() != Some(bracket) {
            return Err(cursor.fault("not the wanted kind of value"));
        }
        cursor.advance(1);
        Ok(Self { text, cursor, is_first: true })
    }

    /// Whether a part follows; if so, moves over the comma before it.
    fn goes_on(&mut self, bracket: u8) -> Result<bool, Malformed> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        match self.cursor.next_token() {
            Some(byte) if byte == bracket => Ok(false),
            Some(_) if is_first => Ok(true),
            Some(b',') => {
                self.cursor.advance(1);
                Ok(true)
            }
            _ => Err(self.cursor.fault("neither a comma nor the end")),
        }
    }

    fn name(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.cursor.next_token();
        let start = self.cursor.at();
        self.cursor.name()?;
        let written = self.text.get(start..self.cursor.at()).unwrap_or_default();
        let closing = written.rfind('"').map_or(0, |quote| quote + 1);
        Ok(unquote(written.get(..closing).unwrap_or_default()))
    }

    fn value(&mut self) -> Result<&'a str, Malformed> {
        self.cursor.next_token();
        let start = self.cursor.at();
        self.cursor.skip(0)?;
        Ok(self.text.get(start..self.cursor.at()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_documents_of_their_own() {
        assert_eq!(items(r#" [ {"a":[1,2]} , "x,]" ,3]"#).unwrap(), [r#"{"a":[1,2]}"#, r#""x,]""#, "3"]);
        assert_eq!(items("[ ]").unwrap(), [""; 0]);
        for wrong in ["", "{}", "[1,]", "[1 2]", "[1", "[,1]"] {
            assert!(items(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn members_keep_their_order_and_repeats() {
        let found = members(r#"{"a" : 1, "\u0062:\"" :"x", "a":null}"#).unwrap();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(names, ["a", "b:\"", "a"]);
        assert_eq!(found[1].1.text(), Some("x"));
        assert_eq!(members("{}").unwrap(), []);
        for wrong in ["[]", r#"{"a":1,}"#, r#"{"a"}"#, r#"{"a":1"#] {
            assert!(members(wrong).is_err(), "{wrong}");
        }
    }
}
