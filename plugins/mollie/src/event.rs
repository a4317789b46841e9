//! A signed event, with the object embedded or without it.

use onceward_plugin::json::Fields;
use onceward_plugin::{Event, PluginError};

const TYPE: &str = "/type";
const OBJECT: &str = "/entityId";

const MATERIAL: [&str; 5] =
    [TYPE, OBJECT, "/_embedded/entity/status", "/_embedded/entity/amount/value", "/_embedded/entity/amount/currency"];

pub(crate) fn read(body: &[u8]) -> Result<Event, PluginError> {
    let fields = Fields::read(body, MATERIAL.into_iter().chain(["/id"]).collect())?;
    Ok(Event {
        key: vec![fields.required("/id")?.to_owned()],
        aliases: Vec::new(),
        key_signed: true,
        material: fields.material(&MATERIAL),
        event_type: Some(fields.required(TYPE)?.to_owned()),
        object_id: fields.text(OBJECT).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simple_payload_has_less_material() {
        let event = read(br#"{"resource":"event","id":"event_1","type":"payment.paid","entityId":"tr_1"}"#).unwrap();
        assert_eq!(event.key, ["event_1"]);
        assert_eq!(event.object_id.as_deref(), Some("tr_1"));
        assert_eq!(event.material.len(), 2);
    }

    #[test]
    fn what_is_no_event_is_malformed() {
        for body in ["id=tr_1", "{}", r#"{"id":"event_1"}"#, r#"{"type":"payment.paid"}"#, r#"{"id":1,"type":"a"}"#] {
            assert!(matches!(read(body.as_bytes()), Err(PluginError::Malformed(_))), "{body}");
        }
    }
}
