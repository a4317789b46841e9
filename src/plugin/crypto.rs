//! The cryptography that guests ask the host for, as plain functions over the secrets of one name.
//!
//! Invariants: comparisons with anything secret take the same time wherever the texts differ. Each secret of a name is tried. An
//! empty secret, or one that is a public key, never serves as a shared secret: everybody knows it.

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use aws_lc_rs::{constant_time, digest, hmac};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;

use crate::event::Secret;

/// A message in pieces, in order.
pub(super) type Pieces<'a> = [&'a [u8]];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    RsaPkcs1Sha256,
    RsaPssSha256,
    EcdsaP256Sha256,
    Ed25519,
}

/// How a secret's text becomes HMAC key bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEncoding {
    Utf8,
    Hex,
    Base64,
    Sha1Utf8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No secret of the name is a key of the asked kind.
    BadKey,
    /// No signature of the scheme has this length.
    BadSignatureForm,
}

pub(super) fn digest(hash: Hash, message: &Pieces<'_>) -> Vec<u8> {
    digest_of(hash, message.iter().copied()).as_ref().to_vec()
}

/// Whether the digest of the message with a secret's text appended is `expected`.
pub(super) fn digest_with_secret_verify(
    secrets: &[Secret],
    hash: Hash,
    message: &Pieces<'_>,
    expected: &[u8],
) -> Result<bool, Fault> {
    any_of(shared(secrets), |secret| {
        let made = digest_of(hash, message.iter().copied().chain([secret.as_bytes()]));
        same(made.as_ref(), expected)
    })
}

pub(super) fn hmac_verify(
    secrets: &[Secret],
    encoding: KeyEncoding,
    hash: Hash,
    message: &Pieces<'_>,
    tag: &[u8],
) -> Result<bool, Fault> {
    any_of(hmac_keys(secrets, encoding), |key| same(hmac(hash, &key, message).as_ref(), tag))
}

/// The tag of the newest secret that is a key.
pub(super) fn hmac_sign(
    secrets: &[Secret],
    encoding: KeyEncoding,
    hash: Hash,
    message: &Pieces<'_>,
) -> Result<Vec<u8>, Fault> {
    let key = hmac_keys(secrets, encoding).next().ok_or(Fault::BadKey)?;
    Ok(hmac(hash, &key, message).as_ref().to_vec())
}

/// ECDSA signatures are taken in both forms: 64 bytes are `r ‖ s`, all else is DER.
pub(super) fn signature_verify(
    keys: &[Secret],
    scheme: Scheme,
    message: &Pieces<'_>,
    signed: &[u8],
) -> Result<bool, Fault> {
    let algorithm = algorithm(scheme, signed)?;
    let message = message.concat();
    any_of(keys.iter().filter_map(|key| public_key(key.expose(), scheme, algorithm)), |key| {
        key.verify_sig(&message, signed).is_ok()
    })
}

/// Whether `candidate` is one of the secrets.
pub(super) fn secret_equals(secrets: &[Secret], candidate: &[u8]) -> Result<bool, Fault> {
    // Digests have one length, so that the time does not tell the secret's.
    let candidate = digest_of(Hash::Sha256, [candidate]);
    any_of(shared(secrets), |secret| same(digest_of(Hash::Sha256, [secret.as_bytes()]).as_ref(), candidate.as_ref()))
}

/// Tries every key, so that the time does not tell which one fits; `bad-key` if there is none.
fn any_of<K>(keys: impl Iterator<Item = K>, fits: impl Fn(K) -> bool) -> Result<bool, Fault> {
    keys.map(fits).fold(None, |any, fit| Some(any.unwrap_or(false) | fit)).ok_or(Fault::BadKey)
}

fn same(made: &[u8], given: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(made, given).is_ok()
}

fn digest_of<'a>(hash: Hash, message: impl IntoIterator<Item = &'a [u8]>) -> digest::Digest {
    let mut context = digest::Context::new(match hash {
        Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha512 => &digest::SHA512,
    });
    message.into_iter().for_each(|piece| context.update(piece));
    context.finish()
}

fn hmac(hash: Hash, key: &[u8], message: &Pieces<'_>) -> hmac::Tag {
    let algorithm = match hash {
        Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => hmac::HMAC_SHA256,
        Hash::Sha512 => hmac::HMAC_SHA512,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    message.iter().for_each(|piece| context.update(piece));
    context.sign()
}

/// The texts that may serve as shared secrets.
fn shared(secrets: &[Secret]) -> impl Iterator<Item = &str> {
    secrets.iter().map(Secret::expose).filter(|text| !text.is_empty() && !is_public_key(text))
}

fn is_public_key(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("whpk_") || text.starts_with("-----BEGIN")
}

fn hmac_keys(secrets: &[Secret], encoding: KeyEncoding) -> impl Iterator<Item = Vec<u8>> {
    shared(secrets)
        .filter_map(move |text| match encoding {
            KeyEncoding::Utf8 => Some(text.as_bytes().to_vec()),
            KeyEncoding::Hex => hex::decode(text).ok(),
            KeyEncoding::Base64 => base64(text.strip_prefix("whsec_").unwrap_or(text)),
            KeyEncoding::Sha1Utf8 => Some(digest(Hash::Sha1, &[text.as_bytes()])),
        })
        .filter(|key| !key.is_empty())
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let padding = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD, padding).decode(text).ok()
}

fn algorithm(scheme: Scheme, signed: &[u8]) -> Result<&'static dyn VerificationAlgorithm, Fault> {
    let fits = if scheme == Scheme::Ed25519 { signed.len() == 64 } else { !signed.is_empty() };
    if !fits {
        return Err(Fault::BadSignatureForm);
    }
    Ok(match scheme {
        Scheme::RsaPkcs1Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Scheme::RsaPssSha256 => &signature::RSA_PSS_2048_8192_SHA256,
        Scheme::EcdsaP256Sha256 if signed.len() == 64 => &signature::ECDSA_P256_SHA256_FIXED,
        Scheme::EcdsaP256Sha256 => &signature::ECDSA_P256_SHA256_ASN1,
        Scheme::Ed25519 => &signature::ED25519,
    })
}

fn public_key(text: &str, scheme: Scheme, algorithm: &'static dyn VerificationAlgorithm) -> Option<ParsedPublicKey> {
    let text = text.trim();
    let bytes = if text.starts_with("-----BEGIN") {
        SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).ok()?.to_vec()
    } else if scheme == Scheme::Ed25519 && !text.starts_with("whsec_") {
        let raw = base64(text.strip_prefix("whpk_").unwrap_or(text))?;
        (raw.len() == 32).then_some(raw)?
    } else {
        return None;
    };
    ParsedPublicKey::new(algorithm, bytes).ok()
}
