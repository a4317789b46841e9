//! The events of a request, by the mode it is in.

use onceward_plugin::crypto::{self, Hash, Part};
use onceward_plugin::json::{self, Fields, Node};
use onceward_plugin::{Disposition, Event, Field, Header, PluginError, Rejection, Reply, Value, header};

use crate::{attributes, data};

const DATA: &str = "/data";
const DATA_BASE64: &str = "/data_base64";
const POINTERS: [&str; 7] = ["/specversion", "/id", "/source", "/type", "/subject", DATA, DATA_BASE64];

pub(crate) fn read(headers: &[Header], body: &[u8]) -> Result<Disposition, PluginError> {
    let kind = header::one(headers, "content-type").map_err(|fault| fault.about("content-type"))?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let events = match kind.as_str() {
        "application/cloudevents+json" => vec![structured(body)?],
        "application/cloudevents-batch+json" => {
            let events = batch(body)?;
            if events.is_empty() {
                return Ok(Disposition::Respond(Reply { status: 204, headers: Vec::new(), body: Vec::new() }));
            }
            events
        }
        other if other.starts_with("application/cloudevents") => return Ok(unsupported()),
        other if attributes::are_there(headers) => vec![binary(headers, other, body)?],
        _ => return Ok(unsupported()),
    };
    Ok(Disposition::Process(events))
}

fn unsupported() -> Disposition {
    Disposition::Reject(Rejection {
        status: 415,
        code: "unsupported-format".to_owned(),
        detail: "CloudEvents are read in binary mode, and as application/cloudevents+json or -batch+json".to_owned(),
    })
}

fn batch(body: &[u8]) -> Result<Vec<Event>, PluginError> {
    let [batch] = json::find(body, [""])?;
    let Some(Node::Array(written)) = batch else {
        return Err(PluginError::Malformed("a batch must be an array".to_owned()));
    };
    json::items(written)?.into_iter().map(|item| structured(item.as_bytes())).collect()
}

fn structured(document: &[u8]) -> Result<Event, PluginError> {
    let fields = Fields::read(document, POINTERS.to_vec())?;
    let text = |pointer| fields.text(pointer).map(str::to_owned);
    let [version, id, source, kind, subject] = ["/specversion", "/id", "/source", "/type", "/subject"].map(text);
    let data = match (fields.node(DATA), fields.text(DATA_BASE64)) {
        (Some(_), Some(_)) => return Err(PluginError::Malformed("an event has data and data_base64".to_owned())),
        (Some(node), None) => Some(digest(&[crypto::bytes(data::canonical(node)?)])),
        (None, text) => text.map(|text| Value::Text(text.to_owned())),
    };
    event([version, id, source, kind, subject], data)
}

fn binary(headers: &[Header], kind: &str, body: &[u8]) -> Result<Event, PluginError> {
    let [version, id, source, event_type, subject] = attributes::HEADERS.map(|name| attributes::read(headers, name));
    let is_json = kind == "application/json" || kind == "text/json" || kind.ends_with("+json");
    let value = if is_json { json::find(body, [""]).ok().and_then(|[node]| node) } else { None };
    let data = match value {
        Some(node) => Some(digest(&[crypto::bytes(data::canonical(&node)?)])),
        None => (!body.is_empty()).then(|| digest(&[Part::Body])),
    };
    event([version?, id?, source?, event_type?, subject?], data)
}

fn digest(message: &[Part]) -> Value {
    Value::Bytes(crypto::digest(Hash::Sha256, message))
}

/// From the attributes specversion, id, source, type and subject. A token vouches for the sender and signs nothing.
fn event(attributes: [Option<String>; 5], data: Option<Value>) -> Result<Event, PluginError> {
    let [version, id, source, event_type, subject] = attributes.map(|text| text.filter(|text| !text.is_empty()));
    let absent = |name: &str| PluginError::Malformed(format!("an event has no {name}"));
    let version = version.ok_or_else(|| absent("specversion"))?;
    if !version.starts_with("1.") && version != "0.3" {
        return Err(PluginError::Malformed("an event has a specversion that is not known here".to_owned()));
    }
    let key = vec![source.ok_or_else(|| absent("source"))?, id.ok_or_else(|| absent("id"))?];
    let event_type = event_type.ok_or_else(|| absent("type"))?;
    let mut material = vec![Field::new("type", Value::Text(event_type.clone()))];
    material.extend(subject.clone().map(|subject| Field::new("subject", Value::Text(subject))));
    material.extend(data.map(|data| Field::new("data", data)));
    Ok(Event {
        key,
        aliases: Vec::new(),
        key_signed: false,
        material,
        event_type: Some(event_type),
        object_id: subject,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> Vec<Header> {
        lines
            .iter()
            .map(|(name, value)| Header { name: (*name).to_owned(), value: value.as_bytes().to_vec() })
            .collect()
    }

    /// Events without data: what is digested needs the gateway.
    #[test]
    fn each_mode_finds_its_events() {
        let keys = |lines: &[(&str, &str)], body: &[u8]| match read(&headers(lines), body) {
            Ok(Disposition::Process(events)) => events.into_iter().map(|event| event.key).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let one = r#"{"specversion":"1.0","id":"1","source":"/a|b","type":"t"}"#;
        let structured = [("content-type", "Application/CloudEvents+JSON; charset=utf-8")];
        assert_eq!(keys(&structured, one.as_bytes()), [["/a|b", "1"]]);
        let batch = [("content-type", "application/cloudevents-batch+json")];
        assert_eq!(keys(&batch, format!("[{one},{one}]").as_bytes()).len(), 2);
        let binary = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/%E2%82%AC"), ("ce-type", "t")];
        assert_eq!(keys(&binary, b""), [["/\u{20ac}", "1"]]);
        assert!(matches!(read(&headers(&batch), b"[]"), Ok(Disposition::Respond(reply)) if reply.status == 204));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let structured = [("content-type", "application/cloudevents+json")];
        for body in [
            "",
            "[]",
            r#"{"id":"1","source":"a","type":"t"}"#,
            r#"{"specversion":"2.0","id":"1","source":"a","type":"t"}"#,
            r#"{"specversion":"1.0","id":"","source":"a","type":"t"}"#,
            r#"{"specversion":"1.0","id":"1","type":"t"}"#,
            r#"{"specversion":"1.0","id":"1","source":"a"}"#,
            r#"{"specversion":"1.0","id":"1","id":"2","source":"a","type":"t"}"#,
            r#"{"specversion":"1.0","id":"1","source":"a","type":"t","data":1,"data_base64":"AA=="}"#,
        ] {
            assert!(matches!(read(&headers(&structured), body.as_bytes()), Err(PluginError::Malformed(_))), "{body}");
        }
        for kind in ["application/cloudevents+xml", "text/plain"] {
            let refused = read(&headers(&[("content-type", kind)]), b"");
            assert!(matches!(refused, Ok(Disposition::Reject(rejection)) if rejection.status == 415), "{kind}");
        }
        let batch = [("content-type", "application/cloudevents-batch+json")];
        assert!(read(&headers(&batch), b"{}").is_err());
        assert!(read(&headers(&[("ce-id", "%FF")]), b"").is_err());
    }
}
