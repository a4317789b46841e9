//! `X-Slack-Signature: v0=HEX`: HMAC-SHA256 over `v0:timestamp:body`.

use onceward_plugin::crypto::{self, Hash, Part};
use onceward_plugin::signature::{Encoding, HeaderMac};
use onceward_plugin::{PluginError, Reason, Request, Tolerance, Verdict, header, unix_seconds};

pub(crate) const SIGNATURE: &str = "x-slack-signature";
pub(crate) const TIMESTAMP: &str = "x-slack-request-timestamp";

const MAC: HeaderMac = HeaderMac { header: SIGNATURE, prefix: "v0=", encoding: Encoding::Hex, hash: Hash::Sha256 };

/// The signature first and its age second, so that only Slack itself can learn that a timestamp is stale.
pub(crate) fn verify(request: &Request, secret: &str, tolerance: Tolerance) -> Result<Verdict, PluginError> {
    let timestamp = match header::one(&request.headers, TIMESTAMP) {
        Ok(Some(timestamp)) => timestamp,
        Ok(None) => return Ok(Verdict::invalid(Reason::MissingSignature, format!("no {TIMESTAMP} header"))),
        Err(fault) => {
            return Ok(Verdict::invalid(Reason::Malformed, format!("the {TIMESTAMP} header {}", fault.as_str())));
        }
    };
    let Some(signed_at_s) = unix_seconds(timestamp) else {
        return Ok(Verdict::invalid(Reason::Malformed, "the timestamp is not a Unix time"));
    };
    let message = [crypto::bytes(format!("v0:{timestamp}:")), Part::Body];
    Ok(match MAC.verify(request, secret, &message)? {
        Verdict::Verified => tolerance.judge(signed_at_s, request),
        other => other,
    })
}
