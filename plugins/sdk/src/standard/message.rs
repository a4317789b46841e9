//! The three headers, and the signature over `id.timestamp.body`.

use crate::crypto::{self, CANDIDATES_MAX, CryptoError, Hash, KeyEncoding, Part, Scheme};
use crate::{Header, PluginError, Reason, Request, Tolerance, Verdict, encoding, header, unix_seconds};

/// What the headers are called: `FAMILY-id`, `FAMILY-timestamp`, `FAMILY-signature`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The names of the specification.
    Webhook,
    /// The names that Svix gave them before there was a specification.
    Svix,
}

impl Family {
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Webhook => ["webhook-id", "webhook-timestamp", "webhook-signature"],
            Self::Svix => ["svix-id", "svix-timestamp", "svix-signature"],
        }
    }

    fn comes_in(self, headers: &[Header]) -> bool {
        headers.iter().any(|header| self.names().contains(&header.name.as_str()))
    }
}

/// The headers of both families.
pub(super) fn headers() -> Vec<String> {
    [Family::Webhook, Family::Svix].iter().flat_map(|family| family.names()).map(str::to_owned).collect()
}

/// The message id of a request whose signature was checked.
pub(super) fn id<'a>(request: &'a Request, families: &[Family]) -> Result<&'a str, PluginError> {
    match Message::read(&request.headers, families) {
        Ok(message) => Ok(message.id),
        Err((_, detail)) => {
            Err(PluginError::Internal(format!("verify let through what extract cannot read: {detail}")))
        }
    }
}

/// The signature first and its age second, so that only the sender itself can learn that a timestamp is stale.
pub(super) fn verify(
    request: &Request,
    families: &[Family],
    secret: &str,
    tolerance: Tolerance,
) -> Result<Verdict, PluginError> {
    let message = match Message::read(&request.headers, families) {
        Ok(message) => message,
        Err((reason, detail)) => return Ok(Verdict::invalid(reason, detail)),
    };
    let signed = [crypto::bytes(format!("{}.{}.", message.id, message.timestamp)), Part::Body];
    let mut key_is_there = false;
    for signature in &message.signatures {
        let matches = match signature {
            Signature::V1(tag) => crypto::hmac_verify(secret, KeyEncoding::Base64, Hash::Sha256, &signed, tag),
            Signature::V1a(tag) => crypto::signature_verify(secret, Scheme::Ed25519, &signed, tag),
        };
        match matches {
            Ok(true) => return Ok(tolerance.judge(message.signed_at_s, request)),
            Ok(false) | Err(CryptoError::BadSignatureForm) => key_is_there = true,
            // The route holds keys of the other kind only; another signature in the list may be of that kind.
            Err(CryptoError::BadKey) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(match key_is_there {
        true => Verdict::invalid(Reason::BadSignature, "no signature matches"),
        false => Verdict::invalid(Reason::UnknownKey, "no key of the kind that these signatures need"),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Message<'a> {
    id: &'a str,
    /// As it was signed.
    timestamp: &'a str,
    signed_at_s: i64,
    signatures: Vec<Signature>,
}

#[derive(Debug, PartialEq, Eq)]
enum Signature {
    V1(Vec<u8>),
    V1a(Vec<u8>),
}

impl<'a> Message<'a> {
    /// Of the first family that is there, alone: a mixture could be read in two ways.
    fn read(headers: &'a [Header], families: &[Family]) -> Result<Self, (Reason, String)> {
        let family = families.iter().find(|family| family.comes_in(headers)).or(families.first());
        let names = family.copied().unwrap_or(Family::Webhook).names();
        let [id, timestamp, signature] = names.map(|name| one(headers, name));
        let (id, timestamp) = (id?, timestamp?);
        // A dot could move from the id into the signed text behind it; the specification forbids it for that reason.
        if id.is_empty() || id.contains('.') {
            return Err((Reason::Malformed, "the message id is empty or has a dot".to_owned()));
        }
        let signed_at_s = unix_seconds(timestamp)
            .ok_or_else(|| (Reason::Malformed, "the timestamp is not a Unix time".to_owned()))?;
        Ok(Self { id, timestamp, signed_at_s, signatures: signatures(signature?)? })
    }
}

fn one<'a>(headers: &'a [Header], name: &'static str) -> Result<&'a str, (Reason, String)> {
    match header::one(headers, name) {
        Ok(Some(line)) => Ok(line),
        Ok(None) => Err((Reason::MissingSignature, format!("no {name} header"))),
        Err(fault) => Err((Reason::Malformed, format!("the {name} header {}", fault.as_str()))),
    }
}

/// The signatures of known versions. One that does not decode cannot match, but counts as one that is there.
fn signatures(line: &str) -> Result<Vec<Signature>, (Reason, String)> {
    let entries = header::list(line, ' ').filter_map(|entry| entry.split_once(','));
    let known = entries.filter_map(|(version, text)| match version {
        "v1" => Some(Signature::V1(encoding::base64(text).unwrap_or_default())),
        "v1a" => Some(Signature::V1a(encoding::base64(text).unwrap_or_default())),
        _ => None,
    });
    let known: Vec<_> = known.take(CANDIDATES_MAX + 1).collect();
    match known.len() {
        0 => Err((Reason::MissingSignature, "no signature of a known version".to_owned())),
        1..=CANDIDATES_MAX => Ok(known),
        _ => Err((Reason::Malformed, "more than 8 signatures".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Family; 2] = [Family::Webhook, Family::Svix];

    fn headers(lines: &[(&str, &str)]) -> Vec<Header> {
        lines
            .iter()
            .map(|(name, value)| Header { name: (*name).to_owned(), value: value.as_bytes().to_vec() })
            .collect()
    }

    fn reason(id: &str, timestamp: &str, signature: &str) -> Option<Reason> {
        let lines = [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signature)];
        Message::read(&headers(&lines), &BOTH).map_err(|(reason, _)| reason).err()
    }

    #[test]
    fn versions_are_matched_whole() {
        let lines = headers(&[
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", "12"),
            ("webhook-signature", "v2,AA== v1a,AQ== v1,Ag== v1b,AA== v1"),
        ]);
        let message = Message::read(&lines, &BOTH).unwrap();
        assert_eq!(message.signatures, [Signature::V1a(vec![1]), Signature::V1(vec![2])]);
        assert_eq!((message.id, message.timestamp, message.signed_at_s), ("msg_1", "12", 12));
    }

    #[test]
    fn svix_names_count_only_alone() {
        let svix = [("svix-id", "msg_1"), ("svix-timestamp", "1"), ("svix-signature", "v1,AA==")];
        assert!(Message::read(&headers(&svix), &BOTH).is_ok());
        let mixed: Vec<_> = svix.into_iter().chain([("webhook-id", "msg_2")]).collect();
        let mixed = headers(&mixed);
        assert_eq!(Message::read(&mixed, &BOTH).map_err(|(reason, _)| reason), Err(Reason::MissingSignature));
        // For whom Svix's names come first, they are what counts.
        assert_eq!(Message::read(&mixed, &[Family::Svix, Family::Webhook]).map(|message| message.id), Ok("msg_1"));
    }

    #[test]
    fn garbage_is_refused_for_what_it_is() {
        let nine = "v1,AA== ".repeat(9);
        assert_eq!(reason("a", "1", "v1,AA=="), None);
        assert_eq!(reason("a", "1", "v1,***"), None);
        for (id, timestamp, signature, expected) in [
            ("", "1", "v1,AA==", Reason::Malformed),
            ("a.1", "1", "v1,AA==", Reason::Malformed),
            ("a", "", "v1,AA==", Reason::Malformed),
            ("a", "-1", "v1,AA==", Reason::Malformed),
            ("a", "1e9", "v1,AA==", Reason::Malformed),
            ("a", "99999999999999999999", "v1,AA==", Reason::Malformed),
            ("a", "1", "", Reason::MissingSignature),
            ("a", "1", "v1", Reason::MissingSignature),
            ("a", "1", "v3,AA==", Reason::MissingSignature),
            ("a", "1", &nine, Reason::Malformed),
        ] {
            assert_eq!(reason(id, timestamp, signature), Some(expected), "{id} {timestamp} {signature}");
        }
    }
}
