//! The event's key, aliases and material, from their sources.

use onceward_plugin::{Event, Field, PluginError, Request, Value, json};

use crate::config::Config;
use crate::source::{Source, values};

/// Stands for material that is configured and absent altogether; no source is called so.
const NONE_THERE: &str = "(no material)";

/// The event, or none when the request has no key.
pub(crate) fn read(request: &Request, config: &Config) -> Result<Option<Event>, PluginError> {
    let groups = [&config.key, &config.material].into_iter().chain(&config.aliases);
    let sources: Vec<&Source> = groups.flatten().collect();
    let mut values = values(request, &sources)?.into_iter();

    let Some(key) = name(&config.key, &mut values)? else { return Ok(None) };
    let material = config.material.iter().zip(&mut values);
    let mut material: Vec<Field> =
        material.filter_map(|(source, value)| Some(Field::new(source.name(), value?))).collect();
    if material.is_empty() && !config.material.is_empty() {
        // An empty list would say that the whole body counts; here the config has said what counts, and none of it is there.
        material.push(Field::new(NONE_THERE, Value::Null));
    }
    let aliases = config.aliases.iter().map(|parts| name(parts, &mut values));
    let aliases = aliases.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok(Some(Event { key, aliases, key_signed: config.key_signed(), material, event_type: None, object_id: None }))
}

/// The parts of a key or an alias; none when one of them says nothing.
fn name(
    sources: &[Source],
    values: &mut impl Iterator<Item = Option<Value>>,
) -> Result<Option<Vec<String>>, PluginError> {
    // All values of the name are taken from the iterator before any is judged: the next name's follow.
    let values: Vec<_> = sources.iter().zip(values).collect();
    values.into_iter().map(|(source, value)| part(source, value)).collect()
}

fn part(source: &Source, value: Option<Value>) -> Result<Option<String>, PluginError> {
    let text = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Text(text)) => text,
        Some(Value::Number(token)) => {
            json::canonical(&token).ok_or_else(|| malformed(source, "has too large an exponent"))?
        }
        Some(Value::Boolean(_) | Value::Bytes(_)) => return Err(malformed(source, "is neither a text nor a number")),
    };
    Ok((!text.trim().is_empty()).then_some(text))
}

fn malformed(source: &Source, what: &str) -> PluginError {
    PluginError::Malformed(format!("{} {what}, so it is no part of a key", source.name()))
}

#[cfg(test)]
mod tests {
    use onceward_plugin::Header;

    use super::*;

    fn event(config: &str, request: &Request) -> Result<Option<Event>, PluginError> {
        read(request, &onceward_plugin::config::read(config, crate::config::read).unwrap())
    }

    fn request(body: &str) -> Request {
        Request {
            method: "POST".to_owned(),
            scheme: "https".to_owned(),
            authority: "hooks.example".to_owned(),
            path: "/".to_owned(),
            query: Some("q=a+b&q2=".to_owned()),
            params: Vec::new(),
            headers: vec![Header { name: "idempotency-key".to_owned(), value: b"abc".to_vec() }],
            body: body.as_bytes().to_vec(),
            received_at_ms: 0,
            client_certificate: None,
        }
    }

    fn key(config: &str, body: &str) -> Result<Option<Vec<String>>, PluginError> {
        Ok(event(config, &request(body))?.map(|event| event.key))
    }

    /// The contract: an absent, null, empty or blank key part means "no key".
    #[test]
    fn a_part_that_says_nothing_means_no_key() {
        for body in ["{}", r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":" \t"}"#, r#"{"id":"\u00a0"}"#] {
            assert_eq!(key(r#"{"key":["/id"]}"#, body), Ok(None), "{body}");
            assert_eq!(key(r#"{"key":["query:q","/id"]}"#, body), Ok(None), "{body}");
        }
        assert_eq!(key(r#"{"key":["query:q2"]}"#, "x"), Ok(None));
        assert_eq!(key(r#"{"key":["header:missing"]}"#, "x"), Ok(None));
    }

    #[test]
    fn a_number_is_one_key_in_every_spelling() {
        for body in [r#"{"id":100}"#, r#"{"id":1e2}"#, r#"{"id":100.0}"#, r#"{"id":"100"}"#] {
            assert_eq!(key(r#"{"key":["/id"]}"#, body), Ok(Some(vec!["100".to_owned()])), "{body}");
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_malformed() {
        for body in [
            r#"{"id":true}"#,
            r#"{"id":{}}"#,
            r#"{"id":[1]}"#,
            r#"{"id":1e99999999999999}"#,
            r#"{"id":1,"id":1}"#,
            "id=1",
            "",
        ] {
            assert!(matches!(key(r#"{"key":["/id"]}"#, body), Err(PluginError::Malformed(_))), "{body}");
        }
    }

    #[test]
    fn a_key_in_a_header_leaves_the_body_alone() {
        assert_eq!(key(r#"{"key":["header:Idempotency-Key"]}"#, "no json"), Ok(Some(vec!["abc".to_owned()])));
        let mut twice = request("");
        twice.headers.extend(twice.headers.clone());
        assert!(matches!(event(r#"{"key":["header:idempotency-key"]}"#, &twice), Err(PluginError::Malformed(_))));
    }

    #[test]
    fn form_and_query_fields() {
        let parts = key(r#"{"key":["form:id","query:q"]}"#, "id=tr_1&x=2");
        assert_eq!(parts, Ok(Some(vec!["tr_1".to_owned(), "a b".to_owned()])));
    }

    /// Configured material that is absent altogether is not "no material", for which the whole body would count.
    #[test]
    fn material_that_is_absent_altogether_is_told() {
        let config = r#"{"key":["/id"],"material":["/a","/b"]}"#;
        let none = event(config, &request(r#"{"id":"1","other":1}"#)).unwrap().unwrap();
        assert_eq!(none.material, [Field::new(super::NONE_THERE, Value::Null)]);
        let whole_body = event(r#"{"key":["/id"]}"#, &request(r#"{"id":"1"}"#)).unwrap().unwrap();
        assert!(whole_body.material.is_empty());
    }

    /// The contract: an absent material field is absent, which differs from null.
    #[test]
    fn material_is_what_is_there() {
        let config = r#"{"key":["/id"],"material":["/a","/b","/c","/d/0"],"aliases":[["/t","/none"],["/t","/id"]]}"#;
        let event = event(config, &request(r#"{"id":"1","a":null,"c":2.50,"d":[false],"t":"x"}"#)).unwrap().unwrap();
        assert_eq!(
            event.material,
            [
                Field::new("/a", Value::Null),
                Field::new("/c", Value::Number("2.50".to_owned())),
                Field::new("/d/0", Value::Boolean(false)),
            ]
        );
        assert_eq!(event.aliases, [["x", "1"]]);
        assert!(matches!(
            super::read(
                &request(r#"{"id":"1","a":{}}"#),
                &onceward_plugin::config::read(config, crate::config::read).unwrap()
            ),
            Err(PluginError::Malformed(_))
        ));
    }
}
