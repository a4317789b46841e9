//! A store whose answers and requests are encrypted at rest. Below it stand only sealed octets, whatever the back-end is.
//!
//! Sealed are an answer's fields, body and resource id, and a kept request. What the store itself compares stays readable, and an
//! answer's status too, for people. A seal holds for its record's key alone, so that no answer can be moved under another event.
//!
//! It stands in front of every store, also without keys: what was sealed before must then be refused, not replayed as it stands.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::event::{ScopeKey, StoredBody, StoredResponse};
use crate::idempotency::{Draft, Expect, Record, State};

use super::seal::SealingKeys;
use super::{Entry, Facts, Filter, Found, Listed, Meta, Seen, Store, StoreError, StoreFault, Stores, Swap};

/// The one field of a sealed answer: its value is the key's id, its body the sealed octets. No upstream can send a field of this
/// name, since a colon is no part of one.
const MARK: &str = ":sealed";

/// What a sealed request starts with; then 8 hex digits of the key's id. A request that is not sealed starts with its version.
const REQUEST_MARK: &[u8] = b"sealed:";
const KEY_ID_LEN: usize = 8;

/// An opened store whose handles seal.
pub struct SealedStores {
    stores: Stores,
    keys: SealingKeys,
}

impl SealedStores {
    /// Over a store that was opened.
    pub fn new(stores: Stores, keys: SealingKeys) -> Self {
        Self { stores, keys }
    }

    /// As [`Stores::handle`].
    pub fn handle(&self) -> Arc<dyn Store> {
        Arc::new(SealedStore { below: self.stores.handle(), keys: self.keys.clone() })
    }
}

/// Seals on the way down, opens on the way up.
struct SealedStore {
    below: Arc<dyn Store>,
    keys: SealingKeys,
}

#[async_trait]
impl Store for SealedStore {
    async fn swap(&self, key: &ScopeKey, expect: Expect, draft: &Draft) -> Result<Swap, StoreError> {
        let Some(sealed) = self.seal(key, draft) else {
            return self.opened(key, self.below.swap(key, expect, draft).await?);
        };
        match self.below.swap(key, expect, &sealed).await? {
            // What was just written need not be decrypted.
            Swap::Done(record) => {
                let (state, request) = (draft.state.clone(), draft.request.clone());
                Ok(Swap::Done(Box::new(Record { state, request, ..*record })))
            }
            refused => self.opened(key, refused),
        }
    }

    async fn peek(&self, key: &ScopeKey) -> Result<Seen, StoreError> {
        self.open_seen(key, self.below.peek(key).await?)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.below.ping().await
    }

    async fn meta(&self, offer: Meta) -> Result<Found, StoreError> {
        self.below.meta(offer).await
    }

    async fn list(&self, tenant: &str, filter: &Filter) -> Result<Listed, StoreError> {
        let mut listed = self.below.list(tenant, filter).await?;
        let mut entries = Vec::with_capacity(listed.entries.len());
        for Entry { key, record } in listed.entries {
            match self.open(&key, record) {
                Ok(record) => entries.push(Entry { key, record }),
                Err(error) => tracing::error!(idempotency_key = %key, %error, "a record is left out of a listing"),
            }
        }
        listed.entries = entries;
        Ok(listed)
    }

    async fn find(&self, tenant: &str, scope: &str, readable_key: &str) -> Result<Vec<Entry>, StoreError> {
        let found = self.below.find(tenant, scope, readable_key).await?.into_iter();
        found.map(|Entry { key, record }| Ok(Entry { record: self.open(&key, record)?, key })).collect()
    }

    async fn facts(&self) -> Result<Facts, StoreError> {
        self.below.facts().await
    }
}

impl SealedStore {
    /// The draft as it is stored; none when it goes as it is: there is no key, or nothing to hide.
    fn seal(&self, key: &ScopeKey, draft: &Draft) -> Option<Draft> {
        if !self.keys.can_seal() {
            return None;
        }
        let seal_answer = |response: &StoredResponse| {
            let place = Place::Answer(response.status).of(key);
            let sealed = self.keys.seal(&place, pack(response))?;
            let headers = vec![(MARK.to_owned(), Bytes::from(sealed.key_id))];
            Some(StoredResponse { status: response.status, headers, body: StoredBody::Full(sealed.octets.into()) })
        };
        let state = match &draft.state {
            State::Succeeded { response } => Some(State::Succeeded { response: seal_answer(response)? }),
            State::Failed { class, response: Some(response) } => {
                Some(State::Failed { class: *class, response: Some(seal_answer(response)?) })
            }
            _ => None,
        };
        let request = draft.request.as_ref().and_then(|request| {
            let sealed = self.keys.seal(&Place::Request.of(key), request.to_vec())?;
            Some(Bytes::from([REQUEST_MARK, sealed.key_id.as_bytes(), &sealed.octets].concat()))
        });
        if state.is_none() && request.is_none() {
            return None;
        }
        let state = state.unwrap_or_else(|| draft.state.clone());
        Some(Draft { state, request, ..draft.clone() })
    }

    fn opened(&self, key: &ScopeKey, swap: Swap) -> Result<Swap, StoreError> {
        Ok(match swap {
            Swap::Done(record) => Swap::Done(Box::new(self.open(key, *record)?)),
            Swap::Refused(seen) => Swap::Refused(Box::new(self.open_seen(key, *seen)?)),
        })
    }

    fn open_seen(&self, key: &ScopeKey, seen: Seen) -> Result<Seen, StoreError> {
        let current = seen.current.map(|record| self.open(key, record)).transpose()?;
        Ok(Seen { current, ..seen })
    }

    /// The record as it was before it was sealed. What was never sealed is as it is.
    fn open(&self, key: &ScopeKey, mut record: Record) -> Result<Record, StoreError> {
        match &mut record.state {
            State::Succeeded { response } | State::Failed { response: Some(response), .. } => {
                if let Some(opened) = self.open_answer(key, response)? {
                    *response = opened;
                }
            }
            _ => {}
        }
        if let Some(marked) = record.request.as_ref().and_then(|request| request.strip_prefix(REQUEST_MARK)) {
            let (key_id, sealed) = marked.split_at_checked(KEY_ID_LEN).ok_or_else(|| damaged("request"))?;
            let key_id = String::from_utf8_lossy(key_id);
            record.request = Some(self.keys.open(&Place::Request.of(key), &key_id, sealed)?.into());
        }
        Ok(record)
    }

    fn open_answer(&self, key: &ScopeKey, stored: &StoredResponse) -> Result<Option<StoredResponse>, StoreError> {
        let Some((_, key_id)) = stored.headers.iter().find(|(name, _)| name == MARK) else { return Ok(None) };
        let StoredBody::Full(sealed) = &stored.body else { return Err(damaged("answer")) };
        let place = Place::Answer(stored.status).of(key);
        let packed = self.keys.open(&place, &String::from_utf8_lossy(key_id), sealed)?;
        let (headers, body) = unpack(&packed).ok_or_else(|| damaged("answer"))?;
        Ok(Some(StoredResponse { status: stored.status, headers, body }))
    }
}

/// What a seal is bound to beside its record's key.
enum Place {
    /// The answer, with the status that stands readable beside it.
    Answer(u16),
    /// The request.
    Request,
}

impl Place {
    fn of(&self, key: &ScopeKey) -> Vec<u8> {
        let mut place = key.digest().to_vec();
        match self {
            Self::Answer(status) => {
                place.extend_from_slice(b"answer");
                place.extend_from_slice(&status.to_be_bytes());
            }
            Self::Request => place.extend_from_slice(b"request"),
        }
        place
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::new(StoreFault::Corrupt, format_args!("the record's sealed {what} is damaged"))
}

/// The fields, then the body, each framed by its length. Binary, since a body in JSON would be larger by a third or more.
fn pack(response: &StoredResponse) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut frame = |octets: &[u8]| {
        packed.extend_from_slice(&(octets.len() as u64).to_be_bytes());
        packed.extend_from_slice(octets);
    };
    match &response.body {
        StoredBody::Full(body) => [b"full".as_slice(), body].map(&mut frame),
        StoredBody::Reference(id) => [b"reference", id.as_bytes()].map(&mut frame),
        StoredBody::Omitted => [b"omitted".as_slice(), b""].map(&mut frame),
    };
    for (name, value) in &response.headers {
        frame(name.as_bytes());
        frame(value);
    }
    packed
}

type Unpacked = (Vec<(String, Bytes)>, StoredBody);

fn unpack(packed: &[u8]) -> Option<Unpacked> {
    let mut rest = packed;
    let mut frame = || {
        let (length, after) = rest.split_first_chunk::<8>()?;
        let (octets, after) = after.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
        rest = after;
        Some((octets, after.is_empty()))
    };
    let (kind, _) = frame()?;
    let (body, mut ends) = frame()?;
    let body = match kind {
        b"full" => StoredBody::Full(Bytes::copy_from_slice(body)),
        b"reference" => StoredBody::Reference(String::from_utf8(body.to_vec()).ok()?),
        b"omitted" => StoredBody::Omitted,
        _ => return None,
    };
    let mut headers = Vec::new();
    while !ends {
        let (name, _) = frame()?;
        let (value, last) = frame()?;
        headers.push((String::from_utf8(name.to_vec()).ok()?, Bytes::copy_from_slice(value)));
        ends = last;
    }
    Some((headers, body))
}
