//! Shared nouns: what the rooms hand to one another. Plain data, no I/O, no clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// A moment on the *store's* clock, in microseconds since the Unix epoch.
///
/// A gateway's own clock never decides a lease, so nothing in this program makes a `Timestamp` but a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The moment `after` later, at most the end of time.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long from `earlier` to here, zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A material value. Numbers travel as the token the sender wrote and are compared as exact decimals, text byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Unicode text, after the format's own decoding.
    Text(String),
    /// A JSON number token.
    Number(String),
    /// `true` or `false`.
    Bool(bool),
    /// An explicit null, which differs from an absent field.
    Null,
    /// Raw octets.
    Bytes(Vec<u8>),
}

/// One material field. Names are unique within an event and never start with `$`, which marks the gateway's own fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What the plugin calls it, usually a JSON pointer.
    pub name: String,
    /// What it held.
    pub value: Value,
}

/// One business event, as the plugin read it from a delivery. A delivery may carry several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The business idempotency key in parts; empty when the sender gave none.
    pub key: Vec<String>,
    /// Other names of the same event.
    pub aliases: Vec<Vec<String>>,
    /// Whether the sender's signature covers the key.
    pub key_signed: bool,
    /// What must be equal for two deliveries to be the same event. Empty: the whole body counts.
    pub material: Vec<Field>,
    /// For people only.
    pub event_type: Option<String>,
    /// For people only.
    pub object_id: Option<String>,
}

/// What kind of name a key is; names of different kinds never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// The plugin's key.
    Key,
    /// One of the plugin's aliases.
    Alias,
    /// The SHA-256 of the raw body.
    Body,
    /// What came under an event's key and was another event: see [`ScopeKey::quarantine`].
    Mismatch,
}

impl KeyKind {
    /// The word used in stores and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Alias => "alias",
            Self::Body => "body",
            Self::Mismatch => "mismatch",
        }
    }

    /// The kind of a stored word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Key, Self::Alias, Self::Body, Self::Mismatch].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The full name of an event within the store: whose it is, in which scope, and what the plugin calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeKey {
    /// The tenant's name.
    pub tenant: String,
    /// The route's scope.
    pub scope: String,
    /// The plugin's declared key namespace, empty at first.
    pub namespace: String,
    /// What kind of name this is.
    pub kind: KeyKind,
    /// The plugin's parts, in order.
    pub parts: Vec<String>,
}

/// The longest readable key the upstream gets, in bytes (contract: visible ASCII up to 255 in all).
const READABLE_MAX: usize = 255;

impl ScopeKey {
    /// Where it is kept that other events came under this key.
    #[must_use]
    pub fn quarantine(&self) -> Self {
        let parts = [self.kind.as_str().to_owned()].into_iter().chain(self.parts.iter().cloned()).collect();
        Self { kind: KeyKind::Mismatch, parts, ..self.clone() }
    }

    /// The key that a quarantine is about.
    pub fn quarantined(&self) -> Option<Self> {
        let (kind, parts) = self.parts.split_first().filter(|_| self.kind == KeyKind::Mismatch)?;
        Some(Self { kind: KeyKind::parse(kind)?, parts: parts.to_vec(), ..self.clone() })
    }

    /// A collision-free digest: every part is framed by its length, so ("ab","c") and ("a","bc") differ.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut frame = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        };
        frame(&self.tenant);
        frame(&self.scope);
        frame(&self.namespace);
        frame(self.kind.as_str());
        self.parts.iter().for_each(|part| frame(part));
        hash.finalize().into()
    }

    /// The key part alone as people and the upstream see it: parts joined by `|`, with `\` escapes, or `sha256-<hex>` of the
    /// whole key where that would not be visible ASCII, would be too long, or would itself look like a digest.
    pub fn readable_key(&self) -> String {
        let joined = self.parts.iter().map(|part| escape(part)).collect::<Vec<_>>().join("|");
        let visible = !joined.is_empty() && joined.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = self.prefix().len() + joined.len() <= READABLE_MAX;
        if visible && fits && self.kind == KeyKind::Key && !joined.starts_with("sha256-") {
            joined
        } else {
            format!("sha256-{}", hex::encode(self.digest()))
        }
    }

    /// `tenant:scope:key`, or `tenant:scope@namespace:key`: the same on every attempt, sent as `Idempotency-Key`.
    pub fn readable(&self) -> String {
        self.prefix() + &self.readable_key()
    }

    /// What stands before the key in [`Self::readable`].
    pub fn prefix(&self) -> String {
        if self.namespace.is_empty() {
            format!("{}:{}:", self.tenant, self.scope)
        } else {
            format!("{}:{}@{}:", self.tenant, self.scope, self.namespace)
        }
    }
}

fn escape(part: &str) -> String {
    part.replace('\\', "\\\\").replace('|', "\\|")
}

impl fmt::Display for ScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.readable())
    }
}

/// The keyed digest of one compared field: enough to say *that* it differs, never what it held.
pub type FieldDigest = [u8; 16];

/// What a delivery claims to be, in a form that can be kept: keyed digests only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Which of the store's digest keys made it.
    pub key_id: String,
    /// Over everything that must be equal.
    pub digest: [u8; 32],
    /// A digest per field, sorted by name. The gateway's own fields start with `$`: `$method`, `$path/NAME`, `$query`, `$body`.
    pub fields: Vec<(String, FieldDigest)>,
}

impl Fingerprint {
    /// The names of the fields in which two events differ: other values, and fields that only one of them has.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let changed = self.fields.iter().filter(|(name, digest)| other.field(name) != Some(digest));
        let gone = other.fields.iter().filter(|(name, _)| self.field(name).is_none());
        changed.chain(gone).map(|(name, _)| name.clone()).collect()
    }

    /// The digest of one field.
    pub fn field(&self, name: &str) -> Option<&FieldDigest> {
        let at = self.fields.binary_search_by(|(field, _)| field.as_str().cmp(name)).ok()?;
        self.fields.get(at).map(|(_, digest)| digest)
    }
}

/// An upstream's answer as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// The upstream's status.
    pub status: u16,
    /// End-to-end fields in the upstream's order, repeats kept; values are octets.
    pub headers: Vec<(String, Bytes)>,
    /// As much of the body as the route keeps.
    pub body: StoredBody,
}

/// How much of an answer's body was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredBody {
    /// All of it.
    Full(Bytes),
    /// Only the id of what the upstream made.
    Reference(String),
    /// Nothing: by policy, or since it was larger than the route keeps.
    Omitted,
}

/// The plugin that named an event's key: kept with the record, part of neither key nor fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginVersion {
    /// As the route names it.
    pub name: String,
    /// The version it declares, and the digest of its code.
    pub version: String,
}

/// One request as a sender delivered it, whole: what the plugin sees and what the upstream will get.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// As sent.
    pub method: http::Method,
    /// `http` or `https`, as the sender used it, trusted proxies considered.
    pub scheme: &'static str,
    /// Host and port as the sender used them, trusted proxies considered.
    pub authority: String,
    /// As received, percent-encoding untouched, no query.
    pub path: String,
    /// As received.
    pub query: Option<String>,
    /// The route's path captures, decoded.
    pub params: Vec<(String, String)>,
    /// As received; repeats kept, order kept per name.
    pub headers: http::HeaderMap,
    /// The raw bytes.
    pub body: Bytes,
    /// The gateway's clock at arrival, Unix milliseconds.
    pub received_at_ms: u64,
    /// Subject of a verified client certificate, RFC 4514.
    pub client_certificate: Option<String>,
}

/// A plugin's own answer to a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginReply {
    /// 200–599.
    pub status: http::StatusCode,
    /// Valid names and values only; none that the connection owns.
    pub headers: http::HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A secret's text. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes the text as it is used.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who checks with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
