//! The items of a notification, and what of an item is signed.

use onceward_plugin::json::{self, Fields, Node};
use onceward_plugin::{Reason, encoding};

const SIGNATURE: &str = "/additionalData/hmacSignature";

/// What is signed, in the order of the signed text.
pub(crate) const SIGNED: [&str; 8] = [
    "/pspReference",
    "/originalReference",
    "/merchantAccountCode",
    REFERENCE,
    "/amount/value",
    "/amount/currency",
    "/eventCode",
    "/success",
];

/// The one signed field whose text the merchant chooses.
const REFERENCE: &str = "/merchantReference";

type Fault = (Reason, String);

/// The items as written; there is at least one.
pub(crate) fn split(body: &[u8]) -> Result<Vec<&str>, String> {
    let [items] = json::find(body, ["/notificationItems"]).map_err(|malformed| malformed.to_string())?;
    let Some(Node::Array(items)) = items else { return Err("there are no notificationItems".to_owned()) };
    match json::items(items) {
        Ok(items) if items.is_empty() => Err("notificationItems is empty".to_owned()),
        Ok(items) => Ok(items),
        Err(malformed) => Err(malformed.to_string()),
    }
}

/// One item.
pub(crate) struct Item<'a> {
    pub(crate) fields: Fields<'a, 'static>,
}

impl<'a> Item<'a> {
    pub(crate) fn read(item: &'a str) -> Result<Self, Fault> {
        let malformed = |malformed: json::Malformed| (Reason::Malformed, format!("an item: {malformed}"));
        let [inner] = json::find(item.as_bytes(), ["/NotificationRequestItem"]).map_err(malformed)?;
        let Some(Node::Object(inner)) = inner else {
            return Err((Reason::Malformed, "an item has no NotificationRequestItem".to_owned()));
        };
        let pointers = SIGNED.into_iter().chain([SIGNATURE]).collect();
        let fields = Fields::read(inner.as_bytes(), pointers).map_err(malformed)?;
        Ok(Self { fields })
    }

    /// The signed text, and the signature, which is empty when it is no base64. Adyen joins the fields by colons and escapes nothing, so that a
    /// colon could be moved from one field into another. It may stand in the merchant's reference only: then the other seven
    /// say where that one begins and ends.
    pub(crate) fn signed(&self) -> Result<(String, Vec<u8>), Fault> {
        let mut values = Vec::with_capacity(SIGNED.len());
        for pointer in SIGNED {
            let value = match self.fields.node(pointer) {
                None | Some(Node::Null) => "",
                Some(node) => node
                    .plain()
                    .ok_or_else(|| (Reason::Malformed, format!("an item's {pointer} is not a single value")))?,
            };
            if pointer != REFERENCE && value.contains(':') {
                return Err((Reason::Malformed, format!("an item's {pointer} has a colon")));
            }
            values.push(value);
        }
        let tag = self.fields.text(SIGNATURE);
        let tag = tag.ok_or_else(|| (Reason::MissingSignature, "an item has no hmacSignature".to_owned()))?;
        Ok((values.join(":"), encoding::base64(tag).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(item: &str) -> Option<Reason> {
        Item::read(item).and_then(|item| item.signed().map(|_| ())).map_err(|(reason, _)| reason).err()
    }

    /// Adyen's published example of the signed text.
    #[test]
    fn absent_fields_are_empty_in_the_signed_text() {
        let item = r#"{"NotificationRequestItem":{"pspReference":"7914073381342284","merchantAccountCode":"TestMerchant",
            "merchantReference":"TestPayment-1407325143704","amount":{"value":1130,"currency":"EUR"},
            "eventCode":"AUTHORISATION","success":"true","additionalData":{"hmacSignature":"AA=="}}}"#;
        let item = Item::read(item).unwrap_or_else(|(_, detail)| panic!("{detail}"));
        let (message, tag) = item.signed().unwrap();
        assert_eq!(message, "7914073381342284::TestMerchant:TestPayment-1407325143704:1130:EUR:AUTHORISATION:true");
        assert_eq!(tag, [0]);
    }

    #[test]
    fn a_colon_stays_in_the_merchants_reference() {
        let item = |members: &str| {
            format!(r#"{{"NotificationRequestItem":{{{members},"additionalData":{{"hmacSignature":"AA=="}}}}}}"#)
        };
        assert_eq!(reason(&item(r#""merchantReference":"a:1:EUR""#)), None);
        assert_eq!(reason(&item(r#""pspReference":"a:1""#)), Some(Reason::Malformed));
        assert_eq!(reason(&item(r#""amount":{"currency":"EUR:x"}"#)), Some(Reason::Malformed));
        assert_eq!(reason(&item(r#""amount":{"value":[1]}"#)), Some(Reason::Malformed));
    }

    #[test]
    fn what_is_no_signed_item_is_refused() {
        assert_eq!(reason(r#"{"NotificationRequestItem":{}}"#), Some(Reason::MissingSignature));
        assert_eq!(reason(r#"{"NotificationRequestItem":[]}"#), Some(Reason::Malformed));
        assert_eq!(reason("7"), Some(Reason::Malformed));
        for body in ["", "{}", r#"{"notificationItems":[]}"#, r#"{"notificationItems":{}}"#, "[]"] {
            assert!(split(body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(split(br#"{"notificationItems":[{},1]}"#).unwrap(), ["{}", "1"]);
    }
}
