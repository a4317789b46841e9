//! A delivery as an event.

use std::borrow::Cow;

use onceward_plugin::json::Fields;
use onceward_plugin::{Disposition, Event, Header, PluginError, Reply, form, header};

/// The delivery's id.
pub(crate) const DELIVERY: &str = "x-github-delivery";
/// The event's type.
pub(crate) const EVENT: &str = "x-github-event";

const ACTION: &str = "/action";
const REPOSITORY: &str = "/repository/full_name";
/// What only a ping has.
const PING: [&str; 2] = ["/zen", "/hook_id"];

pub(crate) fn read(headers: &[Header], body: &[u8]) -> Result<Disposition, PluginError> {
    let one = |name| header::one(headers, name).map_err(|fault| fault.about(name));
    let payload = match one("content-type")? {
        Some(kind) if kind.starts_with("application/x-www-form-urlencoded") => {
            let [payload] = form::find(body, ["payload"])?;
            payload.ok_or_else(|| PluginError::Malformed("the form has no field payload".to_owned()))?
        }
        _ => String::from_utf8_lossy(body),
    };
    let fields = Fields::read(payload.as_bytes(), [ACTION, REPOSITORY].into_iter().chain(PING).collect())?;
    let kind = one(EVENT)?;
    // The header is not signed: by itself it must not make an event disappear.
    if kind == Some("ping") && PING.iter().all(|pointer| fields.node(pointer).is_some()) {
        return Ok(Disposition::Respond(Reply { status: 200, headers: Vec::new(), body: Vec::new() }));
    }
    let Some(delivery) = one(DELIVERY)?.filter(|id| !id.is_empty()) else {
        return Ok(Disposition::Process(Vec::new()));
    };
    let event_type = kind.map(|kind| match fields.text(ACTION) {
        Some(action) => Cow::Owned(format!("{kind}.{action}")),
        None => Cow::Borrowed(kind),
    });
    Ok(Disposition::Process(vec![Event {
        key: vec![delivery.to_owned()],
        aliases: Vec::new(),
        key_signed: false,
        material: Vec::new(),
        event_type: event_type.map(Cow::into_owned),
        object_id: fields.text(REPOSITORY).map(str::to_owned),
    }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> Vec<Header> {
        lines
            .iter()
            .map(|(name, value)| Header { name: (*name).to_owned(), value: value.as_bytes().to_vec() })
            .collect()
    }

    fn event(lines: &[(&str, &str)], body: &[u8]) -> Option<Event> {
        match read(&headers(lines), body) {
            Ok(Disposition::Process(mut events)) => events.pop(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_payload_may_be_a_field_of_a_form() {
        let json = [(DELIVERY, "d-1"), (EVENT, "issues"), ("content-type", "application/json")];
        let form = [(DELIVERY, "d-1"), (EVENT, "issues"), ("content-type", "application/x-www-form-urlencoded")];
        let one = event(&json, br#"{"action":"opened","repository":{"full_name":"a/b"}}"#).unwrap();
        let two = event(
            &form,
            b"payload=%7B%22action%22%3A%22opened%22%2C%22repository%22%3A%7B%22full_name%22%3A%22a%2Fb%22%7D%7D",
        );
        assert_eq!(one.event_type.as_deref(), Some("issues.opened"));
        assert_eq!(one.object_id.as_deref(), Some("a/b"));
        assert_eq!(Some(one), two);
        assert!(read(&headers(&form), b"other=1").is_err());
    }

    #[test]
    fn a_ping_is_one_by_its_body_too() {
        let lines = [(DELIVERY, "d-1"), (EVENT, "ping")];
        assert!(matches!(read(&headers(&lines), br#"{"zen":"x","hook_id":1}"#), Ok(Disposition::Respond(_))));
        assert!(event(&lines, br#"{"ref":"main"}"#).is_some());
        assert!(event(&[(EVENT, "push")], br#"{"zen":"x","hook_id":1}"#).is_none());
        assert!(read(&headers(&lines), b"\xff").is_err());
    }
}
