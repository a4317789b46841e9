//! What a request is called, and what must be equal for two deliveries of it.

use onceward_plugin::{Event, Field, Header, PluginError, Value, form, header};

/// The same for all attempts of one request; not signed.
pub(crate) const TOKEN: &str = "i-twilio-idempotency-token";

const MESSAGE: [&str; 2] = ["MessageSid", "SmsSid"];
const MESSAGE_STATUS: [&str; 2] = ["MessageStatus", "SmsStatus"];
/// A call's progress. Without a number, requests of one call and status are not told apart.
const CALL: [&str; 3] = ["CallSid", "CallStatus", "SequenceNumber"];

/// What may not change under one key.
const MATERIAL: [&str; 10] = [
    "AccountSid",
    "From",
    "To",
    "Body",
    "NumMedia",
    "MediaUrl0",
    "MessageStatus",
    "ErrorCode",
    "CallDuration",
    "RecordingSid",
];

/// None for a request that nothing names.
pub(crate) fn read(headers: &[Header], body: &[u8]) -> Result<Option<Event>, PluginError> {
    let token = header::one(headers, TOKEN).map_err(|fault| fault.about(TOKEN))?.filter(|token| !token.is_empty());
    let [sid, sms_sid] = form::find(body, MESSAGE)?;
    let [status, sms_status] = form::find(body, MESSAGE_STATUS)?;
    let call = form::find(body, CALL)?;
    let material = MATERIAL.iter().zip(form::find(body, MATERIAL)?);
    let material = material.filter_map(|(name, value)| Some(Field::new(*name, Value::Text(value?.into_owned()))));

    let (key, event_type) = match (sid.or(sms_sid), status.or(sms_status), call) {
        (Some(sid), Some(status), _) => (vec![sid.into_owned(), status.to_string()], Some(format!("message.{status}"))),
        (_, _, [Some(sid), Some(status), Some(number)]) => {
            (vec![sid.into_owned(), status.to_string(), number.into_owned()], Some(format!("call.{status}")))
        }
        _ => match token {
            Some(token) => (vec!["token".to_owned(), token.to_owned()], None),
            None => return Ok(None),
        },
    };
    let key_signed = event_type.is_some();
    let object_id = key.first().filter(|_| key_signed).cloned();
    Ok(Some(Event { key, aliases: Vec::new(), key_signed, material: material.collect(), event_type, object_id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(body: &[u8]) -> Option<Vec<String>> {
        read(&[], body).unwrap().map(|event| event.key)
    }

    #[test]
    fn messages_and_calls_have_keys() {
        assert_eq!(key(b"MessageSid=SM1&MessageStatus=sent&SmsStatus=sent").unwrap(), ["SM1", "sent"]);
        assert_eq!(key(b"MessageSid=SM1&SmsSid=SM1&SmsStatus=received&Body=hi").unwrap(), ["SM1", "received"]);
        assert_eq!(key(b"CallSid=CA1&CallStatus=ringing&SequenceNumber=1").unwrap(), ["CA1", "ringing", "1"]);
    }

    /// Two turns of one call look alike: they are told apart by the token, or not at all.
    #[test]
    fn a_turn_of_a_call_has_the_tokens_key() {
        assert_eq!(key(b"CallSid=CA1&CallStatus=in-progress&Digits=1"), None);
        let token = [Header { name: TOKEN.to_owned(), value: b"t-1".to_vec() }];
        let event = read(&token, b"CallSid=CA1&CallStatus=in-progress&Digits=1").unwrap().unwrap();
        assert_eq!((event.key, event.key_signed), (vec!["token".to_owned(), "t-1".to_owned()], false));
        assert!(read(&token, b"MessageSid=1&MessageSid=2").is_err());
    }
}
