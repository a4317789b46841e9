//! How the helpers' errors become the plugin's, and short ways to make needs, a verdict or a value.

use crate::bindings::onceward::plugin::crypto::CryptoError;
use crate::{Field, Needs, PluginError, Reason, Refusal, Value, Verdict};

impl From<CryptoError> for PluginError {
    /// For `?` where the answer does not depend on the kind. A signature in a form that the scheme does not have is the sender's
    /// doing; match it first where the answer should be a refusal.
    fn from(error: CryptoError) -> Self {
        match error {
            CryptoError::UnknownSecret => Self::Misconfigured("the route grants no secret of this name".to_owned()),
            CryptoError::BadKey => Self::Misconfigured("no entry of the secret is a key of the wanted form".to_owned()),
            CryptoError::BadSignatureForm => Self::Malformed("the signature is not of the scheme's form".to_owned()),
            CryptoError::UntrustedUrl => {
                Self::Malformed("the certificate's URL is not one the route trusts".to_owned())
            }
            CryptoError::Unavailable => Self::Unavailable("the certificate is not there yet".to_owned()),
            CryptoError::TooLarge => Self::Malformed("the message to check is too large".to_owned()),
        }
    }
}

impl Verdict {
    /// A refusal with the route's status.
    pub fn invalid(reason: Reason, detail: impl Into<String>) -> Self {
        Self::Invalid(Refusal { reason, detail: detail.into(), status: None })
    }
}

impl Needs {
    /// Headers and one secret: all that most senders need. POST, always signed, no certificates.
    pub fn of<const N: usize>(headers: [&str; N], secret: &str) -> Self {
        Self {
            headers: headers.map(str::to_owned).to_vec(),
            secrets: vec![secret.to_owned()],
            allows_unsigned: false,
            methods: Vec::new(),
            certificate_hosts: Vec::new(),
        }
    }
}

impl Field {
    /// A material field.
    pub fn new(name: impl Into<String>, value: Value) -> Self {
        Self { name: name.into(), value }
    }
}
