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

/// Whether the key `spki` (DER) signed the message.
pub(super) fn signed_by(spki: &[u8], scheme: Scheme, message: &Pieces<'_>, signed: &[u8]) -> Result<bool, Fault> {
    let key = ParsedPublicKey::new(algorithm(scheme, signed)?, spki).map_err(|_| Fault::BadKey)?;
    Ok(key.verify_sig(&message.concat(), signed).is_ok())
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

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
        RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
    };
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

    use super::*;

    const MESSAGE: [&[u8]; 3] = [b"what do ya ", b"", b"want for nothing?"];

    fn secrets(texts: &[&str]) -> Vec<Secret> {
        texts.iter().map(|text| Secret::new(*text)).collect()
    }

    fn pem(der: &[u8]) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    /// RFC 4231 (SHA-2) and RFC 2202 (SHA-1), test case 2: a message in pieces is the message.
    #[test]
    fn hmac_fits_the_published_vectors() {
        for (hash, tag) in [
            (Hash::Sha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            (Hash::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Hash::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            let tag = hex::decode(tag).unwrap();
            let keys = secrets(&["other", "Jefe"]);
            assert_eq!(hmac_verify(&keys, KeyEncoding::Utf8, hash, &MESSAGE, &tag), Ok(true));
            assert_eq!(hmac_sign(&keys[1..], KeyEncoding::Utf8, hash, &MESSAGE), Ok(tag.clone()));
            for wrong in [&tag[1..], &tag[..tag.len() - 1], &[], &[0; 64]] {
                assert_eq!(hmac_verify(&keys, KeyEncoding::Utf8, hash, &MESSAGE, wrong), Ok(false));
            }
        }
    }

    /// The newest secret signs; the key is one however it is written.
    #[test]
    fn key_encodings_are_read_as_the_interface_says() {
        let tag = |encoding, text: &str| hmac_sign(&secrets(&[text]), encoding, Hash::Sha256, &MESSAGE);
        let plain = tag(KeyEncoding::Utf8, "key?");
        assert_eq!(tag(KeyEncoding::Hex, "6b65793f"), plain);
        assert_eq!(tag(KeyEncoding::Hex, "6B65793F"), plain);
        for text in ["a2V5Pw==", "a2V5Pw", "whsec_a2V5Pw==", "whsec_a2V5Pw"] {
            assert_eq!(tag(KeyEncoding::Base64, text), plain, "{text}");
        }
        let sha1 = hex::encode(digest(Hash::Sha1, &[b"key?"]));
        assert_eq!(tag(KeyEncoding::Sha1Utf8, "key?"), tag(KeyEncoding::Hex, &sha1));
        // `utf8` takes the text as it is, prefix and all.
        assert_ne!(tag(KeyEncoding::Utf8, "whsec_key?"), plain);
        for (encoding, text) in
            [(KeyEncoding::Hex, "xyz"), (KeyEncoding::Base64, "whsec_whsec_a2V5Pw"), (KeyEncoding::Base64, "?")]
        {
            assert_eq!(tag(encoding, text), Err(Fault::BadKey), "{text}");
        }
        let newest = hmac_sign(&secrets(&["xyz", "6b65793f", "00"]), KeyEncoding::Hex, Hash::Sha256, &MESSAGE);
        assert_eq!(newest, plain, "what does not decode is skipped");
    }

    /// Everybody knows a public key and the empty text: neither proves anything.
    #[test]
    fn what_everybody_knows_is_no_secret() {
        let known = secrets(&["", "whpk_a2V5Pw==", " whpk_a2V5Pw==", "-----BEGIN PUBLIC KEY-----"]);
        for encoding in [KeyEncoding::Utf8, KeyEncoding::Hex, KeyEncoding::Base64, KeyEncoding::Sha1Utf8] {
            assert_eq!(hmac_verify(&known, encoding, Hash::Sha256, &MESSAGE, &[0; 32]), Err(Fault::BadKey));
        }
        assert_eq!(secret_equals(&known, b""), Err(Fault::BadKey));
        assert_eq!(digest_with_secret_verify(&known, Hash::Sha256, &[], &[]), Err(Fault::BadKey));
        assert_eq!(secret_equals(&[], b""), Err(Fault::BadKey));
    }

    #[test]
    fn tokens_and_appended_secrets_are_compared_whole() {
        let keys = secrets(&["new", "old"]);
        for (candidate, equal) in [(&b"new"[..], true), (b"old", true), (b"ol", false), (b"older", false), (b"", false)]
        {
            assert_eq!(secret_equals(&keys, candidate), Ok(equal));
        }
        let expected = digest(Hash::Sha512, &[b"order1", b"200", b"old"]);
        assert_eq!(digest_with_secret_verify(&keys, Hash::Sha512, &[b"order1200"], &expected), Ok(true));
        assert_eq!(digest_with_secret_verify(&keys, Hash::Sha512, &[b"order1201"], &expected), Ok(false));
    }

    fn check(keys: &[Secret], scheme: Scheme, signed: &[u8]) {
        assert_eq!(signature_verify(keys, scheme, &MESSAGE, signed), Ok(true), "{scheme:?}");
        assert_eq!(signature_verify(keys, scheme, &[b"another"], signed), Ok(false), "{scheme:?}");
        let mut wrong = signed.to_vec();
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(signature_verify(keys, scheme, &MESSAGE, &wrong), Ok(false), "{scheme:?}");
        assert_eq!(signature_verify(keys, scheme, &MESSAGE, b""), Err(Fault::BadSignatureForm), "{scheme:?}");
        let unusable = secrets(&["whsec_a2V5", "text", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]);
        assert_eq!(signature_verify(&unusable, scheme, &MESSAGE, signed), Err(Fault::BadKey), "{scheme:?}");
        let both: Vec<Secret> = unusable.iter().chain(keys).cloned().collect();
        assert_eq!(signature_verify(&both, scheme, &MESSAGE, signed), Ok(true), "{scheme:?}");
    }

    #[test]
    fn ed25519_keys_come_bare_prefixed_or_as_pem() {
        let pair = Ed25519KeyPair::generate().unwrap();
        let signed = pair.sign(&MESSAGE.concat());
        let raw = pair.public_key().as_ref();
        let der = pair.public_key().as_der().unwrap();
        for key in [STANDARD.encode(raw), format!("whpk_{}", STANDARD_NO_PAD.encode(raw)), pem(der.as_ref())] {
            check(&secrets(&[&key]), Scheme::Ed25519, signed.as_ref());
        }
        let other = STANDARD.encode(Ed25519KeyPair::generate().unwrap().public_key().as_ref());
        assert_eq!(signature_verify(&secrets(&[&other]), Scheme::Ed25519, &MESSAGE, signed.as_ref()), Ok(false));
    }

    #[test]
    fn ecdsa_signatures_come_in_both_forms() {
        for algorithm in [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P256_SHA256_FIXED_SIGNING] {
            let pair = EcdsaKeyPair::generate(algorithm).unwrap();
            let key = secrets(&[&pem(pair.public_key().as_der().unwrap().as_ref())]);
            let signed = pair.sign(&SystemRandom::new(), &MESSAGE.concat()).unwrap();
            check(&key, Scheme::EcdsaP256Sha256, signed.as_ref());
            assert_eq!(signature_verify(&key, Scheme::RsaPssSha256, &MESSAGE, signed.as_ref()), Err(Fault::BadKey));
        }
    }

    #[test]
    fn rsa_schemes_are_not_mixed() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let key = secrets(&[&pem(pair.public_key().as_der().unwrap().as_ref())]);
        let sign = |encoding: &'static dyn RsaEncoding| {
            let mut signed = vec![0; pair.public_modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), &MESSAGE.concat(), &mut signed).unwrap();
            signed
        };
        let (pkcs1, pss) = (sign(&RSA_PKCS1_SHA256), sign(&RSA_PSS_SHA256));
        check(&key, Scheme::RsaPkcs1Sha256, &pkcs1);
        check(&key, Scheme::RsaPssSha256, &pss);
        assert_eq!(signature_verify(&key, Scheme::RsaPkcs1Sha256, &MESSAGE, &pss), Ok(false));
        assert_eq!(signature_verify(&key, Scheme::RsaPssSha256, &MESSAGE, &pkcs1), Ok(false));
    }
}
