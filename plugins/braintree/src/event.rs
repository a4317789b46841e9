//! What a notification is called, and what must be equal for two deliveries of it.

use onceward_plugin::crypto::{self, Hash};
use onceward_plugin::{Event, Field, PluginError, Value};

use crate::xml;

const KIND: &str = "notification/kind";
const TIME: &str = "notification/timestamp";
const SUBJECT: &str = "notification/subject/";

/// Of the subject, right below it. Kinds of subject call their amounts by different names.
const MATERIAL: [&str; 8] =
    ["id", "status", "kind", "amount", "amount-disputed", "price", "currency-iso-code", "merchant-account-id"];

pub(crate) fn read(payload: &[u8]) -> Result<Event, PluginError> {
    let malformed = |why: &str| PluginError::Malformed(format!("the notification is not readable XML: {why}"));
    let document = std::str::from_utf8(payload).map_err(|_| malformed("not UTF-8"))?;
    let leaves = xml::leaves(document).map_err(malformed)?;
    let notification = Notification::of(&leaves)?;
    // Some kinds of subject have no id. The notification is a snapshot: sent again, it is the same text.
    let subject = notification.subject_id.clone().unwrap_or_else(|| {
        let digest = crypto::digest(Hash::Sha256, &[crypto::bytes(payload)]);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    });
    Ok(Event {
        key: vec![notification.kind.clone(), subject, notification.time],
        aliases: Vec::new(),
        key_signed: true,
        material: notification.material,
        event_type: Some(notification.kind),
        object_id: notification.subject_id,
    })
}

#[derive(Debug, PartialEq)]
struct Notification {
    kind: String,
    time: String,
    subject_id: Option<String>,
    material: Vec<Field>,
}

impl Notification {
    fn of(leaves: &[xml::Leaf]) -> Result<Self, PluginError> {
        let kind = required(leaves, KIND)?;
        let time = required(leaves, TIME)?;
        let mut material = vec![Field::new(format!("xml:{KIND}"), Value::Text(kind.clone()))];
        let mut subject_id = None;
        // What the subject is stands in the name of the one element inside.
        let inside = leaves.iter().find_map(|leaf| leaf.path.strip_prefix(SUBJECT)).unwrap_or_default();
        let subject = inside.split('/').next().unwrap_or_default();
        for name in MATERIAL {
            let path = format!("{SUBJECT}{subject}/{name}");
            let Some(text) = one(leaves, &path)? else { continue };
            if name == "id" {
                subject_id = Some(text.to_owned());
            }
            material.push(Field::new(format!("xml:{path}"), Value::Text(text.to_owned())));
        }
        Ok(Self { kind, time, subject_id, material })
    }
}

fn required(leaves: &[xml::Leaf], path: &str) -> Result<String, PluginError> {
    let text = one(leaves, path)?;
    text.map(str::to_owned).ok_or_else(|| PluginError::Malformed(format!("there is no {path}")))
}

/// The one text at `path`, if it is not blank.
fn one<'a>(leaves: &'a [xml::Leaf], path: &str) -> Result<Option<&'a str>, PluginError> {
    let mut texts = leaves.iter().filter(|leaf| leaf.path == path).map(|leaf| leaf.text.trim());
    let text = texts.next().filter(|text| !text.is_empty());
    match texts.next() {
        None => Ok(text),
        Some(_) => Err(PluginError::Malformed(format!("{path} is there twice"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(document: &str) -> Result<Notification, PluginError> {
        Notification::of(&xml::leaves(document).unwrap())
    }

    #[test]
    fn the_subject_is_found_whatever_it_is() {
        let notification = of(
            "<notification><timestamp type=\"datetime\">2026-09-21T13:33:10Z</timestamp><kind>subscription_charged_successfully</kind>
             <subject><subscription><id>sub_1</id><price>10.00</price><transactions type=\"array\"><transaction><id>t_1</id>
             <amount>10.00</amount></transaction></transactions><status>Active</status></subscription></subject></notification>",
        );
        let notification = notification.unwrap();
        assert_eq!(notification.subject_id.as_deref(), Some("sub_1"));
        assert_eq!(notification.time, "2026-09-21T13:33:10Z");
        let names: Vec<_> = notification.material.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "xml:notification/kind",
                "xml:notification/subject/subscription/id",
                "xml:notification/subject/subscription/status",
                "xml:notification/subject/subscription/price",
            ]
        );
    }

    #[test]
    fn a_subject_may_have_no_id() {
        let check = "<notification><timestamp>t</timestamp><kind>check</kind><subject><check>true</check></subject></notification>";
        assert_eq!(of(check).unwrap().subject_id, None);
        assert_eq!(of(check).unwrap().material.len(), 1);
    }

    #[test]
    fn what_is_no_notification_is_malformed() {
        for wrong in [
            "<notification/>",
            "<notification><kind>a</kind></notification>",
            "<notification><kind>a</kind><timestamp> </timestamp></notification>",
            "<notification><kind>a</kind><kind>b</kind><timestamp>t</timestamp></notification>",
            "<other><kind>a</kind><timestamp>t</timestamp></other>",
        ] {
            assert!(matches!(of(wrong), Err(PluginError::Malformed(_))), "{wrong}");
        }
    }
}
