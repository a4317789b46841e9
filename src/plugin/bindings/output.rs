//! Everything a guest returns, checked as hostile before it is used: sizes first, then counts, then each value.

use std::collections::HashSet;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::Fault;
use super::generated::exports::onceward::plugin::meta as wit_meta;
use super::generated::onceward::plugin::types as wit;
use crate::event::{Event, Field, PluginReply, Value};
use crate::number::canonical_number;
use crate::plugin::call::{ConfigFault, Needs, Reason, Refusal};
use crate::plugin::failure::{DETAIL_MAX, FailureKind, PluginFault, printable};
use crate::plugin::load::Descriptor;

const EVENTS_MAX: usize = 1000;
const KEY_PARTS_MAX: usize = 16;
const KEY_BYTES_MAX: usize = 512;
const ALIASES_MAX: usize = 16;
const FIELDS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 256;
const REPLY_HEADERS_MAX: usize = 64;
const NEEDS_MAX: usize = 64;
const NAMESPACE_BYTES_MAX: usize = 63;

/// What `verify` said.
pub(in crate::plugin) enum Verdict {
    Verified,
    Unsigned,
    Invalid(Refusal),
    Stale(i64),
    Respond(PluginReply),
}

/// What `extract` said.
pub(in crate::plugin) enum Disposition {
    Process(Vec<Event>),
    Respond(PluginReply),
    Pass(String),
    Reject { status: StatusCode, code: String, detail: String },
}

/// How much a call's guest has returned so far.
pub(in crate::plugin) struct Taken {
    /// Bytes.
    pub(in crate::plugin) used: usize,
    max: usize,
}

impl Taken {
    pub(in crate::plugin) fn new(max: usize) -> Self {
        Self { used: 0, max }
    }

    fn add(&mut self, output: &impl Weigh) -> Result<(), Fault> {
        self.used = self.used.saturating_add(output.weight());
        if self.used <= self.max {
            return Ok(());
        }
        let Self { used, max } = self;
        Err(Fault::Answer(FailureKind::OutputLimit, format!("{used} bytes returned, {max} allowed")))
    }
}

pub(super) fn descriptor(told: wit_meta::Descriptor, taken: &mut Taken) -> Result<Descriptor, Fault> {
    taken.add(&(&told.name, &told.version, &told.key_namespace, &told.config_schema))?;
    let plain = |text: &str| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    ensure(plain(&told.name), "the name is not 1 to 64 visible ASCII characters")?;
    ensure(plain(&told.version), "the version is not 1 to 64 visible ASCII characters")?;
    let namespace = told.key_namespace.as_str();
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    ensure(
        namespace.len() <= NAMESPACE_BYTES_MAX && namespace.bytes().all(allowed),
        "the key namespace is not of the form [a-z0-9_-]{0,63}",
    )?;
    Ok(Descriptor {
        name: told.name,
        version: told.version,
        key_namespace: told.key_namespace,
        config_schema: told.config_schema,
    })
}

type Examined = Result<wit_meta::Needs, Vec<wit_meta::Fault>>;

pub(super) fn examined(told: Examined, taken: &mut Taken) -> Result<Result<Needs, Vec<ConfigFault>>, Fault> {
    let needs = match told {
        Ok(needs) => needs,
        Err(faults) => {
            taken.add(&faults)?;
            ensure(!faults.is_empty(), "the config was refused without a fault")?;
            let fault = |one: wit_meta::Fault| ConfigFault {
                path: printable(&one.path, DETAIL_MAX),
                text: printable(&one.text, DETAIL_MAX),
            };
            return Ok(Err(faults.into_iter().map(fault).collect()));
        }
    };
    let lists = [&needs.headers, &needs.secrets, &needs.methods, &needs.certificate_hosts];
    lists.into_iter().try_for_each(|list| taken.add(list))?;
    ensure(lists.iter().all(|list| list.len() <= NEEDS_MAX), "it needs more than 64 of a kind")?;
    let headers = needs.headers.iter().map(|name| match name.as_str() {
        "*" => Ok(name.clone()),
        _ => Ok(header_name(name)?.as_str().to_owned()),
    });
    let methods = needs
        .methods
        .iter()
        .map(|name| Method::from_bytes(name.as_bytes()).map_err(|_| breach(format_args!("{name:?} is not a method"))));
    Ok(Ok(Needs {
        headers: headers.collect::<Result<_, Fault>>()?,
        methods: methods.collect::<Result<_, Fault>>()?,
        secrets: needs.secrets,
        allows_unsigned: needs.allows_unsigned,
        certificate_hosts: needs.certificate_hosts,
    }))
}

pub(super) fn verdict(told: Result<wit::Verdict, wit::PluginError>, taken: &mut Taken) -> Result<Verdict, Fault> {
    Ok(match told.map_err(|error| reported(error, taken))? {
        wit::Verdict::Verified => Verdict::Verified,
        wit::Verdict::Unsigned => Verdict::Unsigned,
        wit::Verdict::Stale(seconds) => Verdict::Stale(seconds),
        wit::Verdict::Respond(told) => Verdict::Respond(reply(told, taken)?),
        wit::Verdict::Invalid(told) => {
            taken.add(&told.detail)?;
            Verdict::Invalid(Refusal {
                reason: reason(told.reason),
                detail: printable(&told.detail, DETAIL_MAX),
                status: told.status.map(client_error).transpose()?,
            })
        }
    })
}

pub(super) fn disposition(
    told: Result<wit::Disposition, wit::PluginError>,
    taken: &mut Taken,
) -> Result<Disposition, Fault> {
    Ok(match told.map_err(|error| reported(error, taken))? {
        wit::Disposition::Process(events) => {
            taken.add(&events)?;
            ensure(events.len() <= EVENTS_MAX, "more than 1,000 events")?;
            Disposition::Process(events.into_iter().map(event).collect::<Result<_, _>>()?)
        }
        wit::Disposition::Respond(told) => Disposition::Respond(reply(told, taken)?),
        wit::Disposition::Pass(why) => {
            taken.add(&why)?;
            Disposition::Pass(printable(&why, DETAIL_MAX))
        }
        wit::Disposition::Reject(told) => {
            taken.add(&(&told.code, &told.detail))?;
            Disposition::Reject {
                status: client_error(told.status)?,
                code: printable(&told.code, DETAIL_MAX),
                detail: printable(&told.detail, DETAIL_MAX),
            }
        }
    })
}

fn event(told: wit::Event) -> Result<Event, Fault> {
    ensure(told.aliases.len() <= ALIASES_MAX, "more than 16 aliases of an event")?;
    ensure(told.material.len() <= FIELDS_MAX, "more than 64 material fields of an event")?;
    let mut names = HashSet::new();
    for field in &told.material {
        let name = field.name.as_str();
        ensure((1..=NAME_BYTES_MAX).contains(&name.len()), "a material name is not 1 to 256 bytes long")?;
        ensure(!name.starts_with('$'), "a material name starts with `$`, which marks the gateway's own")?;
        ensure(names.insert(name), "two material fields have one name")?;
    }
    drop(names);
    let aliases = told.aliases.into_iter().map(key).collect::<Result<Vec<_>, _>>()?;
    Ok(Event {
        key: key(told.key)?,
        aliases: aliases.into_iter().filter(|alias| !alias.is_empty()).collect(),
        key_signed: told.key_signed,
        material: told.material.into_iter().map(field).collect::<Result<_, _>>()?,
        event_type: told.event_type.map(|text| printable(&text, NAME_BYTES_MAX)),
        object_id: told.object_id.map(|text| printable(&text, NAME_BYTES_MAX)),
    })
}

/// A key of blanks alone would be one key for all events: it is none.
fn key(parts: Vec<String>) -> Result<Vec<String>, Fault> {
    ensure(parts.len() <= KEY_PARTS_MAX, "a key has more than 16 parts")?;
    ensure(parts.iter().map(String::len).sum::<usize>() <= KEY_BYTES_MAX, "a key is longer than 512 bytes")?;
    let blank = parts.iter().all(|part| part.chars().all(char::is_whitespace));
    Ok(if blank { Vec::new() } else { parts })
}

fn field(told: wit::Field) -> Result<Field, Fault> {
    let value = match told.value {
        wit::Value::Text(text) => Value::Text(text),
        wit::Value::Boolean(truth) => Value::Bool(truth),
        wit::Value::Null => Value::Null,
        wit::Value::Bytes(bytes) => Value::Bytes(bytes),
        wit::Value::Number(token) => {
            ensure(canonical_number(&token).is_some(), "a material number is not a JSON number")?;
            Value::Number(token)
        }
    };
    Ok(Field { name: told.name, value })
}

fn reply(told: wit::Reply, taken: &mut Taken) -> Result<PluginReply, Fault> {
    taken.add(&told)?;
    ensure(told.headers.len() <= REPLY_HEADERS_MAX, "an answer has more than 64 headers")?;
    ensure((200..=599).contains(&told.status), "an answer's status is not 200 to 599")?;
    let mut headers = HeaderMap::new();
    for line in &told.headers {
        let name = header_name(&line.name)?;
        ensure(
            !is_gateways_own(name.as_str()),
            "an answer has a header that belongs to the gateway or the connection",
        )?;
        let value = HeaderValue::from_bytes(&line.value)
            .map_err(|_| breach(format_args!("the value of header {name} holds a control character")))?;
        headers.append(name, value);
    }
    Ok(PluginReply { status: status(told.status)?, headers, body: Bytes::from(told.body) })
}

/// Fields of the connection, and those by which senders learn what the gateway did.
fn is_gateways_own(name: &str) -> bool {
    let connection = [
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    connection.contains(&name) || name.starts_with("idempotency-") || name.starts_with("onceward-")
}

fn header_name(name: &str) -> Result<HeaderName, Fault> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| breach(format_args!("{name:?} is not a header name")))
}

fn client_error(code: u16) -> Result<StatusCode, Fault> {
    ensure((400..=499).contains(&code), "a refusal's status is not 400 to 499")?;
    status(code)
}

fn status(code: u16) -> Result<StatusCode, Fault> {
    StatusCode::from_u16(code).map_err(|_| breach("a status is out of range"))
}

fn reason(reason: wit::Reason) -> Reason {
    match reason {
        wit::Reason::BadSignature => Reason::BadSignature,
        wit::Reason::MissingSignature => Reason::MissingSignature,
        wit::Reason::Malformed => Reason::Malformed,
        wit::Reason::UntrustedCertificate => Reason::UntrustedCertificate,
        wit::Reason::UnknownKey => Reason::UnknownKey,
    }
}

fn reported(error: wit::PluginError, taken: &mut Taken) -> Fault {
    let (fault, text) = match error {
        wit::PluginError::Malformed(text) => (PluginFault::Malformed, text),
        wit::PluginError::Misconfigured(text) => (PluginFault::Misconfigured, text),
        wit::PluginError::Unsupported(text) => (PluginFault::Unsupported, text),
        wit::PluginError::Unavailable(text) => (PluginFault::Unavailable, text),
        wit::PluginError::Internal(text) => (PluginFault::Internal, text),
    };
    match taken.add(&text) {
        Ok(()) => Fault::Answer(FailureKind::PluginError(fault), text),
        Err(too_much) => too_much,
    }
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(breach(otherwise)) }
}

fn breach(what: impl std::fmt::Display) -> Fault {
    Fault::Answer(FailureKind::Contract, what.to_string())
}

/// How much an output weighs against the limit: the bytes of its texts, and 4 for each item, so that empty ones count.
trait Weigh {
    fn weight(&self) -> usize;
}

const ITEM: usize = 4;

impl Weigh for String {
    fn weight(&self) -> usize {
        ITEM.saturating_add(self.len())
    }
}

impl Weigh for u8 {
    fn weight(&self) -> usize {
        1
    }
}

impl<T: Weigh> Weigh for Vec<T> {
    fn weight(&self) -> usize {
        self.iter().map(T::weight).fold(ITEM, usize::saturating_add)
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(ITEM, T::weight)
    }
}

impl<T: Weigh> Weigh for &T {
    fn weight(&self) -> usize {
        (**self).weight()
    }
}

impl<A: Weigh, B: Weigh> Weigh for (A, B) {
    fn weight(&self) -> usize {
        self.0.weight().saturating_add(self.1.weight())
    }
}

impl<A: Weigh, B: Weigh, C: Weigh, D: Weigh> Weigh for (A, B, C, D) {
    fn weight(&self) -> usize {
        ((&self.0, &self.1), (&self.2, &self.3)).weight()
    }
}

impl Weigh for wit_meta::Fault {
    fn weight(&self) -> usize {
        (&self.path, &self.text).weight()
    }
}

impl Weigh for wit::Field {
    fn weight(&self) -> usize {
        let value = match &self.value {
            wit::Value::Text(text) | wit::Value::Number(text) => text.weight(),
            wit::Value::Bytes(bytes) => bytes.weight(),
            wit::Value::Boolean(_) | wit::Value::Null => ITEM,
        };
        self.name.weight().saturating_add(value)
    }
}

impl Weigh for wit::Event {
    fn weight(&self) -> usize {
        ((&self.key, &self.aliases), (&self.material, (&self.event_type, &self.object_id))).weight()
    }
}

impl Weigh for wit::Reply {
    fn weight(&self) -> usize {
        (&self.headers, &self.body).weight()
    }
}

impl Weigh for wit::HeaderResult {
    fn weight(&self) -> usize {
        (&self.name, &self.value).weight()
    }
}
