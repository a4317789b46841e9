//! The message as an event.

use crate::json::{self, Pointers};
use crate::{Event, Field, PluginError};

/// For people, when the body is JSON of the usual shape.
const TYPE: &str = "/type";
const OBJECT: &str = "/data/id";

pub(super) fn read(id: &str, body: &[u8], material: &[String]) -> Result<Event, PluginError> {
    let mut pointers = vec![TYPE, OBJECT];
    pointers.extend(material.iter().map(String::as_str));
    let found = match json::find_all(body, &Pointers::new(&pointers)) {
        Ok(found) => found,
        // With the whole body as material nothing needs to be found in it.
        Err(_) if material.is_empty() => Vec::new(),
        Err(malformed) => return Err(malformed.into()),
    };
    let mut nodes = found.into_iter();
    let mut text = || nodes.next().flatten().and_then(|node| node.text().map(str::to_owned));
    let (event_type, object_id) = (text(), text());
    let mut fields = Vec::new();
    for (pointer, node) in material.iter().zip(nodes) {
        let Some(node) = node else { continue };
        let value = node.scalar().ok_or_else(|| {
            PluginError::Malformed(format!("{pointer} is an object or an array, where a single value is wanted"))
        })?;
        fields.push(Field::new(pointer, value));
    }
    Ok(Event {
        key: vec![id.to_owned()],
        aliases: Vec::new(),
        key_signed: true,
        material: fields,
        event_type,
        object_id,
    })
}

#[cfg(test)]
mod tests {
    use crate::Value;

    use super::*;

    const BODY: &[u8] = br#"{"type":"invoice.paid","data":{"id":"inv_1","amount":"19.90","lines":[]}}"#;

    #[test]
    fn without_material_any_body_will_do() {
        let event = read("msg_1", BODY, &[]).unwrap();
        assert_eq!(event.key, ["msg_1"]);
        assert!(event.material.is_empty());
        assert_eq!(event.event_type.as_deref(), Some("invoice.paid"));
        assert_eq!(event.object_id.as_deref(), Some("inv_1"));
        assert_eq!(read("msg_1", b"\xff", &[]).map(|event| event.key), Ok(vec!["msg_1".to_owned()]));
    }

    #[test]
    fn material_is_what_the_route_names() {
        let names = ["/data/amount", "/data/none"].map(str::to_owned);
        let event = read("msg_1", BODY, &names).unwrap();
        assert_eq!(event.material, [Field::new("/data/amount", Value::Text("19.90".to_owned()))]);
        assert!(read("msg_1", BODY, &["/data/lines".to_owned()]).is_err());
        assert!(read("msg_1", b"\xff", &names).is_err());
    }
}
