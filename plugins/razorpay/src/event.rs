//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::{self, Fields, Node};
use onceward_plugin::limits::NAME_BYTES_MAX;
use onceward_plugin::{Event, PluginError};

const ACCOUNT: &str = "/account_id";
const TYPE: &str = "/event";
const CREATED: &str = "/created_at";

/// Of the first entity. `fee` and `tax` are left out: they may be null at first and set in a later attempt.
const OF_ENTITY: [&str; 4] = ["id", "amount", "currency", "status"];

pub(crate) fn read(id: &str, body: &[u8]) -> Result<Event, PluginError> {
    // The entity that the event is about is the first of those it contains.
    let [kind] = json::find(body, ["/contains/0"])?;
    let kind = kind.as_ref().and_then(Node::text).unwrap_or_default();
    let of_entity = OF_ENTITY.map(|name| json::pointer(&["payload", kind, "entity", name]));
    let mut material = vec![ACCOUNT, TYPE];
    material.extend(of_entity.iter().filter(|pointer| pointer.len() <= NAME_BYTES_MAX).map(String::as_str));
    let fields = Fields::read(body, [&material[..], &[CREATED]].concat())?;
    let event_type = fields.required(TYPE)?;
    let [object, ..] = &of_entity;
    let object_id = fields.text(object);
    let created = fields.node(CREATED).and_then(Node::part);
    let alias = match (fields.text(ACCOUNT), object_id, created) {
        (Some(account), Some(object), Some(created)) => {
            Some(vec![account.to_owned(), event_type.to_owned(), object.to_owned(), created])
        }
        _ => None,
    };
    Ok(Event {
        key: vec![id.to_owned()],
        aliases: alias.into_iter().collect(),
        key_signed: false,
        material: fields.material(&material),
        event_type: Some(event_type.to_owned()),
        object_id: object_id.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"account_id":"acc_1","event":"payment.captured","contains":["payment","order"],"created_at":17e1,
        "payload":{"order":{"entity":{"id":"order_1"}},"payment":{"entity":{"id":"pay_1","amount":100,"fee":null}}}}"#;

    #[test]
    fn the_first_entity_counts() {
        let event = read("ev_1", BODY.as_bytes()).unwrap();
        assert_eq!(event.key, ["ev_1"]);
        assert!(!event.key_signed);
        assert_eq!(event.aliases, [["acc_1", "payment.captured", "pay_1", "170"]]);
        let names: Vec<_> = event.material.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["/account_id", "/event", "/payload/payment/entity/id", "/payload/payment/entity/amount"]);
    }

    #[test]
    fn an_alias_needs_all_its_parts() {
        for part in ["account_id", "created_at", "contains", "\"id\""] {
            let body = BODY.replace(part, if part == "\"id\"" { "\"x\"" } else { "x" });
            assert!(read("ev_1", body.as_bytes()).unwrap().aliases.is_empty(), "{part}");
        }
        assert!(read("ev_1", BODY.replace("\"event\"", "\"x\"").as_bytes()).is_err());
        assert!(read("ev_1", b"{").is_err());
    }
}
