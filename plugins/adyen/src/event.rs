//! The items as events.

use onceward_plugin::{Event, PluginError};

use crate::item::{self, Item};

/// Signed, and the same in every notification of one event. All else of an item is not signed, and some of it changes.
const MATERIAL: [&str; 4] = ["/amount/value", "/amount/currency", "/merchantReference", "/originalReference"];

pub(crate) fn read_all(body: &[u8]) -> Result<Vec<Event>, PluginError> {
    item::split(body).map_err(PluginError::Malformed)?.into_iter().map(read).collect()
}

fn read(item: &str) -> Result<Event, PluginError> {
    let item = Item::read(item).map_err(|(_, detail)| PluginError::Malformed(detail))?;
    let fields = &item.fields;
    let account = fields.required("/merchantAccountCode")?;
    let event_code = fields.required("/eventCode")?;
    let reference = fields.required("/pspReference")?;
    let success = fields.node("/success").and_then(|node| node.plain());
    let success = success.ok_or_else(|| PluginError::Malformed("an item does not say its success".to_owned()))?;
    Ok(Event {
        key: [account, event_code, reference, success].map(str::to_owned).to_vec(),
        aliases: Vec::new(),
        key_signed: true,
        material: fields.material(&MATERIAL),
        event_type: Some(event_code.to_owned()),
        object_id: Some(reference.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use onceward_plugin::{Field, Value};

    use super::*;

    #[test]
    fn an_item_is_an_event() {
        let body = br#"{"live":"false","notificationItems":[{"NotificationRequestItem":{"amount":{"value":4200,"currency":"EUR"},
            "eventCode":"AUTHORISATION","merchantAccountCode":"Shop","pspReference":"P1","success":"true","reason":"x"}}]}"#;
        let events = read_all(body).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].key, ["Shop", "AUTHORISATION", "P1", "true"]);
        assert_eq!(
            events[0].material,
            [
                Field::new("/amount/value", Value::Number("4200".to_owned())),
                Field::new("/amount/currency", Value::Text("EUR".to_owned())),
            ]
        );
    }

    #[test]
    fn one_item_without_identity_spoils_the_batch() {
        let good = r#"{"NotificationRequestItem":{"eventCode":"A","merchantAccountCode":"S","pspReference":"P","success":"true"}}"#;
        assert!(read_all(format!(r#"{{"notificationItems":[{good}]}}"#).as_bytes()).is_ok());
        for missing in ["eventCode", "merchantAccountCode", "pspReference", "success"] {
            let bad = good.replace(missing, "other");
            let body = format!(r#"{{"notificationItems":[{good},{bad}]}}"#);
            assert!(matches!(read_all(body.as_bytes()), Err(PluginError::Malformed(_))), "{missing}");
        }
    }
}
