//! Request headers. A name may come on several lines, and a value is octets.

use crate::{Header, PluginError};

/// All lines of a header, in order. `name` in lower case.
pub fn lines<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name == name).map(|header| header.value.as_slice())
}

/// The one line of a header, or none.
///
/// # Errors
/// [`OneLine`] when there are several, or when it is not UTF-8: which one counts would be anyone's guess.
pub fn one<'a>(headers: &'a [Header], name: &'a str) -> Result<Option<&'a str>, OneLine> {
    let mut lines = lines(headers, name);
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(OneLine::Repeated);
    }
    std::str::from_utf8(line).map(|text| Some(text.trim_matches([' ', '\t']))).map_err(|_| OneLine::NotText)
}

/// The items of a list, blanks around them cut off, empty ones left out.
pub fn list(value: &str, separator: char) -> impl Iterator<Item = &str> {
    value.split(separator).map(|item| item.trim_matches([' ', '\t'])).filter(|item| !item.is_empty())
}

/// Why a header does not have one readable value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneLine {
    /// It came on several lines.
    Repeated,
    /// It is not UTF-8.
    NotText,
}

impl OneLine {
    /// What is wrong, to be put after the header's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repeated => "came on several lines",
            Self::NotText => "is not UTF-8",
        }
    }

    /// As the plugin's error about the header `name`.
    pub fn about(self, name: &str) -> PluginError {
        PluginError::Malformed(format!("the header {name} {}", self.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &[u8]) -> Header {
        Header { name: name.to_owned(), value: value.to_vec() }
    }

    #[test]
    fn one_value_or_a_fault() {
        let headers =
            [header("a", b" 1\t"), header("b", b"2"), header("b", b"2"), header("c", b"\xff"), header("d", b"")];
        assert_eq!(one(&headers, "a"), Ok(Some("1")));
        assert_eq!(one(&headers, "b"), Err(OneLine::Repeated));
        assert_eq!(one(&headers, "c"), Err(OneLine::NotText));
        assert_eq!(one(&headers, "d"), Ok(Some("")));
        assert_eq!(one(&headers, "e"), Ok(None));
        assert_eq!(lines(&headers, "b").count(), 2);
    }

    #[test]
    fn lists_skip_what_is_empty() {
        assert_eq!(list(" a , b,, ,c=d ", ',').collect::<Vec<_>>(), ["a", "b", "c=d"]);
        assert_eq!(list("", ' ').count(), 0);
    }
}
