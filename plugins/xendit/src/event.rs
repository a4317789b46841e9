//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::Fields;
use onceward_plugin::{Event, PluginError};

const TYPE: &str = "/event";
const OBJECT: &str = "/data/id";
const STATUS: &str = "/data/status";

/// Events of newer products have their object in `data`, those of older ones (invoices, virtual accounts) are the object.
const MATERIAL: [&str; 15] = [
    TYPE,
    "/business_id",
    OBJECT,
    STATUS,
    "/data/reference_id",
    "/data/amount",
    "/data/charge_amount",
    "/data/capture_amount",
    "/data/currency",
    "/id",
    "/external_id",
    "/status",
    "/amount",
    "/paid_amount",
    "/currency",
];

pub(crate) fn read(id: &str, body: &[u8]) -> Result<Event, PluginError> {
    let fields = Fields::read(body, MATERIAL.to_vec())?;
    let (event_type, object, status) = (fields.text(TYPE), fields.text(OBJECT), fields.text(STATUS));
    let alias = match (event_type, object, status) {
        (Some(event_type), Some(object), Some(status)) => {
            Some([event_type, object, status].map(str::to_owned).to_vec())
        }
        _ => None,
    };
    Ok(Event {
        key: vec![id.to_owned()],
        aliases: alias.into_iter().collect(),
        key_signed: false,
        material: fields.material(&MATERIAL),
        event_type: event_type.map(str::to_owned),
        object_id: object.or_else(|| fields.text("/id")).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_have_material() {
        let body = br#"{"event":"payment.succeeded","business_id":"b","data":{"id":"py_1","status":"SUCCEEDED","amount":1000}}"#;
        let event = read("wh_1", body).unwrap();
        assert_eq!(event.key, ["wh_1"]);
        assert!(!event.key_signed);
        assert_eq!(event.aliases, [["payment.succeeded", "py_1", "SUCCEEDED"]]);
        assert_eq!(event.material.len(), 5);

        let invoice = read("wh_2", br#"{"id":"inv_1","external_id":"o-1","status":"PAID","amount":1000}"#).unwrap();
        assert!(invoice.aliases.is_empty());
        assert_eq!(invoice.object_id.as_deref(), Some("inv_1"));
        assert_eq!(invoice.material.len(), 4);
        assert!(matches!(read("wh_3", b"no json"), Err(PluginError::Malformed(_))));
    }
}
