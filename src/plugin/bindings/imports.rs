//! What guests may call: the log and the crypto interface. Linked by hand, so that a message is hashed where it lies in the guest's
//! memory, and so that the work is charged to the guest's fuel before it is done.

use wasmtime::Trap;
use wasmtime::component::{ComponentType, Lift, Linker, LinkerInstance, WasmList, WasmStr};

use super::Caller;
use super::generated::onceward::plugin::{crypto as wit, log};
use crate::event::Secret;
use crate::plugin::certificates;
use crate::plugin::crypto::{self, Fault, Hash, KeyEncoding, Scheme};
use crate::plugin::host::{Ctx, Level};

/// Fuel for any call into the host.
const FUEL_CALL: u64 = 500;
/// Fuel for a byte hashed, once a secret tried.
const FUEL_BYTE: u64 = 2;
/// Fuel for one check of a public-key signature, once a key tried: about as long as the guest would run for it.
const FUEL_SIGNATURE: u64 = 150_000;
/// Fuel for a check by certificate: the message's signature, and one for each link of the longest chain.
const FUEL_CERTIFICATE: u64 = 5 * FUEL_SIGNATURE;
/// Tags that one call may have made, and the longest message for one, in bytes: enough for a challenge, of little use as an oracle.
const SIGNATURES_MAX: u32 = 4;
const SIGNED_MESSAGE_MAX: usize = 4096;
/// Pieces of one message.
const PARTS_MAX: usize = 1024;

/// A piece of a message. The generated type would copy the bytes out of the guest first.
#[derive(ComponentType, Lift)]
#[component(variant)]
enum Part {
    #[component(name = "body")]
    Body,
    #[component(name = "bytes")]
    Bytes(WasmList<u8>),
}

/// Gives guests the two interfaces. Nothing else is linked: no clock, no randomness, no files, no network.
pub(in crate::plugin) fn link(linker: &mut Linker<Ctx>) -> wasmtime::Result<()> {
    linker.instance("onceward:plugin/log@0.1.0")?.func_wrap("write", write)?;
    let mut crypto = linker.instance("onceward:plugin/crypto@0.1.0")?;
    link_digests(&mut crypto)?;
    link_macs(&mut crypto)?;
    link_signatures(&mut crypto)
}

fn write(mut caller: Caller<'_>, (level, message): (log::Level, WasmStr)) -> wasmtime::Result<()> {
    let text = message.to_str(&caller)?;
    // A line that will not be kept is not copied; what was read of it is paid all the same.
    let kept = (text.len() <= caller.data().log.room()).then(|| text.to_string());
    let fuel = FUEL_CALL.saturating_add(text.len() as u64);
    charge(&mut caller, fuel)?;
    let level = match level {
        log::Level::Debug => Level::Debug,
        log::Level::Info => Level::Info,
        log::Level::Warn => Level::Warn,
        log::Level::Error => Level::Error,
    };
    match kept {
        Some(text) => caller.data_mut().log.write(level, &text),
        None => caller.data_mut().log.dropped += 1,
    }
    Ok(())
}

fn link_digests(crypto: &mut LinkerInstance<'_, Ctx>) -> wasmtime::Result<()> {
    crypto.func_wrap("digest", |mut caller: Caller<'_>, (hash, message): (wit::Hash, Vec<Part>)| {
        pay(&mut caller, &message, 1, 0)?;
        Ok((crypto::digest(hash.into(), &pieces(&caller, &message)),))
    })?;
    crypto.func_wrap(
        "digest-with-secret-verify",
        |mut caller: Caller<'_>, (name, hash, message, expected): (String, wit::Hash, Vec<Part>, WasmList<u8>)| {
            with_secrets(&mut caller, &name, &message, 0, |caller, secrets, pieces| {
                crypto::digest_with_secret_verify(secrets, hash.into(), pieces, expected.as_le_slice(caller))
            })
        },
    )
}

fn link_macs(crypto: &mut LinkerInstance<'_, Ctx>) -> wasmtime::Result<()> {
    crypto.func_wrap(
        "hmac-verify",
        |mut caller: Caller<'_>,
         (name, encoding, hash, message, tag): (String, wit::KeyEncoding, wit::Hash, Vec<Part>, WasmList<u8>)| {
            with_secrets(&mut caller, &name, &message, 0, |caller, secrets, pieces| {
                crypto::hmac_verify(secrets, encoding.into(), hash.into(), pieces, tag.as_le_slice(caller))
            })
        },
    )?;
    crypto.func_wrap(
        "hmac-sign",
        |mut caller: Caller<'_>, (name, encoding, hash, message): (String, wit::KeyEncoding, wit::Hash, Vec<Part>)| {
            if length(&caller, &message) > SIGNED_MESSAGE_MAX || caller.data().signatures >= SIGNATURES_MAX {
                charge(&mut caller, FUEL_CALL)?;
                return Ok((Err(wit::CryptoError::TooLarge),));
            }
            caller.data_mut().signatures += 1;
            with_secrets(&mut caller, &name, &message, 0, |_, secrets, pieces| {
                crypto::hmac_sign(secrets, encoding.into(), hash.into(), pieces)
            })
        },
    )?;
    crypto.func_wrap("secret-equals", |mut caller: Caller<'_>, (name, candidate): (String, WasmList<u8>)| {
        with_secrets(&mut caller, &name, &[], candidate.len() as u64, |caller, secrets, _| {
            crypto::secret_equals(secrets, candidate.as_le_slice(caller))
        })
    })
}

fn link_signatures(crypto: &mut LinkerInstance<'_, Ctx>) -> wasmtime::Result<()> {
    crypto.func_wrap(
        "signature-verify",
        |mut caller: Caller<'_>, (name, scheme, message, signed): (String, wit::Scheme, Vec<Part>, WasmList<u8>)| {
            with_secrets(&mut caller, &name, &message, FUEL_SIGNATURE, |caller, keys, pieces| {
                crypto::signature_verify(keys, scheme.into(), pieces, signed.as_le_slice(caller))
            })
        },
    )?;
    crypto.func_wrap(
        "certificate-verify",
        |mut caller: Caller<'_>, (url, scheme, message, signed): (String, wit::Scheme, Vec<Part>, WasmList<u8>)| {
            charge(&mut caller, url.len() as u64)?;
            pay(&mut caller, &message, 1, FUEL_CERTIFICATE)?;
            if message.len() > PARTS_MAX {
                return Ok((Err(wit::CryptoError::TooLarge),));
            }
            // `unavailable` has the sender retry: nothing unverified passes, and once there are certificates the same deliveries
            // come again.
            let Some((certificates, at)) = caller.data().certificates() else {
                return Ok((Err(wit::CryptoError::Unavailable),));
            };
            let pieces = pieces(&caller, &message);
            let verdict = certificates.verify(&url, scheme.into(), &pieces, signed.as_le_slice(&caller), at);
            Ok((verdict.map_err(|fault| match fault {
                certificates::Fault::UntrustedUrl => wit::CryptoError::UntrustedUrl,
                certificates::Fault::Unavailable => wit::CryptoError::Unavailable,
                certificates::Fault::Untrusted => wit::CryptoError::BadKey,
                certificates::Fault::BadSignatureForm => wit::CryptoError::BadSignatureForm,
            }),))
        },
    )
}

/// Runs a check with the secrets of a name, once its cost is paid for each of them.
fn with_secrets<R>(
    caller: &mut Caller<'_>,
    name: &str,
    message: &[Part],
    fuel_each: u64,
    check: impl FnOnce(&Caller<'_>, &[Secret], &crypto::Pieces<'_>) -> Result<R, Fault>,
) -> wasmtime::Result<(Result<R, wit::CryptoError>,)> {
    let count = caller.data().secrets(name).map_or(0, <[Secret]>::len) as u64;
    charge(caller, name.len() as u64)?;
    pay(caller, message, count, fuel_each)?;
    if message.len() > PARTS_MAX {
        return Ok((Err(wit::CryptoError::TooLarge),));
    }
    let Some(secrets) = caller.data().secrets(name) else {
        return Ok((Err(wit::CryptoError::UnknownSecret),));
    };
    Ok((check(caller, secrets, &pieces(caller, message)).map_err(|fault| match fault {
        Fault::BadKey => wit::CryptoError::BadKey,
        Fault::BadSignatureForm => wit::CryptoError::BadSignatureForm,
    }),))
}

/// Charges for hashing a message `times` times.
fn pay(caller: &mut Caller<'_>, message: &[Part], times: u64, fuel_each: u64) -> wasmtime::Result<()> {
    let bytes = (length(caller, message) as u64).saturating_mul(FUEL_BYTE);
    let each = bytes.saturating_add(fuel_each).saturating_add(message.len() as u64);
    charge(caller, FUEL_CALL.saturating_add(each.saturating_mul(times)))
}

/// The message's pieces, where they lie.
fn pieces<'a>(caller: &'a Caller<'_>, message: &[Part]) -> Vec<&'a [u8]> {
    let bytes = |part: &Part| match part {
        Part::Body => caller.data().body(),
        Part::Bytes(list) => list.as_le_slice(caller),
    };
    message.iter().map(bytes).collect()
}

fn length(caller: &Caller<'_>, message: &[Part]) -> usize {
    let of = |part: &Part| match part {
        Part::Body => caller.data().body().len(),
        Part::Bytes(list) => list.len(),
    };
    message.iter().map(of).fold(0, usize::saturating_add)
}

fn charge(caller: &mut Caller<'_>, fuel: u64) -> wasmtime::Result<()> {
    let left = caller.get_fuel()?;
    caller.set_fuel(left.saturating_sub(fuel))?;
    if left < fuel { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
}

impl From<wit::Hash> for Hash {
    fn from(hash: wit::Hash) -> Self {
        match hash {
            wit::Hash::Sha1 => Self::Sha1,
            wit::Hash::Sha256 => Self::Sha256,
            wit::Hash::Sha512 => Self::Sha512,
        }
    }
}

impl From<wit::KeyEncoding> for KeyEncoding {
    fn from(encoding: wit::KeyEncoding) -> Self {
        match encoding {
            wit::KeyEncoding::Utf8 => Self::Utf8,
            wit::KeyEncoding::Hex => Self::Hex,
            wit::KeyEncoding::Base64 => Self::Base64,
            wit::KeyEncoding::Sha1Utf8 => Self::Sha1Utf8,
        }
    }
}

impl From<wit::Scheme> for Scheme {
    fn from(scheme: wit::Scheme) -> Self {
        match scheme {
            wit::Scheme::RsaPkcs1Sha256 => Self::RsaPkcs1Sha256,
            wit::Scheme::RsaPssSha256 => Self::RsaPssSha256,
            wit::Scheme::EcdsaP256Sha256 => Self::EcdsaP256Sha256,
            wit::Scheme::Ed25519 => Self::Ed25519,
        }
    }
}
