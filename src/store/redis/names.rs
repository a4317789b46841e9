//! What records are called in Redis, and how a name leads back to its key.

use crate::event::{KeyKind, ScopeKey};

/// The field that holds a record's whole key: where the name is a digest, nothing else tells what it is about.
pub(super) const NAME: &str = "name";

/// Hex digits of a key's digest that choose its slot in a cluster.
const TAG_DIGITS: usize = 16;

/// How the names are made.
#[derive(Clone, Copy)]
pub(super) struct Names {
    /// In a cluster each name begins with a hash tag: a part of the key's digest, so that no key chooses its own slot.
    pub(super) tagged: bool,
}

impl Names {
    /// Of a record: readable where that is unique. Tenants and scopes hold no separator, but a namespace is the plugin's own word.
    pub(super) fn record(self, key: &ScopeKey) -> String {
        let digest = || hex::encode(key.digest());
        let plain = |part: &String| !part.contains([':', '@']);
        let name = if plain(&key.tenant) && plain(&key.scope) && plain(&key.namespace) {
            format!("onceward:rec:{}", key.readable())
        } else {
            format!("onceward:rec:sha256-{}", digest())
        };
        if self.tagged { format!("{}{name}", tag(&digest())) } else { name }
    }

    /// Of a tenant's index of open records.
    pub(super) fn index(tenant: &str) -> String {
        format!("onceward:open:{tenant}")
    }

    /// Of the set of key namespaces that a scope has seen, the empty one left out.
    pub(super) fn namespaces(tenant: &str, scope: &str) -> String {
        format!("onceward:namespaces:{tenant}:{scope}")
    }

    /// Of the record whose key reads like this in a namespace.
    pub(super) fn readable(self, tenant: &str, scope: &str, namespace: &str, readable: &str) -> String {
        let key = ScopeKey {
            tenant: tenant.to_owned(),
            scope: scope.to_owned(),
            namespace: namespace.to_owned(),
            kind: KeyKind::Key,
            parts: parts(readable),
        };
        match readable.strip_prefix("sha256-") {
            // The digest stands in the name itself; what it was made of is not needed.
            Some(digest) => {
                let name = format!("onceward:rec:{}{readable}", key.prefix());
                if self.tagged { format!("{}{name}", tag(digest)) } else { name }
            }
            None => self.record(&key),
        }
    }

    /// A pattern for all records of a tenant.
    pub(super) fn of_tenant(self, tenant: &str) -> String {
        // Tenants' names hold no character that a pattern takes for more than itself.
        format!("{}onceward:rec:{tenant}:*", if self.tagged { "{*}" } else { "" })
    }
}

/// The parts that a readable key was joined from.
fn parts(readable: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = readable.chars();
    while let Some(character) = characters.next() {
        match (character, parts.last_mut()) {
            ('|', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(characters.next()),
            (_, Some(part)) => part.push(character),
            (_, None) => {}
        }
    }
    parts
}

fn tag(digest: &str) -> String {
    format!("{{{}}}", digest.get(..TAG_DIGITS).unwrap_or(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is found under the name that a person reads, with and without a hash tag.
    #[test]
    fn a_readable_key_leads_to_its_record() {
        let hostile = ["a|b\\", "", "{x}|"].map(str::to_owned).to_vec();
        for (namespace, parts) in [("", hostile.clone()), ("v2", hostile), ("", vec!["with space".to_owned()])] {
            let (tenant, scope) = ("t".to_owned(), "s".to_owned());
            let key = ScopeKey { tenant, scope, namespace: namespace.to_owned(), kind: KeyKind::Key, parts };
            for names in [Names { tagged: false }, Names { tagged: true }] {
                assert_eq!(names.readable("t", "s", namespace, &key.readable_key()), names.record(&key));
            }
        }
    }
}
