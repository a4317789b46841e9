//! JSON, read straight from the body's bytes: one pass for all wanted pointers, no tree.
//!
//! The whole document is held to RFC 8259: UTF-8 without a byte order mark, nothing after the value, at most 128 levels, no lone
//! surrogate. A member that a wanted pointer goes through may stand in its object once: two readers that disagree on which one
//! counts are how one payment becomes another.

mod cursor;
mod number;
mod pointer;
mod scan;

use std::borrow::Cow;
use std::fmt;

pub use number::canonical;
pub use pointer::{Pointers, is_pointer};

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
