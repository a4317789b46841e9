//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::{self, Node, Pointers};
use onceward_plugin::{Event, Field, PluginError};

/// What may not change under one event id. Amounts go by different names in different objects. Left out is what Stripe itself
/// changes from one attempt to the next (`pending_webhooks`, `request`) and what depends on the endpoint (`api_version`).
const MATERIAL: [&str; 20] = [
    "/type",
    "/livemode",
    "/account",
    "/data/object/id",
    "/data/object/object",
    "/data/object/amount",
    "/data/object/amount_capturable",
    "/data/object/amount_captured",
    "/data/object/amount_due",
    "/data/object/amount_paid",
    "/data/object/amount_received",
    "/data/object/amount_refunded",
    "/data/object/amount_remaining",
    "/data/object/amount_subtotal",
    "/data/object/amount_total",
    "/data/object/currency",
    "/data/object/status",
    // Thin events have no data, only these.
    "/related_object/id",
    "/related_object/type",
    "/context",
];

/// Types that happen to an object once. Others, such as `customer.subscription.updated`, repeat: an alias would lose updates.
const ONCE_ONLY: [&str; 2] = ["payment_intent.succeeded", "checkout.session.completed"];

pub(crate) fn read(body: &[u8]) -> Result<Event, PluginError> {
    let mut pointers = vec!["/id"];
    pointers.extend(MATERIAL);
    let found = json::find_all(body, &Pointers::new(&pointers))?;
    let text = |pointer: &str| {
        let place = pointers.iter().position(|known| *known == pointer)?;
        found.get(place)?.as_ref()?.text().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let id = text("/id").ok_or_else(|| PluginError::Malformed("the event has no id".to_owned()))?;
    let event_type = text("/type").ok_or_else(|| PluginError::Malformed("the event has no type".to_owned()))?;
    let object_id = text("/data/object/id").or_else(|| text("/related_object/id"));
    let aliases = match &object_id {
        Some(object) if ONCE_ONLY.contains(&event_type.as_str()) => vec![vec![event_type.clone(), object.clone()]],
        _ => Vec::new(),
    };
    let material = pointers.iter().zip(&found).skip(1).filter_map(|(pointer, node)| field(pointer, node.as_ref()));
    Ok(Event {
        key: vec![id],
        aliases,
        key_signed: true,
        material: material.collect(),
        event_type: Some(event_type),
        object_id,
    })
}

/// An object or array in a scalar's place counts as absent: refusing it would lose events of object types yet to come.
fn field(pointer: &str, node: Option<&Node<'_>>) -> Option<Field> {
    node.and_then(Node::scalar).map(|value| Field::new(pointer, value))
}

#[cfg(test)]
mod tests {
    use onceward_plugin::Value;

    use super::*;

    #[test]
    fn a_snapshot_event() {
        let event = read(br#"{"id":"evt_1","type":"payment_intent.succeeded","livemode":false,"data":{"object":{"id":"pi_1","amount":1e2,"status":{}}}}"#);
        let event = event.unwrap();
        assert_eq!(event.key, ["evt_1"]);
        assert_eq!(event.aliases, [["payment_intent.succeeded", "pi_1"]]);
        assert!(event.key_signed);
        assert_eq!(
            event.material,
            [
                Field::new("/type", Value::Text("payment_intent.succeeded".to_owned())),
                Field::new("/livemode", Value::Boolean(false)),
                Field::new("/data/object/id", Value::Text("pi_1".to_owned())),
                Field::new("/data/object/amount", Value::Number("1e2".to_owned())),
            ]
        );
    }

    #[test]
    fn a_thin_event() {
        let event = read(br#"{"id":"evt_2","object":"v2.core.event","type":"v1.billing.meter.error","created":"2026-01-01T00:00:00Z","related_object":{"id":"mtr_1","type":"billing.meter","url":"/v1/x"},"snapshot_event":"evt_1"}"#);
        let event = event.unwrap();
        assert_eq!(event.key, ["evt_2"]);
        assert!(event.aliases.is_empty());
        assert_eq!(event.object_id.as_deref(), Some("mtr_1"));
        assert_eq!(event.material.len(), 3);
    }

    #[test]
    fn what_is_no_event_is_malformed() {
        for body in [
            &b""[..],
            b"{}",
            br#"{"id":""}"#,
            br#"{"id":7,"type":"a"}"#,
            br#"{"id":"evt_1"}"#,
            br#"{"id":"a","id":"b","type":"c"}"#,
        ] {
            assert!(matches!(read(body), Err(PluginError::Malformed(_))), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn an_update_has_no_alias() {
        let event = read(br#"{"id":"evt_1","type":"customer.subscription.updated","data":{"object":{"id":"sub_1"}}}"#);
        assert!(event.unwrap().aliases.is_empty());
    }
}
