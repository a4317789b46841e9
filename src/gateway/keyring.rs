//! Where the keys of the fingerprints come from: the config, or the store's own record, which all gateways of a store share.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::store::{Meta, Store, StoreError};

use super::identity::DigestKeys;

/// The keys of one process. Cheap to clone.
#[derive(Clone)]
pub struct Keyring {
    configured: Option<Arc<DigestKeys>>,
    stored: Arc<ArcSwapOption<Stored>>,
}

/// The store's record as it was last seen, with the keys that follow from it.
struct Stored {
    meta: Meta,
    keys: Arc<DigestKeys>,
}

impl Keyring {
    /// With the config's keys, newest first, or none.
    pub fn new(configured: Option<DigestKeys>) -> Self {
        Self { configured: configured.map(Arc::new), stored: Arc::default() }
    }

    /// The keys, asked of the store when they are first needed: it may be down when the gateway starts. The first gateway that asks
    /// a new store makes a record there, and all others get that.
    ///
    /// # Errors
    /// When the store has to be asked and does not answer.
    pub async fn get(&self, store: &dyn Store) -> Result<Arc<DigestKeys>, StoreError> {
        if let Some(keys) = self.known() {
            return Ok(keys);
        }
        Ok(self.adopt(store.meta(offer()).await?.meta))
    }

    /// The keys, if they are known already.
    pub fn known(&self) -> Option<Arc<DigestKeys>> {
        self.configured.clone().or_else(|| self.stored.load().as_ref().map(|stored| Arc::clone(&stored.keys)))
    }

    /// Looks at the store's record, and says its epoch. A record that is gone (flushed, restarted empty) is made again with the same
    /// key, so that gateways which start later compare with it, and under a new epoch, so that all others see what happened.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn look(&self, store: &dyn Store) -> Result<String, StoreError> {
        let stored = self.stored.load_full();
        let offer = match &stored {
            Some(stored) => Meta { digest_key: stored.meta.digest_key, ..offer() },
            None => offer(),
        };
        let found = store.meta(offer).await?.meta;
        if stored.is_none_or(|stored| stored.meta != found) {
            self.adopt(found.clone());
        }
        Ok(found.epoch)
    }

    /// Takes a record over; the keys that were used before stay for comparing.
    fn adopt(&self, meta: Meta) -> Arc<DigestKeys> {
        let before = self.stored.load_full();
        let keys = Arc::new(match before {
            Some(before) if before.meta.digest_key == meta.digest_key => DigestKeys::clone(&before.keys),
            Some(before) => before.keys.renewed(&meta.digest_key),
            None => DigestKeys::new(&meta.digest_key, []),
        });
        self.stored.store(Some(Arc::new(Stored { meta, keys: Arc::clone(&keys) })));
        keys
    }
}

/// The store's own record, for a store that has none yet.
fn offer() -> Meta {
    let mut epoch = [0; 16];
    let mut digest_key = [0; 32];
    #[expect(clippy::expect_used, reason = "a guessable key would be worse than a failed request")]
    getrandom::fill(&mut epoch)
        .and_then(|()| getrandom::fill(&mut digest_key))
        .expect("the system's generator gives bytes once it is seeded");
    Meta { epoch: hex::encode(epoch), digest_key }
}
