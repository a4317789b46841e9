//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::Fields;
use onceward_plugin::{Event, Header, PluginError, header};

/// The headers that name an event, in the key's order.
pub(crate) const KEY: [&str; 3] = ["x-shopify-shop-domain", "x-shopify-topic", "x-shopify-event-id"];

/// What may not change under one event. Prices are texts here: `88.00` is not `88.0`.
const MATERIAL: [&str; 10] = [
    "/id",
    "/order_id",
    "/total_price",
    "/current_total_price",
    "/amount",
    "/currency",
    "/kind",
    "/status",
    "/financial_status",
    "/fulfillment_status",
];

const OBJECT: &str = "/admin_graphql_api_id";
const UPDATED: &str = "/updated_at";

/// None when a header that names the event is missing: older subscriptions send no event id.
pub(crate) fn read(headers: &[Header], body: &[u8]) -> Result<Option<Event>, PluginError> {
    let fields = Fields::read(body, MATERIAL.into_iter().chain([OBJECT, UPDATED]).collect())?;
    let mut key = Vec::new();
    for name in KEY {
        match header::one(headers, name).map_err(|fault| fault.about(name))? {
            Some(value) if !value.is_empty() => key.push(value.to_owned()),
            _ => return Ok(None),
        }
    }
    let topic = key.get(1).cloned().unwrap_or_default();
    let object = fields.text(OBJECT).map(str::to_owned);
    // The body's time tells one change of an object from the next.
    let alias =
        object.clone().zip(fields.text(UPDATED)).map(|(object, time)| vec![topic.clone(), object, time.to_owned()]);
    Ok(Some(Event {
        key,
        aliases: alias.into_iter().collect(),
        key_signed: false,
        material: fields.material(&MATERIAL),
        event_type: Some(topic),
        object_id: object,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: [&str; 3]) -> Vec<Header> {
        let lines = KEY.iter().zip(values).filter(|(_, value)| *value != "-");
        lines.map(|(name, value)| Header { name: (*name).to_owned(), value: value.as_bytes().to_vec() }).collect()
    }

    #[test]
    fn an_event_is_shop_topic_and_id() {
        let body = br#"{"id":1,"admin_graphql_api_id":"gid://shopify/Order/1","updated_at":"2026-01-01","total_price":"8.00"}"#;
        let event = read(&headers(["a.example", "orders/paid", "e-1"]), body).unwrap().unwrap();
        assert_eq!(event.key, ["a.example", "orders/paid", "e-1"]);
        assert_eq!(event.aliases, [["orders/paid", "gid://shopify/Order/1", "2026-01-01"]]);
        assert!(!event.key_signed);
        assert_eq!(event.material.len(), 2);
    }

    #[test]
    fn without_one_of_the_headers_there_is_no_key() {
        for values in [["-", "t", "e"], ["s", "-", "e"], ["s", "t", "-"], ["s", "t", ""]] {
            assert_eq!(read(&headers(values), b"{}"), Ok(None));
        }
        let twice = [headers(["s", "t", "e"]), headers(["s", "t", "e"])].concat();
        assert!(read(&twice, b"{}").is_err());
        assert!(read(&headers(["s", "t", "e"]), b"no JSON").is_err());
    }

    #[test]
    fn an_object_without_a_time_has_no_alias() {
        let event = read(&headers(["s", "t", "e"]), br#"{"admin_graphql_api_id":"gid"}"#).unwrap().unwrap();
        assert!(event.aliases.is_empty());
    }
}
