//! What the gateway takes back from a plugin. A sender that makes a plugin exceed it would make the plugin look broken, so
//! [`export_plugin!`](crate::export_plugin) calls such a request malformed instead.

use crate::{Disposition, Event, PluginError, Value};

/// Events of a request.
pub const EVENTS_MAX: usize = 1000;
/// Bytes of all parts of a key, or of an alias.
pub const KEY_BYTES_MAX: usize = 512;
/// Parts of a key.
pub const KEY_PARTS_MAX: usize = 16;
/// Aliases of an event.
pub const ALIASES_MAX: usize = 16;
/// Material fields of an event.
pub const MATERIAL_MAX: usize = 64;
/// Bytes of a material field's name.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of all events, counted as the gateway counts them; a little less than it takes, since it counts the verdict's too.
const EVENTS_BYTES_MAX: usize = 63 << 10;
/// What a list, a text or what is absent costs beside its bytes.
const ITEM_BYTES: usize = 4;

/// Whether what the disposition holds of the sender's is too much.
pub(crate) fn check(disposition: &Disposition) -> Result<(), PluginError> {
    let Disposition::Process(events) = disposition else { return Ok(()) };
    if events.len() > EVENTS_MAX {
        return Err(PluginError::Malformed("more than 1,000 events".to_owned()));
    }
    let mut names = events.iter().flat_map(|event| event.aliases.iter().chain([&event.key]));
    if names.any(|parts| parts.iter().map(String::len).sum::<usize>() > KEY_BYTES_MAX) {
        return Err(PluginError::Malformed("a key is longer than 512 bytes".to_owned()));
    }
    if events.iter().map(bytes).sum::<usize>() > EVENTS_BYTES_MAX {
        return Err(PluginError::Malformed("keys and material are longer than 63 KiB in all".to_owned()));
    }
    Ok(())
}

fn bytes(event: &Event) -> usize {
    let key = |parts: &[String]| ITEM_BYTES + parts.iter().map(|part| ITEM_BYTES + part.len()).sum::<usize>();
    let names = key(&event.key) + ITEM_BYTES + event.aliases.iter().map(|alias| key(alias)).sum::<usize>();
    let fields = event.material.iter().map(|field| {
        let value = match &field.value {
            Value::Text(text) | Value::Number(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Boolean(_) | Value::Null => 0,
        };
        2 * ITEM_BYTES + field.name.len() + value
    });
    let hints = [&event.event_type, &event.object_id].map(|hint| ITEM_BYTES + hint.as_ref().map_or(0, String::len));
    names + ITEM_BYTES + fields.sum::<usize>() + hints.iter().sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

    fn event(key: usize, material: usize) -> Event {
        let text = |length| "x".repeat(length);
        Event {
            key: vec![text(key)],
            aliases: Vec::new(),
            key_signed: true,
            material: vec![Field::new("/a", Value::Text(text(material)))],
            event_type: None,
            object_id: None,
        }
    }

    #[test]
    fn too_much_is_the_senders_fault() {
        assert!(check(&Disposition::Process(vec![event(512, 1000)])).is_ok());
        let alias = Event { aliases: vec![vec!["x".repeat(513)]], ..event(1, 1) };
        for events in
            [vec![event(513, 1)], vec![alias], vec![event(1, 64_512)], vec![event(1, 1); 1001], vec![event(9, 60); 640]]
        {
            assert!(matches!(check(&Disposition::Process(events)), Err(PluginError::Malformed(_))));
        }
    }
}
