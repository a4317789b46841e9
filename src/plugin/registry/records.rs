//! What the registry's objects hold, as JSON: read back by every version of this program, so members are only ever added.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A tenant's plugin, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginId {
    /// Whose.
    pub tenant: String,
    /// Its name, as routes write it after the slash.
    pub name: String,
}

impl fmt::Display for PluginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.name)
    }
}

/// The SHA-256 of a component: what a version is called, everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeDigest([u8; 32]);

impl CodeDigest {
    /// Of these bytes.
    pub fn of(wasm: &[u8]) -> Self {
        Self(Sha256::digest(wasm).into())
    }
}

impl fmt::Display for CodeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for CodeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hex digits")]
pub struct NoDigest;

impl FromStr for CodeDigest {
    type Err = NoDigest;

    /// Only the one spelling that names its objects.
    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NoDigest)?;
        let digest = Self(bytes);
        if digest.to_string() == text { Ok(digest) } else { Err(NoDigest) }
    }
}

impl Serialize for CodeDigest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CodeDigest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// An uploaded version, as the gate measured it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// Of its code.
    pub digest: CodeDigest,
    /// What its author calls it.
    pub version: String,
    /// Part of every key that it names; empty for none.
    pub key_namespace: String,
    /// Bytes of the component.
    pub size: u64,
    /// The most fuel that a call took: of the cases that came with it, else of `describe`.
    pub fuel: u64,
    /// The most memory that a call took, in bytes.
    pub memory: u64,
    /// How long it took to compile, in milliseconds on the clock.
    pub compile_ms: u64,
    /// Cases that it passed.
    pub cases: u64,
    /// The token's name.
    pub by: String,
    /// Unix milliseconds, by the clock of the gateway that took it.
    pub at_ms: u64,
}

/// Which versions a tenant's plugin consists of, from one activation to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Counts up from 1.
    pub generation: u64,
    /// What serves.
    pub active: CodeDigest,
    /// What a rollback returns to.
    pub previous: Option<CodeDigest>,
    /// What runs beside the active one, to be compared.
    pub shadow: Option<CodeDigest>,
    /// The token's name.
    pub by: String,
    /// Unix milliseconds, by the clock of the gateway that made it.
    pub at_ms: u64,
}

impl Generation {
    /// The versions that it names.
    pub fn names(&self) -> impl Iterator<Item = CodeDigest> {
        std::iter::once(self.active).chain(self.previous).chain(self.shadow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let digest = CodeDigest::of(b"");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        for bad in ["", "E3", &text.to_uppercase(), &text[..63], &format!("{text}0"), "../../../../etc/passwd"] {
            assert_eq!(bad.parse::<CodeDigest>(), Err(NoDigest), "{bad}");
        }
    }
}
