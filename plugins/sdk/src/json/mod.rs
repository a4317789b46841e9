//! JSON, read straight from the body's bytes: one pass for all wanted pointers, no tree.
//!
//! The whole document is held to RFC 8259: UTF-8 without a byte order mark, nothing after the value, at most 128 levels, no lone
//! surrogate. A member that a wanted pointer goes through may stand in its object once: two readers that disagree on which one
//! counts are how one payment becomes another.

mod cursor;
mod fields;
mod number;
mod parts;
mod pointer;
mod scan;

use std::borrow::Cow;
use std::fmt;

pub use fields::Fields;
pub use number::canonical;
pub use parts::{items, members};
pub use pointer::{Pointers, is_pointer, pointer};

use crate::{PluginError, Value};

/// The deepest nesting that is read.
pub const DEPTH_MAX: usize = 128;

/// A value in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// A string, decoded.
    Text(Cow<'a, str>),
    /// A number, as the sender wrote it.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// An object, as written.
    Object(&'a str),
    /// An array, as written.
    Array(&'a str),
}

impl Node<'_> {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A single value as one text, where the sender mixes kinds or signs what it wrote: a text decoded, a number as its token, a
    /// flag as its word. None for `null`, objects and arrays.
    pub fn plain(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(token) => Some(token),
            Self::Bool(true) => Some("true"),
            Self::Bool(false) => Some("false"),
            Self::Null | Self::Object(_) | Self::Array(_) => None,
        }
    }

    /// As a part of a key: a text that is not blank, or a number in its one spelling.
    pub fn part(&self) -> Option<String> {
        match self {
            Self::Text(text) if !text.trim().is_empty() => Some(text.clone().into_owned()),
            Self::Number(token) => canonical(token),
            _ => None,
        }
    }

    /// As a material value; none for an object or an array, whose members may be written in any order.
    pub fn scalar(&self) -> Option<Value> {
        match self {
            Self::Text(text) => Some(Value::Text(text.clone().into_owned())),
            Self::Number(token) => Some(Value::Number((*token).to_owned())),
            Self::Bool(flag) => Some(Value::Boolean(*flag)),
            Self::Null => Some(Value::Null),
            Self::Object(_) | Self::Array(_) => None,
        }
    }
}

/// What is at each of `pointers`, in their order; none for a place that is not there.
///
/// # Errors
/// [`Malformed`] for a body that is not strict JSON or repeats a member on the way to a wanted place.
pub fn find<'a, const N: usize>(body: &'a [u8], pointers: [&str; N]) -> Result<[Option<Node<'a>>; N], Malformed> {
    let mut found = [const { None }; N];
    scan::scan(body, &Pointers::new(&pointers), &mut found)?;
    Ok(found)
}

/// Like [`find`], for pointers known only at run time.
///
/// # Errors
/// As [`find`].
pub fn find_all<'a>(body: &'a [u8], pointers: &Pointers<'_>) -> Result<Vec<Option<Node<'a>>>, Malformed> {
    let mut found = vec![None; pointers.len()];
    scan::scan(body, pointers, &mut found)?;
    Ok(found)
}

/// Why a body could not be read, and at which of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset from the body's start, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub why: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body is not strict JSON: {} at byte {}", self.why, self.offset)
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for PluginError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_texts() {
        let found = find(br#"["\u00e9",1.50,true,null,[]," "]"#, ["/0", "/1", "/2", "/3", "/4", "/5"]).unwrap();
        let nodes = found.map(Option::unwrap);
        assert_eq!(nodes.each_ref().map(Node::plain), [Some("é"), Some("1.50"), Some("true"), None, None, Some(" ")]);
        let parts = [Some("é".to_owned()), Some("1.5".to_owned()), None, None, None, None];
        assert_eq!(nodes.each_ref().map(Node::part), parts);
    }
}
