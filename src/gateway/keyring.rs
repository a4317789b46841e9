//! Where the keys of the fingerprints come from: the config, or the store's own record, which all gateways of a store share.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::{MissedTickBehavior, interval};

use crate::store::{Found, Meta, Store, StoreError};

use super::identity::DigestKeys;

/// How often a gateway looks whether the store's record is still there. A newcomer that comes after a flush and before that makes
/// a record of its own, so the time is short.
const LOOK_EVERY: Duration = Duration::from_secs(5);

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

    /// Puts the store's record back when it is gone (flushed, restarted empty), so that gateways which start later compare with the
    /// same key; takes over another one's if that was faster. Never ends.
    pub async fn keep(&self, store: Arc<dyn Store>) {
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let Some(stored) = self.stored.load_full() else { continue };
            match store.meta(stored.meta.clone()).await {
                Ok(Found { meta: found, .. }) if found != stored.meta => {
                    tracing::error!(
                        "the store was emptied and another gateway began anew: events from before are first-seen again"
                    );
                    self.adopt(found);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the store's record could not be looked at"),
            }
        }
    }

    /// Takes a record over; the keys that were used before stay for comparing.
    fn adopt(&self, meta: Meta) -> Arc<DigestKeys> {
        let before = self.stored.load_full().filter(|stored| stored.meta != meta);
        let keys = Arc::new(match before {
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
