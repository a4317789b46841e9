//! The scheme most senders share: the HMAC of a message, written into a header.

use crate::crypto::{self, CANDIDATES_MAX, Hash, KeyEncoding, Part};
use crate::{PluginError, Reason, Request, Verdict, encoding, header};

/// How an HMAC stands in a header. Its key is the secret's text as it is.
#[derive(Clone, Copy, Debug)]
pub struct HeaderMac {
    /// The header, in lower case.
    pub header: &'static str,
    /// What stands before each signature.
    pub prefix: &'static str,
    /// How its bytes are written.
    pub encoding: Encoding,
    /// The HMAC's hash.
    pub hash: Hash,
}

/// How a signature's bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Digits of either case.
    Hex,
    /// The standard alphabet, padded or not.
    Base64,
}

impl HeaderMac {
    /// Whether one of the secret's values made one of the signatures. Several lines are several signatures, and so are the parts
    /// between commas: a sender that changes its secret signs with both, and a proxy may join the lines.
    ///
    /// # Errors
    /// [`PluginError`] when the route grants no usable secret.
    pub fn verify(&self, request: &Request, secret: &str, message: &[Part]) -> Result<Verdict, PluginError> {
        let mut tags = Vec::new();
        for line in header::lines(&request.headers, self.header) {
            let Ok(line) = std::str::from_utf8(line) else {
                return Ok(self.invalid(Reason::Malformed, "is not UTF-8"));
            };
            tags.extend(header::list(line, ',').take(CANDIDATES_MAX + 1));
        }
        match tags.len() {
            0 => return Ok(self.invalid(Reason::MissingSignature, "is missing")),
            1..=CANDIDATES_MAX => {}
            _ => return Ok(self.invalid(Reason::Malformed, "holds more than 8 signatures")),
        }
        for tag in tags {
            let Some(tag) = self.decode(tag) else { continue };
            if crypto::hmac_verify(secret, KeyEncoding::Utf8, self.hash, message, &tag)? {
                return Ok(Verdict::Verified);
            }
        }
        Ok(self.invalid(Reason::BadSignature, "does not match"))
    }

    /// What does not decode cannot match.
    fn decode(&self, tag: &str) -> Option<Vec<u8>> {
        let tag = tag.strip_prefix(self.prefix)?;
        match self.encoding {
            Encoding::Hex => encoding::hex(tag),
            Encoding::Base64 => encoding::base64(tag),
        }
    }

    fn invalid(&self, reason: Reason, what: &str) -> Verdict {
        Verdict::invalid(reason, format!("the {} header {what}", self.header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    const MAC: HeaderMac = HeaderMac { header: "x-mac", prefix: "v=", encoding: Encoding::Hex, hash: Hash::Sha256 };

    /// What needs no key to be refused; `plugin test` tries the rest.
    #[test]
    fn what_cannot_match_is_refused_for_what_it_is() {
        let nine = "v=00,".repeat(9);
        for (lines, expected) in [
            (&[][..], Reason::MissingSignature),
            (&[&b""[..], b" , "], Reason::MissingSignature),
            (&[b"\xff"], Reason::Malformed),
            (&[nine.as_bytes()], Reason::Malformed),
            (&[b"00", b"v=0", b"v=zz"], Reason::BadSignature),
        ] {
            let headers = lines.iter().map(|line| Header { name: "x-mac".to_owned(), value: line.to_vec() });
            let request = Request {
                method: "POST".to_owned(),
                scheme: "https".to_owned(),
                authority: "hooks.example".to_owned(),
                path: "/".to_owned(),
                query: None,
                params: Vec::new(),
                headers: headers.collect(),
                body: Vec::new(),
                received_at_ms: 0,
                client_certificate: None,
            };
            match MAC.verify(&request, "secret", &[Part::Body]) {
                Ok(Verdict::Invalid(refusal)) => assert_eq!(refusal.reason, expected, "{lines:?}"),
                other => panic!("{lines:?}: {other:?}"),
            }
        }
        assert_eq!(MAC.decode("v=0aFF"), Some(vec![10, 255]));
    }
}
