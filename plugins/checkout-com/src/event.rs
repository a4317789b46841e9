//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::Fields;
use onceward_plugin::{Event, PluginError};

const TYPE: &str = "/type";
const OBJECT: &str = "/data/id";
const ACTION: &str = "/data/action_id";

/// Left out are the balances, which later actions change, and what tells of deliveries (`action_invocations`).
const MATERIAL: [&str; 8] =
    [TYPE, OBJECT, ACTION, "/data/amount", "/data/currency", "/data/reference", "/data/response_code", "/data/status"];

pub(crate) fn read(body: &[u8]) -> Result<Event, PluginError> {
    let fields = Fields::read(body, MATERIAL.into_iter().chain(["/id"]).collect())?;
    let event_type = fields.required(TYPE)?;
    let object = fields.text(OBJECT);
    let alias = match (object, fields.text(ACTION)) {
        (Some(object), Some(action)) => Some([event_type, object, action].map(str::to_owned).to_vec()),
        _ => None,
    };
    Ok(Event {
        key: vec![fields.required("/id")?.to_owned()],
        aliases: alias.into_iter().collect(),
        key_signed: true,
        material: fields.material(&MATERIAL),
        event_type: Some(event_type.to_owned()),
        object_id: object.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_an_alias() {
        let body = br#"{"id":"evt_1","type":"payment_captured","data":{"id":"pay_1","action_id":"act_1","amount":20,"balances":{}}}"#;
        let event = read(body).unwrap();
        assert_eq!(event.key, ["evt_1"]);
        assert_eq!(event.aliases, [["payment_captured", "pay_1", "act_1"]]);
        assert_eq!(event.material.len(), 4);
        let without = read(br#"{"id":"evt_2","type":"dispute_received","data":{"id":"dsp_1"}}"#).unwrap();
        assert!(without.aliases.is_empty());
    }

    #[test]
    fn what_is_no_event_is_malformed() {
        for body in ["", "{}", r#"{"id":"evt_1"}"#, r#"{"type":"a"}"#, r#"{"id":"a","id":"a","type":"b"}"#] {
            assert!(matches!(read(body.as_bytes()), Err(PluginError::Malformed(_))), "{body}");
        }
    }
}
