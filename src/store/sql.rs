//! What the SQL stores share: how a key is written in a row, and how a person's spelling of it is read.

use crate::event::{KeyKind, ScopeKey};

use super::{Entry, StoreError};

/// How long a question for people may take. Long enough to read a big table, short enough to free the connection.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// The parts as a JSON list: recoverable, and a NUL is written as an escape, so that every tool shows all of it.
pub(super) fn parts(parts: &[String]) -> String {
    serde_json::Value::from(parts).to_string()
}

/// The key that a row names; none when the words are not those of a key.
pub(super) fn key(tenant: &str, scope: &str, [namespace, kind, parts]: [String; 3]) -> Option<ScopeKey> {
    let (kind, parts) = (KeyKind::parse(&kind)?, serde_json::from_str(&parts).ok()?);
    Some(ScopeKey { tenant: tenant.to_owned(), scope: scope.to_owned(), namespace, kind, parts })
}

/// The parts behind a [`ScopeKey::readable_key`] that is no digest: cut at each `|`, unless a `\` stands before it.
pub(super) fn readable_parts(readable: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = readable.chars();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            ('|', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(letters.next()),
            (other, Some(part)) => part.push(other),
            (_, None) => {}
        }
    }
    parts
}

/// An entry for a listing; one that cannot be read is left out of it, and told.
pub(super) fn readable(entry: Result<Entry, StoreError>) -> Option<Entry> {
    entry.inspect_err(|error| tracing::error!(%error, "a record is left out of a listing")).ok()
}

/// Whether a readable key is a digest, which tells nothing of the parts.
pub(super) fn is_digest(readable: &str) -> bool {
    readable.starts_with("sha256-")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every key that is shown in letters is found by them.
        #[test]
        fn what_is_shown_is_read_back(parts in proptest::collection::vec("[a-c|\\\\]{0,4}", 0..4)) {
            let key = ScopeKey {
                tenant: "t".into(),
                scope: "s".into(),
                namespace: String::new(),
                kind: KeyKind::Key,
                parts: parts.clone(),
            };
            let readable = key.readable_key();
            prop_assert!(is_digest(&readable) || readable_parts(&readable) == parts, "{}", readable);
        }
    }
}
