//! After an outage: what the journal holds is written to the store where its place is free, or reported beside what stands there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::idempotency::record::Lease;
use crate::idempotency::{Expect, Record};
use crate::store::{Store, StoreError, StoreFault, Swap};

use super::{Entry, Journal};

/// How often it is looked for what other processes left.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long a store that does not answer is left alone.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What became of an entry.
enum Settled {
    /// The store holds the outcome: redeliveries are answered with it.
    Written,
    /// Forwarded without a claim, while another delivery's record stands.
    Beside(Box<Record>),
    /// The claim's outcome came too late: another owner has the event.
    Lost(Box<Record>),
    /// The place is free, but the fingerprint is not known: a record would answer other events too.
    Unidentified,
    /// What stands there, or the entry itself, cannot be read.
    Unreadable(String),
}

impl Settled {
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Beside(_) => "beside",
            Self::Lost(_) => "lost",
            Self::Unidentified => "unidentified",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

impl Journal {
    /// Takes over what dead processes left, and settles what can be settled at once: before a gateway serves, so that a redelivery
    /// does not meet a claim whose outcome is known here. Gives up on a store that does not answer; [`Self::keep`] goes on.
    pub async fn catch_up(&self, store: &dyn Store, patience: Duration) {
        self.adopt().await;
        if !matches!(timeout(patience, self.settle_waiting(store)).await, Ok(Ok(()))) {
            tracing::warn!("the journal waits for the store");
        }
    }

    /// Settles what comes, and what others left. Never ends.
    pub async fn keep(self, store: Arc<dyn Store>) {
        let mut look = Instant::now() + LOOK_EVERY;
        let mut pause = PAUSE_MIN;
        loop {
            let wait = match self.settle_waiting(&*store).await {
                Ok(()) => {
                    pause = PAUSE_MIN;
                    LOOK_EVERY
                }
                Err(error) => {
                    tracing::debug!(%error, "the journal waits for the store");
                    pause = (pause * 2).min(PAUSE_MAX);
                    pause
                }
            };
            // Woken by a new entry only while the store answers: one more waiting changes nothing for one that does not.
            if wait == LOOK_EVERY {
                let _ = timeout(wait, self.0.wake.notified()).await;
            } else {
                tokio::time::sleep(wait).await;
            }
            if Instant::now() >= look {
                look = Instant::now() + LOOK_EVERY;
                self.adopt().await;
            }
        }
    }

    /// Settles all that waits, oldest first, until the store does not answer.
    async fn settle_waiting(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut settled = 0_usize;
        let mut fault = None;
        while let Some(entry) = self.first() {
            match settle(store, &entry).await {
                Ok(result) => {
                    report(&entry, &result);
                    self.done(&entry).await;
                    self.drop_first();
                    settled += 1;
                }
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        if settled > 0 {
            tracing::info!(target: "onceward::audit", settled, "the journal was reconciled with the store");
        }
        fault.map_or(Ok(()), Err)
    }
}

async fn settle(store: &dyn Store, entry: &Entry) -> Result<Settled, StoreError> {
    match write(store, entry).await {
        Err(error) if error.kind == StoreFault::Corrupt => Ok(Settled::Unreadable(error.to_string())),
        other => other,
    }
}

async fn write(store: &dyn Store, entry: &Entry) -> Result<Settled, StoreError> {
    let unreadable = || Ok(Settled::Unreadable("the journal's entry cannot be read".to_owned()));
    let Some(key) = entry.key() else { return unreadable() };
    let mut seen = store.peek(&key).await?;
    // Each turn loses to another writer of this very key.
    for _ in 0..8 {
        let (expect, draft) = match &seen.current {
            None if entry.fingerprint.is_none() => return Ok(Settled::Unidentified),
            None => (Expect::Absent, entry.anew()),
            Some(record) if entry.stands_as(record) => return Ok(Settled::Written),
            Some(record) if entry.owns(record) => {
                (Expect::At { revision: record.revision(), lease: Lease::Any }, entry.over(record))
            }
            Some(record) if entry.fence.is_some() => return Ok(Settled::Lost(Box::new(record.clone()))),
            Some(record) => return Ok(Settled::Beside(Box::new(record.clone()))),
        };
        let Some(draft) = draft else { return unreadable() };
        match store.swap(&key, expect, &draft).await? {
            Swap::Done(_) => return Ok(Settled::Written),
            Swap::Refused(met) => seen = *met,
        }
    }
    Err(StoreError::new(StoreFault::Timeout, "the key changed under every write"))
}

/// One line an entry. What was forwarded a second time, or may be, is a warning.
fn report(entry: &Entry, settled: &Settled) {
    let result = settled.as_str();
    let what = match settled {
        Settled::Written => "its outcome is in the store now",
        Settled::Beside(_) => "it was forwarded beside another delivery's attempt",
        Settled::Lost(_) => "its outcome came too late: another delivery has the event",
        Settled::Unidentified => {
            "its fingerprint is not known, so nothing is kept: a redelivery is forwarded again. Set store.digest_keys to avoid this"
        }
        Settled::Unreadable(_) => "nothing is written, since what stands cannot be read",
    };
    let standing = match settled {
        Settled::Beside(record) | Settled::Lost(record) => Some(record),
        _ => None,
    };
    let (attempt, state) = (standing.map(|it| it.attempt), standing.map(|it| it.state.status().as_str()));
    let error = if let Settled::Unreadable(error) = settled { Some(error) } else { None };
    let key = entry.key().map(|key| key.readable());
    tracing::info!(
        target: "onceward::audit",
        tenant = entry.tenant,
        route = entry.route,
        event = entry.event,
        idempotency_key = key,
        forwarded_at_ms = entry.at_ms,
        fence = entry.fence,
        result,
        attempt,
        state,
        error,
        "from the journal: {what}"
    );
    metrics::counter!("onceward_store_down_reconciled_total", "result" => result).increment(1);
}
