//! The keys that encrypt what is kept at rest: AES-256-GCM under keys that are derived from the configured secrets.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use crate::event::Secret;

use super::{StoreError, StoreFault};

/// Keeps these keys apart from all others that the same secret might make elsewhere.
const SALT: &[u8] = b"onceward encryption at rest 1";

/// The encryption keys, newest first: the first seals, all open. Cheap to clone; without any, nothing is sealed.
#[derive(Clone, Default)]
pub struct SealingKeys(Arc<[SealingKey]>);

struct SealingKey {
    /// 8 hex digits that say nothing about the key itself.
    id: String,
    cipher: RandomizedNonceKey,
}

/// What was sealed, and by which key.
pub struct Sealed {
    /// See [`SealingKeys::open`].
    pub key_id: String,
    /// A random nonce, then the encrypted octets and their tag.
    pub octets: Vec<u8>,
}

impl SealingKeys {
    /// From the configured secrets, newest first.
    pub fn new(secrets: &[Secret]) -> Self {
        Self(secrets.iter().map(SealingKey::derive).collect())
    }

    /// Whether there is a key to seal with.
    pub fn can_seal(&self) -> bool {
        !self.0.is_empty()
    }

    /// Seals octets under the newest key for one `place`, so that they open nowhere else; none without a key.
    pub fn seal(&self, place: &[u8], mut octets: Vec<u8>) -> Option<Sealed> {
        let key = self.0.first()?;
        #[expect(
            clippy::expect_used,
            reason = "fails only for octets longer than any that are kept, and to store them bare is worse"
        )]
        let nonce = key.cipher.seal_in_place_append_tag(Aad::from(place), &mut octets).expect("octets are sealed");
        octets.splice(0..0, *nonce.as_ref());
        Some(Sealed { key_id: key.id.clone(), octets })
    }

    /// What was sealed for this `place`.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] names the key when it is not there, or when it does not fit: the octets are damaged, or were moved.
    pub fn open(&self, place: &[u8], key_id: &str, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let corrupt = |problem: &str| Err(StoreError::new(StoreFault::Corrupt, problem));
        let mut known = self.0.iter().filter(|key| key.id == key_id).peekable();
        if known.peek().is_none() {
            return corrupt(&format!(
                "what was kept is encrypted with the key {key_id}, which is not among store.encryption_keys: add it back after the newest"
            ));
        }
        match known.find_map(|key| key.open(place, sealed)) {
            Some(opened) => Ok(opened),
            None => corrupt(&format!(
                "what was kept does not open with its key {key_id}: it is damaged, or was moved here from another record"
            )),
        }
    }
}

impl SealingKey {
    fn derive(secret: &Secret) -> Self {
        let root = Salt::new(HKDF_SHA256, SALT).extract(secret.expose().as_bytes());
        #[expect(clippy::expect_used, reason = "the derived key has the length that the cipher wants")]
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &expand::<32>(&root, b"key")).expect("a key of 32 octets");
        Self { id: hex::encode(expand::<4>(&root, b"id")), cipher }
    }

    fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, octets) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut octets = octets.to_vec();
        let opened = self.cipher.open_in_place(Nonce::from(nonce), Aad::from(place), &mut octets).ok()?.len();
        octets.truncate(opened);
        Some(octets)
    }
}

/// HKDF's second step.
fn expand<const N: usize>(root: &Prk, purpose: &[u8]) -> [u8; N] {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut octets = [0; N];
    #[expect(clippy::expect_used, reason = "HKDF makes up to 8,160 octets")]
    root.expand(&[purpose], Length(N)).and_then(|made| made.fill(&mut octets)).expect("a short key is derived");
    octets
}
