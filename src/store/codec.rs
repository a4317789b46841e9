//! A record as flat, named columns: the fields of a Redis hash and the columns of the SQL table are the same.
//!
//! Everything is text that people can read, times in microseconds since the Unix epoch; only the body is raw octets. An absent
//! column is an absent value, so an empty body differs from none. What cannot be read is a fault, never "no record": a second
//! forward must not follow from a flipped bit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::event::{FieldDigest, Fingerprint, PluginVersion, StoredBody, StoredResponse, Timestamp};
use crate::idempotency::record::{FailureClass, Status, UnknownReason};
use crate::idempotency::{Draft, Owner, Record, State};

use super::{StoreError, StoreFault};

pub(super) mod notes;

/// Every column, in the order of the SQL table.
pub(super) const COLUMNS: [&str; 26] = [
    "status",
    "fingerprint",
    "field_digests",
    "owner",
    "fence",
    "attempt",
    "started_at",
    "finished_at",
    "lease_until",
    "expires_at",
    "class",
    "reason",
    "status_code",
    "headers",
    "body",
    "resource_id",
    "error",
    "released",
    "ambiguous",
    "plugin",
    "version",
    "route",
    "history",
    "request",
    "alias_of",
    "mismatch",
];

/// One column's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Readable text.
    Text(String),
    /// Raw octets.
    Octets(Bytes),
}

impl Cell {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Octets(octets) => octets,
        }
    }
}

/// The columns that have a value.
pub(super) type Columns = Vec<(&'static str, Cell)>;

/// The columns that a draft decides. The store's clock decides the others: see [`stamps`].
pub(super) fn content(draft: &Draft) -> Columns {
    let mut columns = vec![
        text("status", draft.state.status().as_str()),
        text("fingerprint", format!("{}:{}", draft.fingerprint.key_id, hex::encode(draft.fingerprint.digest))),
        text("field_digests", field_digests(&draft.fingerprint.fields)),
        text("owner", draft.owner.0.as_str()),
        text("attempt", draft.attempt.to_string()),
        text("released", flag(draft.released)),
        text("ambiguous", flag(draft.ambiguous)),
        text("plugin", draft.plugin.name.as_str()),
        text("version", draft.plugin.version.as_str()),
    ];
    columns.extend(draft.error.as_deref().map(|error| text("error", error)));
    columns.extend(Some(draft.route.as_str()).filter(|route| !route.is_empty()).map(|route| text("route", route)));
    columns.extend((!draft.history.is_empty()).then(|| text("history", notes::history(&draft.history))));
    columns.extend(draft.request.clone().map(|request| ("request", Cell::Octets(request))));
    match &draft.state {
        State::Processing => {}
        State::Succeeded { response: kept } => columns.extend(response(kept)),
        State::Failed { class, response: kept } => {
            columns.push(text("class", class.as_str()));
            columns.extend(kept.iter().flat_map(response));
        }
        State::Unknown { reason } => columns.push(text("reason", reason.as_str())),
        State::Alias { of } => columns.push(text("alias_of", notes::key(of))),
        State::Mismatch { fields, count, first_at } => {
            columns.push(text("mismatch", notes::mismatch(fields, *count, *first_at)));
        }
    }
    columns
}

/// The columns that the store's clock decides.
pub(super) fn stamps(record: &Record) -> Columns {
    let mut columns = vec![
        text("fence", record.fence.to_string()),
        text("started_at", micros(record.started_at)),
        text("lease_until", micros(record.lease_until)),
        text("expires_at", micros(record.expires_at)),
    ];
    columns.extend(record.finished_at.map(|at| text("finished_at", micros(at))));
    columns
}

fn response(kept: &StoredResponse) -> Columns {
    let mut columns = vec![text("status_code", kept.status.to_string()), text("headers", headers(&kept.headers))];
    match &kept.body {
        StoredBody::Full(body) => columns.push(("body", Cell::Octets(body.clone()))),
        StoredBody::Reference(id) => columns.push(text("resource_id", id.as_str())),
        StoredBody::Omitted => {}
    }
    columns
}

fn text(name: &'static str, value: impl Into<String>) -> (&'static str, Cell) {
    (name, Cell::Text(value.into()))
}

fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}

fn micros(at: Timestamp) -> String {
    at.as_micros().to_string()
}

fn field_digests(fields: &[(String, FieldDigest)]) -> String {
    json(&fields.iter().map(|(name, digest)| (name, hex::encode(digest))).collect::<Vec<_>>())
}

/// A header value in JSON: text where it is UTF-8, else its octets in hex, so that any value survives and most can be read.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HeaderValue<'a> {
    Text(Cow<'a, str>),
    Octets { hex: String },
}

fn headers(pairs: &[(String, Bytes)]) -> String {
    let readable = |value: &'_ Bytes| match std::str::from_utf8(value) {
        Ok(text) => HeaderValue::Text(Cow::Owned(text.to_owned())),
        Err(_) => HeaderValue::Octets { hex: hex::encode(value) },
    };
    json(&pairs.iter().map(|(name, value)| (name, readable(value))).collect::<Vec<_>>())
}

#[expect(clippy::expect_used, reason = "strings, numbers and lists of them always have a JSON form")]
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data has a JSON form")
}

/// The columns that a store holds for a key, as it gave them.
#[derive(Debug, Default)]
pub(super) struct Row(BTreeMap<&'static str, Vec<u8>>);

impl Row {
    /// Takes a column. One that this version does not know is left out: a newer one may have written it.
    pub(super) fn insert(&mut self, name: &[u8], value: Vec<u8>) {
        if let Some(known) = COLUMNS.iter().find(|known| known.as_bytes() == name) {
            self.0.insert(known, value);
        }
    }

    /// The record that the columns hold.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] names the first column that is missing, unreadable, or at odds with the state.
    pub(super) fn decode(mut self) -> Result<Record, StoreError> {
        let status = self.parsed("status", Status::parse)?;
        let record = Record {
            state: self.state(status)?,
            fingerprint: self.fingerprint()?,
            owner: Owner(self.text("owner")?),
            fence: self.parsed("fence", number)?,
            attempt: self.parsed("attempt", number)?,
            started_at: self.parsed("started_at", timestamp)?,
            finished_at: self.optional("finished_at", timestamp)?,
            lease_until: self.parsed("lease_until", timestamp)?,
            expires_at: self.parsed("expires_at", timestamp)?,
            released: self.parsed("released", boolean)?,
            ambiguous: self.parsed("ambiguous", boolean)?,
            error: self.optional("error", owned)?,
            plugin: PluginVersion { name: self.text("plugin")?, version: self.text("version")? },
            route: self.optional("route", owned)?.unwrap_or_default(),
            history: self.optional("history", notes::parse_history)?.unwrap_or_default(),
            request: self.0.remove("request").map(Bytes::from),
        };
        if record.finished_at.is_some() == (status == Status::Processing) {
            return Err(corrupt("finished_at"));
        }
        // What is left belongs to another state: two writes were mixed.
        match self.0.keys().next() {
            Some(stray) => Err(corrupt(stray)),
            None => Ok(record),
        }
    }

    fn state(&mut self, status: Status) -> Result<State, StoreError> {
        Ok(match status {
            Status::Processing => State::Processing,
            Status::Succeeded => State::Succeeded { response: self.response()?.ok_or_else(|| corrupt("status_code"))? },
            Status::Failed => {
                State::Failed { class: self.parsed("class", FailureClass::parse)?, response: self.response()? }
            }
            Status::Unknown => State::Unknown { reason: self.parsed("reason", UnknownReason::parse)? },
            Status::Alias => State::Alias { of: self.parsed("alias_of", notes::parse_key)? },
            Status::Mismatch => {
                let (fields, count, first_at) = self.parsed("mismatch", notes::parse_mismatch)?;
                State::Mismatch { fields, count, first_at }
            }
        })
    }

    fn response(&mut self) -> Result<Option<StoredResponse>, StoreError> {
        let Some(status) = self.optional("status_code", number)? else {
            return Ok(None);
        };
        let pairs = self.text("headers")?;
        let pairs = serde_json::from_str::<Vec<(String, HeaderValue<'_>)>>(&pairs).map_err(|_| corrupt("headers"))?;
        let headers = pairs.into_iter().map(|(name, value)| {
            Ok((
                name,
                match value {
                    HeaderValue::Text(text) => Bytes::from(text.into_owned()),
                    HeaderValue::Octets { hex } => Bytes::from(hex::decode(hex).map_err(|_| corrupt("headers"))?),
                },
            ))
        });
        let headers = headers.collect::<Result<_, StoreError>>()?;
        let body = match (self.0.remove("body"), self.optional("resource_id", owned)?) {
            (Some(body), None) => StoredBody::Full(body.into()),
            (None, Some(id)) => StoredBody::Reference(id),
            (None, None) => StoredBody::Omitted,
            (Some(_), Some(_)) => return Err(corrupt("resource_id")),
        };
        Ok(Some(StoredResponse { status, headers, body }))
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, StoreError> {
        let whole = self.text("fingerprint")?;
        let (key_id, digest) = whole.rsplit_once(':').ok_or_else(|| corrupt("fingerprint"))?;
        let fields = serde_json::from_str::<Vec<(String, String)>>(&self.text("field_digests")?);
        let fields = fields.map_err(|_| corrupt("field_digests"))?.into_iter();
        Ok(Fingerprint {
            key_id: key_id.to_owned(),
            digest: octets(digest).ok_or_else(|| corrupt("fingerprint"))?,
            fields: fields
                .map(|(name, digest)| Some((name, octets(&digest)?)))
                .collect::<Option<_>>()
                .ok_or_else(|| corrupt("field_digests"))?,
        })
    }

    fn text(&mut self, name: &'static str) -> Result<String, StoreError> {
        self.parsed(name, owned)
    }

    fn parsed<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        self.optional(name, parse)?.ok_or_else(|| corrupt(name))
    }

    fn optional<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let Some(value) = self.0.remove(name) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&value).ok();
        text.and_then(parse).map(Some).ok_or_else(|| corrupt(name))
    }
}

/// The name only, never the value: it may be somebody's data.
fn corrupt(column: &str) -> StoreError {
    StoreError::new(StoreFault::Corrupt, format_args!("the record's `{column}` is missing, unreadable or misplaced"))
}

#[expect(clippy::unnecessary_wraps, reason = "one of the parsers")]
fn owned(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn timestamp(text: &str) -> Option<Timestamp> {
    number(text).map(Timestamp::from_micros)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn octets<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests;
