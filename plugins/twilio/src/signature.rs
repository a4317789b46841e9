//! The signature: base64 of an HMAC over the full URL, and for a form over its parameters sorted by name.

use onceward_plugin::crypto::{self, Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{PluginError, Reason, Request, Verdict, encoding, form, header};

use crate::Config;

pub(crate) const SIGNATURE: &str = "x-twilio-signature";
/// Says `key=…,algorithm=HMAC_SHA256` where a shared key signs.
pub(crate) const SETTINGS: &str = "x-twilio-webhooks-signature-settings";
pub(crate) const CONTENT_TYPE: &str = "content-type";
/// The query's parameter for the digest of a body that is no form.
const BODY_DIGEST: &str = "bodySHA256";

pub(crate) fn verify(request: &Request, config: &Config) -> Result<Verdict, PluginError> {
    let message = match message(request) {
        Ok(message) => message,
        Err(detail) => return Ok(Verdict::invalid(Reason::Malformed, detail)),
    };
    let hash = match header::one(&request.headers, SETTINGS) {
        Ok(settings) => algorithm(settings.unwrap_or_default()),
        Err(fault) => {
            return Ok(Verdict::invalid(Reason::Malformed, format!("the {SETTINGS} header {}", fault.as_str())));
        }
    };
    let Some(hash) = hash else {
        return Ok(Verdict::invalid(Reason::UnknownKey, "signed with an algorithm that is not known here"));
    };
    let mac = HeaderMac { header: SIGNATURE, prefix: "", encoding: Encoding::Base64, hash };
    let [first, second] = &config.urls;
    let verdict = mac.verify(request, &config.secret, &[crypto::bytes(first), crypto::bytes(&message)])?;
    match verdict {
        Verdict::Invalid(refusal) if refusal.reason == Reason::BadSignature => {
            mac.verify(request, &config.secret, &[crypto::bytes(second), crypto::bytes(&message)])
        }
        other => Ok(other),
    }
}

/// What is signed after the URL's path: the query as it came, then the parameters.
fn message(request: &Request) -> Result<String, String> {
    let mut message = request.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let [digest] = form::find(request.query.as_deref().unwrap_or_default().as_bytes(), [BODY_DIGEST])
        .map_err(|malformed| malformed.to_string())?;
    let kind = header::one(&request.headers, CONTENT_TYPE).map_err(|fault| fault.as_str().to_owned())?;
    if kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
        message.push_str(&parameters(&request.body)?);
    } else if !request.body.is_empty() {
        // The URL alone is signed: the body counts through its digest there, and without one anybody could have written it.
        let digest =
            digest.and_then(|digest| encoding::hex(digest.as_bytes())).ok_or("the URL has no digest of the body")?;
        if crypto::digest(Hash::Sha256, &[Part::Body]) != digest {
            return Err("the body is not the one whose digest is in the URL".to_owned());
        }
    }
    Ok(message)
}

/// Names and values, sorted; a pair that comes twice counts once.
fn parameters(body: &[u8]) -> Result<String, String> {
    let mut pairs = form::pairs(body).map_err(|malformed| malformed.to_string())?;
    pairs.sort();
    pairs.dedup();
    Ok(pairs.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]).collect())
}

fn algorithm(settings: &str) -> Option<Hash> {
    let named = header::list(settings, ',').find_map(|entry| entry.strip_prefix("algorithm="));
    match named.unwrap_or("HMAC_SHA1") {
        "HMAC_SHA1" => Some(Hash::Sha1),
        "HMAC_SHA256" => Some(Hash::Sha256),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_sorted_and_counted_once() {
        assert_eq!(parameters(b"b=2&a=%2B1&b=1&b=2&c=").unwrap(), "a+1b1b2c");
        assert!(parameters(b"a=%ff").is_err());
    }

    #[test]
    fn the_algorithm_is_named_or_the_old_one() {
        assert_eq!(algorithm(""), Some(Hash::Sha1));
        assert_eq!(algorithm("key=k, algorithm=HMAC_SHA256"), Some(Hash::Sha256));
        assert_eq!(algorithm("algorithm=HMAC_MD5"), None);
    }
}
