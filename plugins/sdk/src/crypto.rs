//! Cryptography, which runs in the gateway: a plugin names a secret and never sees it.

pub use crate::bindings::onceward::plugin::crypto::{
    CryptoError, Hash, KeyEncoding, Part, Scheme, certificate_verify, digest, digest_with_secret_verify, hmac_sign,
    hmac_verify, secret_equals, signature_verify,
};

/// How many signatures of one request a plugin should try. Each costs a pass over the whole body for every active secret, and
/// the sender is not known yet; senders in a rotation send two.
pub const CANDIDATES_MAX: usize = 8;

/// Bytes as a part of a message.
pub fn bytes(text: impl AsRef<[u8]>) -> Part {
    Part::Bytes(text.as_ref().to_vec())
}
