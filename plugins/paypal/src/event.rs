//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::Fields;
use onceward_plugin::{Event, PluginError};

const ID: &str = "/id";
const TYPE: &str = "/event_type";
const RESOURCE: &str = "/resource/id";

/// What may not change under one event id; states and amounts go by two names. Left out is PayPal's prose, `summary`.
const MATERIAL: [&str; 8] = [
    TYPE,
    RESOURCE,
    "/resource/status",
    "/resource/state",
    "/resource/amount/value",
    "/resource/amount/total",
    "/resource/amount/currency_code",
    "/resource/amount/currency",
];

/// Types that happen to a resource once.
const ONCE_ONLY: [&str; 6] = [
    "PAYMENT.CAPTURE.COMPLETED",
    "PAYMENT.CAPTURE.DENIED",
    "PAYMENT.CAPTURE.REFUNDED",
    "PAYMENT.SALE.COMPLETED",
    "CHECKOUT.ORDER.APPROVED",
    "CHECKOUT.ORDER.COMPLETED",
];

pub(crate) fn read(body: &[u8]) -> Result<Event, PluginError> {
    let fields = Fields::read(body, [ID].into_iter().chain(MATERIAL).collect())?;
    let id = fields.required(ID)?.to_owned();
    let event_type = fields.required(TYPE)?.to_owned();
    let resource = fields.text(RESOURCE).map(str::to_owned);
    let aliases = match &resource {
        Some(resource) if ONCE_ONLY.contains(&event_type.as_str()) => vec![vec![event_type.clone(), resource.clone()]],
        _ => Vec::new(),
    };
    Ok(Event {
        key: vec![id],
        aliases,
        key_signed: true,
        material: fields.material(&MATERIAL),
        event_type: Some(event_type),
        object_id: resource,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_id() {
        let event = read(br#"{"id":"WH-1","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"C1","amount":{"value":"1.00"}}}"#);
        let event = event.unwrap();
        assert_eq!(event.key, ["WH-1"]);
        assert_eq!(event.aliases, [["PAYMENT.CAPTURE.COMPLETED", "C1"]]);
        assert_eq!(event.material.len(), 3);
        let update = read(br#"{"id":"WH-2","event_type":"BILLING.SUBSCRIPTION.UPDATED","resource":{"id":"I-1"}}"#);
        assert!(update.unwrap().aliases.is_empty());
    }

    #[test]
    fn what_is_no_event_is_malformed() {
        for body in ["", "{}", r#"{"id":"a"}"#, r#"{"id":1,"event_type":"a"}"#] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
