//! What of a notification is signed.

use onceward_plugin::json::{self, Node};
use onceward_plugin::{Reason, encoding};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The three signed fields, as written and without a separator.
    pub(crate) signed: String,
    /// What the sender says their digest is; empty when it is none.
    pub(crate) digest: Vec<u8>,
}

type Fault = (Reason, String);

impl Notification {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Fault> {
        let found = json::find(body, ["/order_id", "/status_code", "/gross_amount", "/signature_key"]);
        let [order, code, amount, digest] = found.map_err(|malformed| (Reason::Malformed, malformed.to_string()))?;
        let digest = digest.as_ref().and_then(Node::text);
        let digest = digest.ok_or_else(|| (Reason::MissingSignature, "there is no signature_key".to_owned()))?;
        let (order, code, amount) = (plain(&order)?, plain(&code)?, plain(&amount)?);
        // Nothing separates the three: a code or an amount of another form could be cut from the end of an order's id.
        if !is_status_code(code) {
            return Err((Reason::Malformed, "the status_code is not one of three digits".to_owned()));
        }
        if !is_amount(amount) {
            return Err((Reason::Malformed, "the gross_amount is not a plain decimal".to_owned()));
        }
        Ok(Self { signed: [order, code, amount].concat(), digest: encoding::hex(digest).unwrap_or_default() })
    }
}

fn plain<'a>(node: &'a Option<Node<'_>>) -> Result<&'a str, Fault> {
    let text = node.as_ref().and_then(Node::plain).filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| (Reason::Malformed, "order_id, status_code or gross_amount is missing".to_owned()))
}

fn is_status_code(text: &str) -> bool {
    matches!(text.as_bytes(), [b'2'..=b'5', b'0'..=b'9', b'0'..=b'9'])
}

/// Digits without a leading zero, and perhaps a point and more digits.
fn is_amount(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(order: &str, code: &str, amount: &str) -> Result<String, Reason> {
        let body =
            format!(r#"{{"order_id":{order},"status_code":{code},"gross_amount":{amount},"signature_key":"00fF"}}"#);
        Notification::read(body.as_bytes()).map(|read| read.signed).map_err(|(reason, _)| reason)
    }

    #[test]
    fn fields_are_signed_as_written() {
        assert_eq!(read(r#""A-1""#, r#""200""#, r#""150000.00""#).unwrap(), "A-1200150000.00");
        assert_eq!(read(r#""A-1""#, "200", "0.50").unwrap(), "A-12000.50");
    }

    #[test]
    fn fields_cannot_be_cut_anew() {
        for (code, amount) in [
            (r#""20""#, r#""1.00""#),
            (r#""2001""#, r#""1.00""#),
            (r#""100""#, r#""1.00""#),
            (r#""2a0""#, r#""1.00""#),
            (r#""200""#, r#""01.00""#),
            (r#""200""#, r#""1e2""#),
            (r#""200""#, r#"".5""#),
            (r#""200""#, r#""1.""#),
            (r#""200""#, r#""""#),
        ] {
            assert_eq!(read(r#""A""#, code, amount), Err(Reason::Malformed), "{code} {amount}");
        }
        assert_eq!(read(r#"" ""#, r#""200""#, r#""1.00""#), Err(Reason::Malformed));
    }

    #[test]
    fn a_body_without_a_digest_is_unsigned() {
        let reason = |body: &str| Notification::read(body.as_bytes()).map_err(|(reason, _)| reason).err();
        assert_eq!(reason(r#"{"order_id":"A"}"#), Some(Reason::MissingSignature));
        assert_eq!(reason("{"), Some(Reason::Malformed));
    }
}
