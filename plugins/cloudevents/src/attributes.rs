//! The attributes of binary mode, which are headers.

use onceward_plugin::{Header, PluginError, header};

/// The headers that are read.
pub(crate) const HEADERS: [&str; 5] = ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject"];

/// Whether a request is in binary mode.
pub(crate) fn are_there(headers: &[Header]) -> bool {
    headers.iter().any(|header| HEADERS.contains(&header.name.as_str()))
}

/// An attribute's value: unquoted, then percent-decoded once.
pub(crate) fn read(headers: &[Header], name: &str) -> Result<Option<String>, PluginError> {
    let Some(line) = header::one(headers, name).map_err(|fault| fault.about(name))? else { return Ok(None) };
    decode(line).map(Some).ok_or_else(|| PluginError::Malformed(format!("the header {name} does not decode to UTF-8")))
}

/// A `%` that no two digits follow stands for itself.
fn decode(line: &str) -> Option<String> {
    let unquoted = match line.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => unescape(quoted),
        None => line.to_owned(),
    };
    let mut decoded = Vec::with_capacity(unquoted.len());
    let mut rest = unquoted.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, behind) = match (first, tail) {
            (b'%', [high, low, behind @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => (b'%', tail),
            },
            (byte, _) => (*byte, tail),
        };
        decoded.push(byte);
        rest = behind;
    }
    String::from_utf8(decoded).ok()
}

/// The text of a quoted string: a backslash stands before a character that is meant as it is.
fn unescape(quoted: &str) -> String {
    let mut characters = quoted.chars();
    let mut text = String::with_capacity(quoted.len());
    while let Some(character) = characters.next() {
        text.push(if character == '\\' { characters.next().unwrap_or(character) } else { character });
    }
    text
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's own example, and what is near it.
    #[test]
    fn values_are_decoded_once() {
        assert_eq!(decode("Euro%20%E2%82%AC%20%F0%9F%98%80").as_deref(), Some("Euro \u{20ac} \u{1f600}"));
        assert_eq!(decode(r#""a \"b\" c%25""#).as_deref(), Some("a \"b\" c%"));
        assert_eq!(decode("a%2520b").as_deref(), Some("a%20b"));
        assert_eq!(decode("100%,%4").as_deref(), Some("100%,%4"));
        assert_eq!(decode("%FF"), None);
        // An overlong form of a slash, and half a pair.
        assert_eq!(decode("%C0%AF").or(decode("%ED%A0%80")), None);
    }
}
