//! `application/x-www-form-urlencoded`: form bodies and query strings.

use std::borrow::Cow;
use std::fmt;

use crate::PluginError;

/// The values of the fields `names`, in their order; none for a field that is not there.
///
/// # Errors
/// [`Malformed`] when a wanted field comes twice, or its value is no percent-encoded UTF-8. Other fields may be anything.
pub fn find<'a, const N: usize>(form: &'a [u8], names: [&str; N]) -> Result<[Option<Cow<'a, str>>; N], Malformed> {
    let mut found = [const { None }; N];
    scan(form, &names, &mut found)?;
    Ok(found)
}

/// Like [`find`], for names known only at run time.
///
/// # Errors
/// As [`find`].
pub fn find_all<'a>(form: &'a [u8], names: &[&str]) -> Result<Vec<Option<Cow<'a, str>>>, Malformed> {
    let mut found = vec![None; names.len()];
    scan(form, names, &mut found)?;
    Ok(found)
}

/// A field's name and value.
pub type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Every field of a form, decoded, in order: for signatures over all of them.
///
/// # Errors
/// [`Malformed`] when one of them is no percent-encoded UTF-8.
pub fn pairs(form: &[u8]) -> Result<Vec<Pair<'_>>, Malformed> {
    let mut pairs = Vec::new();
    for pair in form.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let name = halves.next().unwrap_or_default();
        let name = decode(name).ok_or_else(|| Malformed::Encoding(String::from_utf8_lossy(name).into_owned()))?;
        let value = decode(halves.next().unwrap_or_default()).ok_or_else(|| Malformed::Encoding(name.to_string()))?;
        pairs.push((name, value));
    }
    Ok(pairs)
}

fn scan<'a>(form: &'a [u8], names: &[&str], found: &mut [Option<Cow<'a, str>>]) -> Result<(), Malformed> {
    if names.is_empty() {
        return Ok(());
    }
    for pair in form.split(|byte| *byte == b'&') {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let name = halves.next().unwrap_or_default();
        let value = halves.next().unwrap_or_default();
        // A name that does not decode is not one of those asked for.
        let Some(name) = decode(name) else { continue };
        for (slot, wanted) in found.iter_mut().zip(names) {
            if name != *wanted {
                continue;
            }
            let value = decode(value).ok_or_else(|| Malformed::Encoding((*wanted).to_owned()))?;
            if slot.replace(value).is_some() {
                return Err(Malformed::Repeated((*wanted).to_owned()));
            }
        }
    }
    Ok(())
}

/// Decodes `+` and `%XX`; none when a `%` starts no byte or the bytes are not UTF-8.
fn decode(text: &[u8]) -> Option<Cow<'_, str>> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => hex_digit(*bytes.next()?)? << 4 | hex_digit(*bytes.next()?)?,
            other => *other,
        });
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Why a form could not be read. Holds the wanted field's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The field is there twice.
    Repeated(String),
    /// Its value is no percent-encoded UTF-8.
    Encoding(String),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated(name) => write!(f, "the field {name} is there twice"),
            Self::Encoding(name) => write!(f, "the field {name} is not percent-encoded UTF-8"),
        }
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
    fn every_pair_is_given_in_order() {
        let found = pairs(b"b=1&&a=%C3%A9+x&b=&c").unwrap();
        let plain: Vec<_> = found.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        assert_eq!(plain, [("b", "1"), ("a", "\u{e9} x"), ("b", ""), ("c", "")]);
        assert_eq!(pairs(b""), Ok(vec![]));
        assert!(pairs(b"%=1").is_err() && pairs(b"a=%FF").is_err());
    }

    #[test]
    fn finds_and_decodes() {
        let form = b"a=1&b=x+y%20%C3%A9&c&=5&%64=7&e==";
        let found = find(form, ["a", "b", "c", "d", "e", "f"]).unwrap();
        assert_eq!(
            found.each_ref().map(Option::as_deref),
            [Some("1"), Some("x y é"), Some(""), Some("7"), Some("="), None]
        );
    }

    #[test]
    fn a_wanted_field_must_be_one_readable_value() {
        assert_eq!(find(b"a=1&%61=1", ["a"]), Err(Malformed::Repeated("a".to_owned())));
        assert_eq!(find(b"a=%zz", ["a"]), Err(Malformed::Encoding("a".to_owned())));
        assert_eq!(find(b"a=%ff", ["a"]), Err(Malformed::Encoding("a".to_owned())));
        assert_eq!(find(b"a=%f", ["a"]), Err(Malformed::Encoding("a".to_owned())));
        assert_eq!(find(b"b=%zz&%zz=1&b=1&a=1", ["a"]), Ok([Some(Cow::Borrowed("1"))]));
    }
}
