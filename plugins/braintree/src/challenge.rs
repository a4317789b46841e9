//! `GET …?bt_challenge=HEX`: Braintree asks whether the endpoint knows the private key.

use onceward_plugin::crypto::{self, Hash, KeyEncoding};
use onceward_plugin::{Header, PluginError, Reason, Reply, Request, Verdict, form};

use crate::Config;

/// Answers `PUBLIC_KEY|HEX` with the newest keys.
pub(crate) fn answer(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
    let Some(challenge) = challenge(request.query.as_deref().unwrap_or_default()) else {
        return Ok(Verdict::invalid(Reason::Malformed, "a GET without a challenge of 20 to 32 hexadecimal digits"));
    };
    let tag = crypto::hmac_sign(&config.secret, KeyEncoding::Sha1Utf8, Hash::Sha1, &[crypto::bytes(challenge)])?;
    let tag: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = config.public_keys.first().map_or("", String::as_str);
    Ok(Verdict::Respond(Reply {
        status: 200,
        headers: vec![Header { name: "content-type".to_owned(), value: b"text/plain".to_vec() }],
        body: format!("{key}|{tag}").into_bytes(),
    }))
}

/// Nothing but a challenge is ever signed: so short a text of such digits is no notification.
fn challenge(query: &str) -> Option<String> {
    let [challenge] = form::find(query.as_bytes(), ["bt_challenge"]).ok()?;
    let challenge = challenge?;
    let digits = challenge.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (digits && (20..=32).contains(&challenge.len())).then(|| challenge.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_challenge_is_one() {
        let digits = "20f9f8ed05f77439fe955c977e4c8a53";
        assert_eq!(challenge(&format!("a=b&bt_challenge={digits}")).as_deref(), Some(digits));
        assert!(challenge(&format!("bt_challenge={}", &digits[..20])).is_some());
        for wrong in [
            String::new(),
            "bt_challenge=".to_owned(),
            format!("bt_challenge={}", &digits[..19]),
            format!("bt_challenge={digits}0"),
            format!("bt_challenge={}", digits.to_uppercase()),
            format!("bt_challenge={}%0a", &digits[..30]),
            format!("bt_challenge={digits}&bt_challenge={digits}"),
        ] {
            assert_eq!(challenge(&wrong), None, "{wrong}");
        }
    }
}
