//! `bt_signature`, which is `PUBLIC_KEY|HEX&PUBLIC_KEY|HEX…`: HMAC-SHA1 over the text of `bt_payload` with the SHA-1 of the
//! private key.

use std::borrow::Cow;

use onceward_plugin::crypto::{self, CANDIDATES_MAX, Hash, KeyEncoding};
use onceward_plugin::{PluginError, Reason, Request, Verdict, encoding, form};

use crate::Config;

pub(crate) fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
    let (signature, payload) = match fields(&request.body) {
        Ok((Some(signature), Some(payload))) => (signature, payload),
        Ok(_) => return Ok(Verdict::invalid(Reason::MissingSignature, "no bt_signature or no bt_payload")),
        Err(detail) => return Ok(Verdict::invalid(Reason::Malformed, detail)),
    };
    if !payload.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n')) {
        return Ok(Verdict::invalid(Reason::Malformed, "bt_payload has characters that base64 has not"));
    }
    let tags = tags(&signature, &config.public_keys);
    if tags.is_empty() {
        return Ok(Verdict::invalid(Reason::UnknownKey, "no signature for one of the route's public keys"));
    }
    for tag in tags {
        let Some(tag) = encoding::hex(tag) else { continue };
        // The last line break may have got lost on the way.
        for end in ["", "\n"] {
            let message = [crypto::bytes(&*payload), crypto::bytes(end)];
            if crypto::hmac_verify(&config.secret, KeyEncoding::Sha1Utf8, Hash::Sha1, &message, &tag)? {
                return Ok(Verdict::Verified);
            }
        }
    }
    Ok(Verdict::invalid(Reason::BadSignature, "bt_signature does not match"))
}

/// What `bt_payload` of a verified request holds.
pub(crate) fn payload(body: &[u8]) -> Result<Vec<u8>, PluginError> {
    let (_, payload) = fields(body).map_err(PluginError::Malformed)?;
    let text = payload.unwrap_or_default().replace('\n', "");
    encoding::base64(text).ok_or_else(|| PluginError::Malformed("bt_payload is not base64".to_owned()))
}

type Text<'a> = Option<Cow<'a, str>>;

fn fields(body: &[u8]) -> Result<(Text<'_>, Text<'_>), String> {
    let [signature, payload] =
        form::find(body, ["bt_signature", "bt_payload"]).map_err(|malformed| malformed.to_string())?;
    Ok((signature, payload))
}

/// The signatures of the route's own keys; Braintree signs for all of a merchant's.
fn tags<'a>(signature: &'a str, public_keys: &[String]) -> Vec<&'a str> {
    let pairs = signature.split('&').filter_map(|pair| pair.split_once('|'));
    pairs.filter(|(key, _)| public_keys.iter().any(|own| own == key)).map(|(_, tag)| tag).take(CANDIDATES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_keys_signatures_are_left_out() {
        let own = ["mine".to_owned(), "old".to_owned()];
        assert_eq!(tags("other|00&mine|01&old|02&mine2|03&|04&05", &own), ["01", "02"]);
        assert_eq!(tags("", &own), [""; 0]);
        assert_eq!(tags(&"mine|00&".repeat(100), &own).len(), CANDIDATES_MAX);
    }

    #[test]
    fn a_payload_has_line_breaks() {
        assert_eq!(payload(b"bt_payload=PGE%2B%0APC9hPg%3D%3D%0A").unwrap(), b"<a></a>");
        assert!(matches!(payload(b"bt_payload=*"), Err(PluginError::Malformed(_))));
        assert!(matches!(payload(b"bt_payload=AA&bt_payload=AA"), Err(PluginError::Malformed(_))));
    }
}
