//! `PAYPAL-TRANSMISSION-SIG`: RSA over `transmission id|time|webhook id|checksum of the body`.

use onceward_plugin::crypto::{self, CryptoError, Scheme};
use onceward_plugin::{Header, PluginError, Reason, Request, Verdict, encoding, header};

use crate::crc32::crc32;

/// In the order that [`verify`] takes them.
pub(crate) const HEADERS: [&str; 5] = [
    "paypal-transmission-id",
    "paypal-transmission-time",
    "paypal-transmission-sig",
    "paypal-cert-url",
    "paypal-auth-algo",
];

/// PayPal publishes no tolerance for the time of transmission, so that its age is not judged.
pub(crate) fn verify(request: &Request, webhook_id: &str) -> Result<Verdict, PluginError> {
    let [id, time, signature, url, algorithm] = match read(&request.headers) {
        Ok(lines) => lines,
        Err((reason, detail)) => return Ok(Verdict::invalid(reason, detail)),
    };
    if !algorithm.eq_ignore_ascii_case("SHA256withRSA") {
        return Ok(Verdict::invalid(Reason::UnknownKey, "signed with an algorithm that is not known here"));
    }
    let Some(signature) = encoding::base64(signature) else {
        return Ok(Verdict::invalid(Reason::BadSignature, "the signature is not base64"));
    };
    let message = [crypto::bytes(format!("{id}|{time}|{webhook_id}|{}", crc32(&request.body)))];
    match crypto::certificate_verify(url, Scheme::RsaPkcs1Sha256, &message, &signature) {
        Ok(true) => Ok(Verdict::Verified),
        Ok(false) | Err(CryptoError::BadSignatureForm) => {
            Ok(Verdict::invalid(Reason::BadSignature, "the certificate's key did not sign this"))
        }
        Err(CryptoError::UntrustedUrl) => {
            Ok(Verdict::invalid(Reason::UntrustedCertificate, "the certificate is not from one of the route's hosts"))
        }
        Err(CryptoError::BadKey) => {
            Ok(Verdict::invalid(Reason::UntrustedCertificate, "the certificate is not one that the route trusts"))
        }
        Err(error) => Err(error.into()),
    }
}

/// The lines, each there once. A `|` could move text from one signed part into the next.
fn read(headers: &[Header]) -> Result<[&str; 5], (Reason, String)> {
    let mut lines = [""; 5];
    for (line, name) in lines.iter_mut().zip(HEADERS) {
        *line = match header::one(headers, name) {
            Ok(Some(line)) if !line.contains('|') => line,
            Ok(Some(_)) => return Err((Reason::Malformed, format!("the {name} header has a |"))),
            Ok(None) => return Err((Reason::MissingSignature, format!("no {name} header"))),
            Err(fault) => return Err((Reason::Malformed, format!("the {name} header {}", fault.as_str()))),
        };
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(change: impl Fn(&mut Vec<Header>)) -> Option<Reason> {
        let line = |name: &str| Header { name: name.to_owned(), value: b"x".to_vec() };
        let mut headers = HEADERS.map(line).to_vec();
        change(&mut headers);
        read(&headers).map_err(|(reason, _)| reason).err()
    }

    #[test]
    fn every_header_comes_once_and_without_a_bar() {
        assert_eq!(reason(|_| ()), None);
        for place in 0..HEADERS.len() {
            assert_eq!(reason(|headers| drop(headers.remove(place))), Some(Reason::MissingSignature));
            assert_eq!(reason(|headers| headers.push(headers[place].clone())), Some(Reason::Malformed));
            assert_eq!(reason(|headers| headers[place].value = b"a|b".to_vec()), Some(Reason::Malformed));
        }
    }
}
