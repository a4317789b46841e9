//! What Slack sent: an event, a challenge, a command or an interaction.

use onceward_plugin::json::Fields;
use onceward_plugin::{Disposition, Event, Field, Header, PluginError, Reply, Value, form, header};

const TYPE: &str = "/type";
const CHALLENGE: &str = "/challenge";
const EVENT_ID: &str = "/event_id";
const EVENT_TYPE: &str = "/event/type";
const TRIGGER: &str = "/trigger_id";

/// What may not change under one event id. Left out is the verification token, which can be changed in the app's settings.
const MATERIAL: [&str; 10] = [
    "/team_id",
    "/api_app_id",
    TYPE,
    "/event_time",
    EVENT_TYPE,
    "/event/subtype",
    "/event/user",
    "/event/channel",
    "/event/ts",
    "/event/text",
];

/// What may not change under one interaction's trigger.
const INTERACTION: [&str; 6] =
    ["/team/id", "/api_app_id", "/user/id", "/callback_id", "/actions/0/action_id", "/actions/0/value"];

/// What may not change under one command's trigger.
const COMMAND: [&str; 6] = ["team_id", "api_app_id", "user_id", "channel_id", "command", "text"];

pub(crate) fn read(headers: &[Header], body: &[u8]) -> Result<Disposition, PluginError> {
    let kind = header::one(headers, "content-type").map_err(|fault| fault.about("content-type"))?;
    if !kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
        return from_json(body);
    }
    let [payload] = form::find(body, ["payload"])?;
    let event = match payload {
        Some(payload) => interaction(payload.as_bytes())?,
        None => command(body)?,
    };
    Ok(Disposition::Process(event.into_iter().collect()))
}

fn from_json(body: &[u8]) -> Result<Disposition, PluginError> {
    let fields = Fields::read(body, [CHALLENGE, EVENT_ID].into_iter().chain(MATERIAL).collect())?;
    if fields.text(TYPE) == Some("url_verification") {
        let challenge = fields.required(CHALLENGE)?;
        let content_type = Header { name: "content-type".to_owned(), value: b"text/plain".to_vec() };
        return Ok(Disposition::Respond(Reply {
            status: 200,
            headers: vec![content_type],
            body: challenge.as_bytes().to_vec(),
        }));
    }
    let Some(id) = fields.text(EVENT_ID) else { return Ok(Disposition::Process(Vec::new())) };
    let event_type = fields.text(EVENT_TYPE).or_else(|| fields.text(TYPE)).map(str::to_owned);
    Ok(Disposition::Process(vec![Event {
        key: vec![id.to_owned()],
        aliases: Vec::new(),
        key_signed: true,
        material: fields.material(&MATERIAL),
        event_type,
        object_id: fields.text("/event/channel").map(str::to_owned),
    }]))
}

fn interaction(payload: &[u8]) -> Result<Option<Event>, PluginError> {
    let fields = Fields::read(payload, [TYPE, TRIGGER].into_iter().chain(INTERACTION).collect())?;
    let kind = fields.required(TYPE)?;
    Ok(fields.text(TRIGGER).map(|trigger| by_trigger(kind, trigger, fields.material(&INTERACTION))))
}

fn command(body: &[u8]) -> Result<Option<Event>, PluginError> {
    let [trigger] = form::find(body, ["trigger_id"])?;
    let values = form::find(body, COMMAND)?;
    let material = COMMAND.iter().zip(values);
    let material = material.filter_map(|(name, value)| Some(Field::new(*name, Value::Text(value?.into_owned()))));
    Ok(trigger.filter(|trigger| !trigger.is_empty()).map(|trigger| by_trigger("command", &trigger, material.collect())))
}

fn by_trigger(kind: &str, trigger: &str, material: Vec<Field>) -> Event {
    Event {
        key: vec![kind.to_owned(), trigger.to_owned()],
        aliases: Vec::new(),
        key_signed: true,
        material,
        event_type: Some(kind.to_owned()),
        object_id: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_type() -> Vec<Header> {
        vec![Header { name: "content-type".to_owned(), value: b"application/x-www-form-urlencoded".to_vec() }]
    }

    fn key(headers: &[Header], body: &[u8]) -> Vec<String> {
        match read(headers, body) {
            Ok(Disposition::Process(events)) => events.into_iter().flat_map(|event| event.key).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_has_its_key() {
        assert_eq!(key(&[], br#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#), ["Ev1"]);
        assert_eq!(key(&[], br#"{"type":"app_rate_limited"}"#), [""; 0]);
        assert_eq!(key(&form_type(), b"command=%2Fpay&trigger_id=1.2&text=x"), ["command", "1.2"]);
        let interaction = b"payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%223.4%22%7D";
        assert_eq!(key(&form_type(), interaction), ["block_actions", "3.4"]);
    }

    #[test]
    fn a_challenge_comes_back() {
        let reply = read(&[], br#"{"type":"url_verification","challenge":"abc"}"#);
        assert!(matches!(reply, Ok(Disposition::Respond(reply)) if reply.status == 200 && reply.body == b"abc"));
        assert!(read(&[], br#"{"type":"url_verification"}"#).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        assert!(read(&[], b"").is_err());
        assert!(read(&form_type(), b"payload=x").is_err());
        assert!(read(&form_type(), b"trigger_id=1&trigger_id=2").is_err());
    }
}
