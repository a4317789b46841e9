//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::{Fields, Node};
use onceward_plugin::{Event, PluginError};

/// The type, by its names in v4 and in v3.
const TYPES: [&str; 2] = ["/type", "/event"];
const ID: &str = "/data/id";
const STATUS: &str = "/data/status";

/// What may not change under one key: references and amounts, by their names in v3 and v4.
const MATERIAL: [&str; 6] =
    ["/data/tx_ref", "/data/flw_ref", "/data/reference", "/data/amount", "/data/charged_amount", "/data/currency"];

/// None for an event without transaction id or status. `id` and `webhook_id` beside `data` name the webhook, not the event.
pub(crate) fn read(body: &[u8]) -> Result<Option<Event>, PluginError> {
    let fields = Fields::read(body, TYPES.into_iter().chain([ID, STATUS]).chain(MATERIAL).collect())?;
    let event_type = TYPES.iter().find_map(|pointer| fields.text(pointer));
    let event_type = event_type.ok_or_else(|| PluginError::Malformed("the event has no type".to_owned()))?;
    let Some((id, status)) = fields.node(ID).and_then(Node::part).zip(fields.text(STATUS)) else { return Ok(None) };
    Ok(Some(Event {
        key: vec![event_type.to_owned(), id.clone(), status.to_owned()],
        aliases: Vec::new(),
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
    fn both_versions_are_read() {
        let v3 = read(br#"{"event":"charge.completed","data":{"id":285959875,"tx_ref":"r","amount":100.50,"status":"successful"}}"#);
        assert_eq!(v3.unwrap().unwrap().key, ["charge.completed", "285959875", "successful"]);
        let v4 = read(br#"{"webhook_id":"wbk_1","type":"charge.completed","data":{"id":"chg_1","amount":1,"status":"succeeded"}}"#);
        assert_eq!(v4.unwrap().unwrap().key, ["charge.completed", "chg_1", "succeeded"]);
    }

    #[test]
    fn what_has_no_transaction_has_no_key() {
        assert_eq!(read(br#"{"type":"a","data":{"id":"chg_1"}}"#), Ok(None));
        assert_eq!(read(br#"{"type":"a","data":{"status":"succeeded"}}"#), Ok(None));
        assert!(read(b"{}").is_err());
    }
}
