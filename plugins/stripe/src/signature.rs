//! `Stripe-Signature: t=UNIX,v1=HEX[,v1=HEX]`: HMAC-SHA256 over `t.body` with the secret's text as it is, `whsec_` included.

use onceward_plugin::crypto::{self, CANDIDATES_MAX, Hash, KeyEncoding, Part};
use onceward_plugin::{PluginError, Reason, Request, Tolerance, Verdict, encoding, header, unix_seconds};

pub(crate) const HEADER: &str = "stripe-signature";

/// The signature first and its age second, so that only Stripe itself can learn that a timestamp is stale.
pub(crate) fn verify(request: &Request, secret: &str, tolerance: Tolerance) -> Result<Verdict, PluginError> {
    let line = match header::one(&request.headers, HEADER) {
        Ok(Some(line)) => line,
        Ok(None) => return Ok(Verdict::invalid(Reason::MissingSignature, "no stripe-signature header")),
        Err(fault) => {
            return Ok(Verdict::invalid(Reason::Malformed, format!("the stripe-signature header {}", fault.as_str())));
        }
    };
    let signature = match Signature::parse(line) {
        Ok(signature) => signature,
        Err((reason, detail)) => return Ok(Verdict::invalid(reason, detail)),
    };
    let message = [crypto::bytes(signature.timestamp), crypto::bytes("."), Part::Body];
    for tag in &signature.tags {
        if crypto::hmac_verify(secret, KeyEncoding::Utf8, Hash::Sha256, &message, tag)? {
            return Ok(tolerance.judge(signature.signed_at_s, request));
        }
    }
    Ok(Verdict::invalid(Reason::BadSignature, "no v1 signature matches"))
}

/// The header's content.
#[derive(Debug, PartialEq, Eq)]
struct Signature<'a> {
    /// As it was signed.
    timestamp: &'a str,
    signed_at_s: i64,
    /// What the v1 entries decode to; those that are no SHA-256 cannot match and are left out.
    tags: Vec<Vec<u8>>,
}

impl<'a> Signature<'a> {
    fn parse(line: &'a str) -> Result<Self, (Reason, &'static str)> {
        let mut timestamp = None;
        let mut entries = Vec::new();
        for item in header::list(line, ',') {
            match item.split_once('=') {
                Some(("t", _)) if timestamp.is_some() => return Err((Reason::Malformed, "two timestamps")),
                Some(("t", text)) => timestamp = Some(text),
                Some(("v1", text)) => entries.push(text),
                // `v0` is a test scheme that anyone can make; later schemes are not known here.
                _ => {}
            }
        }
        let timestamp = timestamp.ok_or((Reason::Malformed, "no timestamp"))?;
        let signed_at_s = unix_seconds(timestamp).ok_or((Reason::Malformed, "the timestamp is not a Unix time"))?;
        if entries.is_empty() {
            return Err((Reason::MissingSignature, "no v1 signature"));
        }
        if entries.len() > CANDIDATES_MAX {
            return Err((Reason::Malformed, "more than 8 v1 signatures"));
        }
        let tags = entries.into_iter().filter_map(encoding::hex).filter(|tag| tag.len() == 32).collect();
        Ok(Self { timestamp, signed_at_s, tags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_v1_entry_and_no_other_scheme() {
        let one = "ab".repeat(32);
        let two = "CD".repeat(32);
        let line = format!(" t=12 , v1={one},v0={two},v1={two},v1=xyz,v1=,v1,=,v2=00");
        let signature = Signature::parse(&line).unwrap();
        assert_eq!(signature.timestamp, "12");
        assert_eq!(signature.signed_at_s, 12);
        assert_eq!(signature.tags, [vec![0xab; 32], vec![0xcd; 32]]);
    }

    #[test]
    fn garbage_is_refused_for_what_it_is() {
        let nine = format!("t=1{}", ",v1=00".repeat(9));
        for (line, reason) in [
            ("", Reason::Malformed),
            ("v1=00", Reason::Malformed),
            ("t=1", Reason::MissingSignature),
            ("t=1,v0=00", Reason::MissingSignature),
            ("t=,v1=00", Reason::Malformed),
            ("t=-1,v1=00", Reason::Malformed),
            ("t=1,t=1,v1=00", Reason::Malformed),
            ("t=99999999999999999999,v1=00", Reason::Malformed),
            (nine.as_str(), Reason::Malformed),
        ] {
            assert_eq!(Signature::parse(line).map_err(|(reason, _)| reason).err(), Some(reason), "{line}");
        }
        assert_eq!(Signature::parse("t=1,v1=zz").map(|signature| signature.tags), Ok(vec![]));
    }
}
