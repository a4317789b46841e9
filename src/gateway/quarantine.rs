//! What came under a known key and is another event: refused, and kept where somebody can look. One record a key, which counts.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::event::{Fingerprint, PluginVersion, ScopeKey};
use crate::idempotency::record::Lease;
use crate::idempotency::{Draft, Expect, Fence, Owner, Policy, Record, State, Ttl};
use crate::store::{Seen, StoreError, StoreFault, Swap};

use super::claiming::Asking;
use super::dedupe::{Begin, Dedupe};

/// How often one delivery tries to be counted. Of many at once one gets through each time, and the pauses between tries grow.
const TRIES: u32 = 24;

/// A delivery's event that came under another event's key.
#[derive(Clone, Debug)]
pub(super) struct Stranger {
    /// The other event's key.
    pub(super) key: ScopeKey,
    /// The names of the fields that differ.
    pub(super) fields: Vec<String>,
    /// What it said it was.
    pub(super) fingerprint: Fingerprint,
    /// The plugin that read it.
    pub(super) plugin: PluginVersion,
}

/// What all strangers of a delivery have in common.
#[derive(Clone)]
struct Came {
    owner: Owner,
    route: String,
    policy: Policy,
    request: Option<Bytes>,
}

impl Asking<'_> {
    /// Refuses a delivery with strangers in it. Their quarantine is written meanwhile, unless the sender will be told that his event
    /// is accepted: then it must be written first. That is never so for one of several events.
    pub(super) async fn refuse(&self, strangers: Vec<Stranger>, alone: bool) -> Begin {
        let fields = strangers.first().map(|stranger| stranger.fields.clone()).unwrap_or_default();
        let terms = &self.terms;
        let came = Came {
            owner: self.owner.clone(),
            route: terms.route.to_owned(),
            policy: terms.policy.clone(),
            request: terms.with_mismatch.clone(),
        };
        let dedupe = self.dedupe.clone();
        let keeping = async move {
            let mut kept = true;
            for stranger in &strangers {
                if let Err(error) = dedupe.quarantine(stranger, &came).await {
                    tracing::error!(idempotency_key = %stranger.key, %error, "a mismatch could not be written to the quarantine");
                    kept = false;
                }
            }
            kept
        };
        let accepted = alone && terms.policy.mismatch_status == 202;
        let task = self.dedupe.tasks.spawn(keeping);
        Begin::Mismatch { fields, kept: accepted && task.await.unwrap_or(false) }
    }
}

impl Dedupe {
    /// Counts a stranger in its key's quarantine.
    async fn quarantine(&self, stranger: &Stranger, came: &Came) -> Result<(), StoreError> {
        let at = stranger.key.quarantine();
        let mut seen = self.store.peek(&at).await?;
        for turn in 0..TRIES {
            // The reply to the write was lost, and it was applied.
            if seen.current.as_ref().is_some_and(|record| record.owner == came.owner) {
                return Ok(());
            }
            let (expect, draft) = one_more(stranger, &seen, came);
            match self.store.swap(&at, expect, &draft).await {
                Ok(Swap::Done(_)) => return Ok(()),
                Ok(Swap::Refused(met)) => seen = *met,
                Err(error) if error.kind == StoreFault::Unreachable => seen = self.store.peek(&at).await?,
                Err(error) => return Err(error),
            }
            sleep(pause(turn)).await;
        }
        Err(StoreError::new(StoreFault::Timeout, "the quarantine changed under every write"))
    }
}

/// The quarantine with one more in it: what the last one was, and how many there were.
fn one_more(stranger: &Stranger, seen: &Seen, came: &Came) -> (Expect, Draft) {
    let expect = match &seen.current {
        Some(record) => Expect::At { revision: record.revision(), lease: Lease::Any },
        None => Expect::Absent,
    };
    let (before, first_at) = match &seen.current {
        Some(Record { state: State::Mismatch { count, first_at, .. }, .. }) => (*count, *first_at),
        _ => (0, seen.now),
    };
    let draft = Draft {
        state: State::Mismatch { fields: stranger.fields.clone(), count: before.saturating_add(1), first_at },
        fingerprint: stranger.fingerprint.clone(),
        owner: came.owner.clone(),
        fence: Fence::Next { floor: 0 },
        attempt: 1,
        lease: None,
        ttl: Ttl::AtLeast(came.policy.open_ttl()),
        released: false,
        ambiguous: false,
        error: None,
        plugin: stranger.plugin.clone(),
        route: came.route.clone(),
        history: Vec::new(),
        request: came.request.clone(),
    };
    (expect, draft)
}

/// Random, so that those who lost together do not lose together again.
fn pause(turn: u32) -> Duration {
    let most = 1_u32 << turn.min(7);
    // Without randomness the tries are only less spread.
    let random = getrandom::u32().unwrap_or_default();
    Duration::from_millis(u64::from(random % most))
}
