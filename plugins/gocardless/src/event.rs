//! The events of a batch.

use onceward_plugin::json::{self, Fields, Node};
use onceward_plugin::{Disposition, Event, Field, PluginError, Reply};

const KIND: &str = "/resource_type";
const ACTION: &str = "/action";
const CAUSE: &str = "/details/cause";
const LINKS: &str = "/links";

/// Links that say whose account it is, and not what the event is about. A batch of 250 has no room for them.
const ACCOUNT: &str = "organisation";

/// From so many events on, what is for people is left out for room.
const HINTS_MAX: usize = 100;

pub(crate) fn read_all(body: &[u8]) -> Result<Disposition, PluginError> {
    let [events] = json::find(body, ["/events"])?;
    let Some(Node::Array(events)) = events else {
        return Err(PluginError::Malformed("there is no list of events".to_owned()));
    };
    let events = json::items(events)?;
    if events.is_empty() {
        return Ok(Disposition::Respond(Reply { status: 200, headers: Vec::new(), body: Vec::new() }));
    }
    let with_hints = events.len() <= HINTS_MAX;
    events.into_iter().map(|event| read(event, with_hints)).collect::<Result<_, _>>().map(Disposition::Process)
}

/// Events carry links and no amounts: what they link to is what they are about.
fn read(event: &str, with_hints: bool) -> Result<Event, PluginError> {
    let fields = Fields::read(event.as_bytes(), vec!["/id", KIND, ACTION, CAUSE, LINKS])?;
    let mut material = fields.material(&[KIND, ACTION, CAUSE]);
    let mut object_id = None;
    if let Some(Node::Object(links)) = fields.node(LINKS) {
        for (name, node) in json::members(links)? {
            let Some(value) = node.scalar().filter(|_| name != ACCOUNT) else { continue };
            object_id = object_id.or_else(|| node.text().map(str::to_owned));
            let pointer = json::pointer(&["links", &name]);
            if material.iter().any(|field| field.name == pointer) {
                return Err(PluginError::Malformed(format!("{pointer} is there twice")));
            }
            material.push(Field::new(pointer, value));
        }
    }
    let event_type = match (fields.text(KIND), fields.text(ACTION)) {
        (Some(kind), Some(action)) => Some(format!("{kind}.{action}")),
        _ => None,
    };
    Ok(Event {
        key: vec![fields.required("/id")?.to_owned()],
        aliases: Vec::new(),
        key_signed: true,
        material,
        event_type: event_type.filter(|_| with_hints),
        object_id: object_id.filter(|_| with_hints),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(body: &str) -> Vec<Event> {
        match read_all(body.as_bytes()) {
            Ok(Disposition::Process(events)) => events,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn links_are_material() {
        let event = r#"{"id":"EV1","resource_type":"payments","action":"failed","details":{"cause":"x","description":"y"},
            "links":{"organisation":"OR1","payment":"PM1","a/b":"c","odd":[]}}"#;
        let events = events(&format!(r#"{{"events":[{event}],"meta":{{"webhook_id":"WB1"}}}}"#));
        assert_eq!(events[0].key, ["EV1"]);
        assert_eq!(events[0].event_type.as_deref(), Some("payments.failed"));
        assert_eq!(events[0].object_id.as_deref(), Some("PM1"));
        let names: Vec<_> = events[0].material.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["/resource_type", "/action", "/details/cause", "/links/payment", "/links/a~1b"]);
    }

    #[test]
    fn the_largest_batch_keeps_the_material_of_a_small_one() {
        let one = r#"{"id":"EV1","resource_type":"refunds","action":"paid","links":{"refund":"RF1","payment":"PM1"}}"#;
        let small = events(&format!(r#"{{"events":[{one}]}}"#));
        let large = events(&format!(r#"{{"events":[{}]}}"#, vec![one; 250].join(",")));
        assert_eq!(large.len(), 250);
        assert_eq!((&large[249].key, &large[249].material), (&small[0].key, &small[0].material));
        assert_eq!(large[0].event_type, None);
    }

    #[test]
    fn an_empty_batch_is_answered_and_no_batch_is_malformed() {
        assert!(matches!(read_all(br#"{"events":[]}"#), Ok(Disposition::Respond(reply)) if reply.status == 200));
        for body in [
            "",
            "{}",
            r#"{"events":{}}"#,
            r#"{"events":[1]}"#,
            r#"{"events":[{"id":""}]}"#,
            r#"{"events":[{"id":"a","links":{"x":"1","x":"1"}}]}"#,
            r#"{"events":[{"id":"a"}],"events":[]}"#,
        ] {
            assert!(matches!(read_all(body.as_bytes()), Err(PluginError::Malformed(_))), "{body}");
        }
    }
}
