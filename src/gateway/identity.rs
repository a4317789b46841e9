//! Who an event is: its key in the store, and the fingerprint that two deliveries of it must share. Pure.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::event::{Delivery, Event, Field, FieldDigest, Fingerprint, KeyKind, PluginVersion, ScopeKey, Value};
use crate::number::canonical_number;

use super::canonical_json::canonical;

/// One event's identity within a route.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name in the store.
    pub key: ScopeKey,
    /// Its other names, in the order of their digests.
    pub aliases: Vec<ScopeKey>,
    /// The plugin that named it.
    pub plugin: PluginVersion,
    /// What is compared, sorted by name: each with its typed, canonical bytes.
    compared: Compared,
}

/// Fields by name, each with its typed bytes.
type Compared = Vec<(String, Vec<u8>)>;

/// Whether two events under one key are the same event: what two deliveries' fingerprints would say.
pub fn same_event(one: (&Delivery, &Event), two: (&Delivery, &Event)) -> bool {
    match (compared(one.0, &one.1.material), compared(two.0, &two.1.material)) {
        (Ok(one), Ok(two)) => one == two,
        _ => false,
    }
}

/// Where a route's keys live.
#[derive(Clone, Debug)]
pub struct KeySpace {
    /// The tenant.
    pub tenant: String,
    /// The route's scope.
    pub scope: String,
    /// The plugin's key namespace.
    pub namespace: String,
}

/// What of an event cannot be identified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unidentifiable {
    /// The plugin named no key.
    #[error("the plugin named no key")]
    NoKey,
    /// The plugin gave a number that is none.
    #[error("material field `{0}` holds a number token that is no JSON number")]
    BadNumber(String),
}

impl Identity {
    /// The identity of one event of a delivery.
    ///
    /// # Errors
    /// [`Unidentifiable`]: a key whose parts are all blank is no key, so that no constant stands for all events.
    pub fn of(
        space: &KeySpace,
        plugin: &PluginVersion,
        delivery: &Delivery,
        event: &Event,
    ) -> Result<Self, Unidentifiable> {
        if event.key.iter().all(|part| part.trim().is_empty()) {
            return Err(Unidentifiable::NoKey);
        }
        let key = space.key(KeyKind::Key, event.key.clone());
        let named = event.aliases.iter().filter(|parts| parts.iter().any(|part| !part.trim().is_empty()));
        let mut aliases: Vec<ScopeKey> = named.map(|parts| space.key(KeyKind::Alias, parts.clone())).collect();
        // One order for all deliveries, so that two which share names seldom hold half of them each.
        aliases.sort_by_cached_key(ScopeKey::digest);
        aliases.dedup();
        Ok(Self { key, aliases, plugin: plugin.clone(), compared: compared(delivery, &event.material)? })
    }

    /// The identities of a delivery's events, in their order. `named_by_body`: the raw body is one more name, unless several events
    /// came in it: a body with several events names none of them.
    ///
    /// # Errors
    /// [`Unidentifiable`], when one of them cannot be identified or there is none.
    pub fn all(
        space: &KeySpace,
        plugin: &PluginVersion,
        delivery: &Delivery,
        events: &[Event],
        named_by_body: bool,
    ) -> Result<Vec<Self>, Unidentifiable> {
        if events.is_empty() {
            return Err(Unidentifiable::NoKey);
        }
        let named_by_body = named_by_body && events.len() == 1;
        let ids = events.iter().map(|event| Self::of(space, plugin, delivery, event));
        ids.map(|id| id.map(|id| if named_by_body { id.with_body(space, delivery) } else { id })).collect()
    }

    /// The identity of an event whose name is known and whose fingerprint stands in its record: nothing of it is compared anew.
    pub fn named(key: ScopeKey, plugin: PluginVersion) -> Self {
        Self { key, aliases: Vec::new(), plugin, compared: Vec::new() }
    }

    /// This identity with the raw body as one more name. It is the name that [`Self::of_body`] gives an event without a key, so
    /// that a body which came without one and comes again with one is the same event.
    #[must_use]
    pub fn with_body(mut self, space: &KeySpace, delivery: &Delivery) -> Self {
        self.aliases.push(space.body(delivery));
        self.aliases.sort_by_cached_key(ScopeKey::digest);
        self
    }

    /// The identity of a delivery without a key, by its whole body; compared by what its one event names as material, if it does,
    /// so that it is the same event as one that comes with a key and has this body as another name.
    ///
    /// # Errors
    /// [`Unidentifiable::BadNumber`].
    pub fn of_body(
        space: &KeySpace,
        plugin: &PluginVersion,
        delivery: &Delivery,
        events: &[Event],
    ) -> Result<Self, Unidentifiable> {
        let material = if let [event] = events { event.material.as_slice() } else { &[] };
        let compared = compared(delivery, material)?;
        Ok(Self { key: space.body(delivery), aliases: Vec::new(), plugin: plugin.clone(), compared })
    }

    /// The names of the fields in which two readings of one delivery differ: other values, and fields that only one of them has.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let value =
            |id: &Self, name: &str| id.compared.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let changed = self.compared.iter().filter(|(name, bytes)| value(other, name).as_ref() != Some(bytes));
        let new = other.compared.iter().filter(|(name, _)| value(self, name).is_none());
        changed.chain(new).map(|(name, _)| name.clone()).collect()
    }

    /// What the upstream gets as `Idempotency-Key`, the same on every attempt: the event's own name, or for several events of one
    /// delivery one over all of theirs.
    pub fn readable(ids: &[Self]) -> String {
        match ids {
            [] => String::new(),
            [id] => id.key.readable(),
            [first, ..] => {
                let digest = ids.iter().fold(Sha256::new(), |hash, id| hash.chain_update(id.key.digest())).finalize();
                let ScopeKey { tenant, scope, namespace, .. } = &first.key;
                let at = if namespace.is_empty() { "" } else { "@" };
                format!("{tenant}:{scope}{at}{namespace}:sha256-{}", hex::encode(digest))
            }
        }
    }

    /// The fingerprint under one of the store's digest keys.
    pub fn fingerprint(&self, key: &DigestKey) -> Fingerprint {
        let frame = [self.key.tenant.as_bytes(), self.key.scope.as_bytes()];
        let mut whole = key.mac(b"onceward fingerprint 1", &frame);
        let mut fields = Vec::with_capacity(self.compared.len());
        for (name, value) in &self.compared {
            feed(&mut whole, name.as_bytes());
            feed(&mut whole, value);
            let mut one = key.mac(b"onceward field 1", &frame);
            feed(&mut one, name.as_bytes());
            feed(&mut one, value);
            let digest = one.finalize().into_bytes();
            let short: FieldDigest = std::array::from_fn(|at| digest.get(at).copied().unwrap_or_default());
            fields.push((name.clone(), short));
        }
        Fingerprint { key_id: key.id.clone(), digest: whole.finalize().into_bytes().into(), fields }
    }
}

impl KeySpace {
    fn body(&self, delivery: &Delivery) -> ScopeKey {
        self.key(KeyKind::Body, vec![hex::encode(Sha256::digest(&delivery.body))])
    }

    fn key(&self, kind: KeyKind, parts: Vec<String>) -> ScopeKey {
        ScopeKey {
            tenant: self.tenant.clone(),
            scope: self.scope.clone(),
            namespace: self.namespace.clone(),
            kind,
            parts,
        }
    }
}

/// The store's digest keys, newest first: the first makes fingerprints, the others compare with older records.
#[derive(Clone)]
pub struct DigestKeys {
    newest: DigestKey,
    older: Vec<DigestKey>,
}

impl DigestKeys {
    /// From raw keys, newest first.
    pub fn new(newest: &[u8], older: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { newest: DigestKey::new(newest), older: older.into_iter().map(|key| DigestKey::new(&key)).collect() }
    }

    /// These keys below a newer one.
    #[must_use]
    pub fn renewed(&self, newest: &[u8]) -> Self {
        let older = std::iter::once(&self.newest).chain(&self.older).cloned().collect();
        Self { newest: DigestKey::new(newest), older }
    }

    /// The key that makes fingerprints.
    pub fn newest(&self) -> &DigestKey {
        &self.newest
    }

    /// The key that made a record's fingerprint, if it is still there.
    pub fn find(&self, id: &str) -> Option<&DigestKey> {
        std::iter::once(&self.newest).chain(&self.older).find(|key| key.id == id)
    }
}

/// One key of the fingerprints. Keyed, since amounts and ids are short: a plain digest of one could be guessed.
#[derive(Clone)]
pub struct DigestKey {
    id: String,
    mac: Hmac<Sha256>,
}

impl DigestKey {
    fn new(key: &[u8]) -> Self {
        let id = Sha256::new().chain_update(b"onceward digest key id").chain_update(key).finalize();
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mac = Hmac::new_from_slice(key).expect("any length");
        Self { id: hex::encode(id).chars().take(8).collect(), mac }
    }

    fn mac(&self, label: &[u8], frame: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        feed(&mut mac, label);
        frame.iter().for_each(|part| feed(&mut mac, part));
        mac
    }
}

/// Length first, so that no two lists of parts run together the same way.
fn feed(mac: &mut Hmac<Sha256>, part: &[u8]) {
    mac.update(&(part.len() as u64).to_be_bytes());
    mac.update(part);
}

/// What is compared: the method and the route's captures always; then the material, or the query and the whole body where the
/// plugin names none.
fn compared(delivery: &Delivery, material: &[Field]) -> Result<Compared, Unidentifiable> {
    if material.is_empty() {
        return Ok(whole(delivery));
    }
    let mut fields = addressed(delivery);
    for field in material {
        fields.push((field.name.clone(), value_bytes(field)?));
    }
    Ok(sorted(fields))
}

/// What is compared of a delivery that is its whole body.
fn whole(delivery: &Delivery) -> Compared {
    let mut fields = addressed(delivery);
    fields.push(("$query".to_owned(), delivery.query.as_deref().map_or_else(Vec::new, text)));
    let body = match canonical(&delivery.body) {
        Some(form) => typed(b'j', &form),
        None => typed(b'x', &delivery.body),
    };
    fields.push(("$body".to_owned(), body));
    sorted(fields)
}

fn addressed(delivery: &Delivery) -> Compared {
    let mut fields = vec![("$method".to_owned(), text(delivery.method.as_str()))];
    fields.extend(delivery.params.iter().map(|(name, value)| (format!("$path/{name}"), text(value))));
    fields
}

fn sorted(mut fields: Compared) -> Compared {
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields
}

fn text(text: &str) -> Vec<u8> {
    typed(b't', text.as_bytes())
}

fn value_bytes(field: &Field) -> Result<Vec<u8>, Unidentifiable> {
    Ok(match &field.value {
        Value::Text(text) => typed(b't', text.as_bytes()),
        Value::Number(token) => {
            let number = canonical_number(token).ok_or_else(|| Unidentifiable::BadNumber(field.name.clone()))?;
            typed(b'n', number.to_string().as_bytes())
        }
        Value::Bool(value) => typed(b'b', &[u8::from(*value)]),
        Value::Null => typed(b'z', &[]),
        Value::Bytes(bytes) => typed(b'x', bytes),
    })
}

/// A tag in front, so that "1" and 1 differ.
fn typed(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 1);
    out.push(tag);
    out.extend_from_slice(bytes);
    out
}
