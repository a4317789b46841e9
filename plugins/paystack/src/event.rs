//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::{Fields, Node};
use onceward_plugin::{Event, PluginError};

const TYPE: &str = "/event";
const ID: &str = "/data/id";
const REFERENCE: &str = "/data/reference";

/// What may not change under one key.
const MATERIAL: [&str; 6] =
    [REFERENCE, "/data/domain", "/data/status", "/data/amount", "/data/currency", "/data/customer/customer_code"];

/// Types that happen once to a payment of one reference.
const ONCE_ONLY: [&str; 2] = ["charge.success", "transfer.success"];

/// None for an event whose object has no id.
pub(crate) fn read(body: &[u8]) -> Result<Option<Event>, PluginError> {
    let fields = Fields::read(body, [TYPE, ID].into_iter().chain(MATERIAL).collect())?;
    let event_type = fields.required(TYPE)?;
    let Some(id) = fields.node(ID).and_then(Node::part) else { return Ok(None) };
    let reference = fields.text(REFERENCE).filter(|_| ONCE_ONLY.contains(&event_type));
    Ok(Some(Event {
        key: vec![event_type.to_owned(), id.clone()],
        aliases: reference.map(|reference| vec![event_type.to_owned(), reference.to_owned()]).into_iter().collect(),
        key_signed: true,
        material: fields.material(&MATERIAL),
        event_type: Some(event_type.to_owned()),
        object_id: Some(id),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_exact() {
        let key = |id: &str| {
            let body = format!(r#"{{"event":"charge.success","data":{{"id":{id},"reference":"r-1"}}}}"#);
            read(body.as_bytes()).unwrap().map(|event| event.key)
        };
        assert_eq!(key("9007199254740993"), Some(vec!["charge.success".to_owned(), "9007199254740993".to_owned()]));
        assert_ne!(key("18446744073709551615"), key("18446744073709551614"));
        assert_eq!(key("null"), None);
    }

    #[test]
    fn only_what_happens_once_has_an_alias() {
        let aliases = |event: &str| {
            let body = format!(r#"{{"event":"{event}","data":{{"id":1,"reference":"r-1"}}}}"#);
            read(body.as_bytes()).unwrap().unwrap().aliases
        };
        assert_eq!(aliases("charge.success"), [["charge.success", "r-1"]]);
        assert!(aliases("charge.dispute.remind").is_empty());
    }

    #[test]
    fn what_is_no_event_is_malformed() {
        for body in ["", "[]", "{}", r#"{"event":1}"#, r#"{"event":"a","event":"b"}"#] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
