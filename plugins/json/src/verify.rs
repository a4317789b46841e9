//! A MAC of the body, or a static token, in a header.

use onceward_plugin::crypto::{self, CANDIDATES_MAX, KeyEncoding, Part};
use onceward_plugin::{PluginError, Reason, Request, Verdict, encoding, header};

use crate::config::{Check, Encoding, Scheme};

/// Each line of the header is a signature of its own: during a rotation some senders send two.
pub(crate) fn verify(request: &Request, check: &Check) -> Result<Verdict, PluginError> {
    let lines: Vec<_> = header::lines(&request.headers, &check.header).take(CANDIDATES_MAX + 1).collect();
    if lines.is_empty() {
        return Ok(Verdict::invalid(Reason::MissingSignature, format!("no {} header", check.header)));
    }
    if lines.len() > CANDIDATES_MAX {
        return Ok(Verdict::invalid(Reason::Malformed, format!("more than 8 {} headers", check.header)));
    }
    for line in lines {
        let Some(candidate) = line.trim_ascii().strip_prefix(check.prefix.as_bytes()) else { continue };
        let matches = match check.scheme {
            Scheme::Token => crypto::secret_equals(&check.secret, candidate)?,
            Scheme::Hmac(hash, form) => match decode(form, candidate) {
                Some(tag) => crypto::hmac_verify(&check.secret, KeyEncoding::Utf8, hash, &[Part::Body], &tag)?,
                None => false,
            },
        };
        if matches {
            return Ok(Verdict::Verified);
        }
    }
    Ok(Verdict::invalid(Reason::BadSignature, format!("the {} header does not match", check.header)))
}

fn decode(form: Encoding, candidate: &[u8]) -> Option<Vec<u8>> {
    match form {
        Encoding::Hex => encoding::hex(candidate),
        Encoding::Base64 => encoding::base64(candidate),
    }
}
