//! What an event is called, and what must be equal for two deliveries of it.

use onceward_plugin::json::{self, Fields};
use onceward_plugin::limits::NAME_BYTES_MAX;
use onceward_plugin::{Event, PluginError};

const TYPE: &str = "/type";
const OBJECT: &str = "/data/id";

/// Of the object that changed, under its own name in `data.object`. Other kinds than payments have some of them too.
const OF_OBJECT: [&[&str]; 4] = [&["status"], &["amount_money", "amount"], &["amount_money", "currency"], &["version"]];

pub(crate) fn read(body: &[u8]) -> Result<Event, PluginError> {
    // What kind of object it is stands in `data.type`; the event's own type has other words.
    let [kind] = json::find(body, ["/data/type"])?;
    let kind = kind.as_ref().and_then(json::Node::text).unwrap_or_default();
    let of_object = OF_OBJECT.map(|names| json::pointer(&[&["data", "object", kind], names].concat()));
    let mut material = vec!["/merchant_id", TYPE, OBJECT];
    material.extend(of_object.iter().filter(|pointer| pointer.len() <= NAME_BYTES_MAX).map(String::as_str));
    let fields = Fields::read(body, [&material[..], &["/event_id"]].concat())?;
    Ok(Event {
        key: vec![fields.required("/event_id")?.to_owned()],
        aliases: Vec::new(),
        key_signed: true,
        material: fields.material(&material),
        event_type: Some(fields.required(TYPE)?.to_owned()),
        object_id: fields.text(OBJECT).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(body: &str) -> Vec<String> {
        read(body.as_bytes()).unwrap().material.into_iter().map(|field| field.name).collect()
    }

    #[test]
    fn the_object_is_looked_up_by_its_kind() {
        let event = |kind: &str, name: &str| {
            format!(
                r#"{{"event_id":"e","type":"refund.updated","data":{{"type":"{kind}","id":"R1","object":{{"{name}":{{"status":"PENDING","version":2,"amount_money":{{"amount":5}}}}}}}}}}"#
            )
        };
        assert_eq!(
            names(&event("refund", "refund")),
            [
                "/type",
                "/data/id",
                "/data/object/refund/status",
                "/data/object/refund/amount_money/amount",
                "/data/object/refund/version"
            ]
        );
        assert_eq!(names(&event("a/b", "a/b"))[2], "/data/object/a~1b/status");
        assert_eq!(names(&event("refund", "payment")).len(), 2);
        let long = "x".repeat(300);
        assert_eq!(names(&event(&long, &long)).len(), 2);
    }

    #[test]
    fn what_is_no_event_is_malformed() {
        for body in ["", "{}", r#"{"event_id":"e"}"#, r#"{"type":"a"}"#, r#"{"event_id":"e","type":"a","type":"b"}"#] {
            assert!(matches!(read(body.as_bytes()), Err(PluginError::Malformed(_))), "{body}");
        }
    }
}
