//! What a claim's holder owes: renew the lease while it works, write the outcome, and give back what it did not use.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::event::{ScopeKey, Timestamp};
use crate::idempotency::policy::OnStoreDown;
use crate::idempotency::record::{Fence, Lease, Status, UnknownReason};
use crate::idempotency::{Claim, Draft, Expect, Outcome, Owner, Policy, Record, State, on_outcome};
use crate::store::{Seen, StoreError, Swap};

use super::admission::wall_clock_ms;
use super::audit;
use super::claiming::pipelined;
use super::dedupe::{Dedupe, Held, Kept};
use super::journal::{Entry, JournalError};

/// What became of an outcome.
#[derive(Debug)]
pub enum Finish {
    /// Written.
    Kept {
        /// When the store forgets it.
        expires_at: Timestamp,
    },
    /// The lease was lost and somebody else finished the event: the winner's answer counts.
    Superseded(Kept),
    /// The lease was lost, and nobody else has an answer for this sender.
    Lost,
    /// The store did not take it. It is tried until the lease ends.
    Unwritten(StoreError),
}

impl Dedupe {
    /// Runs `work` while renewing the leases of its claims, and returns what it made. A lease that is lost ends the renewal,
    /// not the work: bytes may be at the upstream already.
    pub async fn renewing<T>(&self, held: &[Held], policy: &Policy, work: impl Future<Output = T>) -> T {
        let third = (policy.lease / 3).max(Duration::from_millis(1));
        let mut beat = interval_at(Instant::now() + third, third);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let renewal = async {
            let mut live: Vec<&Held> = held.iter().collect();
            while !live.is_empty() {
                beat.tick().await;
                let mut renewing = Vec::with_capacity(live.len());
                for held in &live {
                    renewing.push(self.renew(held, policy).boxed());
                }
                let mut kept = pipelined(renewing).await.into_iter();
                live.retain(|_| kept.next().unwrap_or(false));
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            made = work => made,
            never = renewal => match never {},
        }
    }

    /// Whether the claims still hold just before something is sent under them. A process that was stopped in between may have lost
    /// them to another one; only where the steady clock says so is the store asked.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn hold_still(&self, held: &[Held], policy: &Policy) -> Result<bool, StoreError> {
        for held in held.iter().filter(|held| held.since.elapsed() >= policy.lease) {
            // In any lease state: whoever took the claim over has changed its fence, and nobody takes it over once it is renewed.
            let expect = held.claim.expect(Status::Processing, Lease::Any);
            if let Swap::Refused(_) = self.store.swap(&held.key, expect, &held.claim.heartbeat(policy)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the claim is worth another beat. A store that does not answer may yet: only a refusal says that it is over.
    async fn renew(&self, held: &Held, policy: &Policy) -> bool {
        let expect = held.claim.expect(Status::Processing, Lease::Live);
        match self.store.swap(&held.key, expect, &held.claim.heartbeat(policy)).await {
            Ok(Swap::Done(_)) => true,
            Ok(Swap::Refused(_)) => {
                tracing::warn!(idempotency_key = %held.key, fence = held.claim.fence, "the lease was lost while the forward runs");
                false
            }
            Err(error) => {
                tracing::warn!(idempotency_key = %held.key, %error, "the lease could not be renewed; trying again");
                true
            }
        }
    }

    /// Writes how an attempt ended, and wakes who waits for it. A store that fails is tried again in the background until the
    /// lease ends; the caller does not wait for that.
    pub async fn finish(&self, held: &Held, outcome: Outcome, policy: &Policy) -> Finish {
        if let Outcome::Ambiguous { reason, .. } = outcome {
            audit::unknown_outcome(held, reason);
        }
        let draft = on_outcome(&held.claim, outcome, policy);
        let finish = self.write_outcome(held, &draft, policy).await;
        self.shared.waiters.wake(&held.key.digest());
        if let Finish::Unwritten(error) = &finish {
            tracing::warn!(idempotency_key = %held.key, %error, "the outcome is not written yet; trying until the lease ends");
            // On the disk before the sender is answered: this process may end before the store is back.
            let entry = self.shared.journal.write(Entry::claimed(held, &draft, wall_clock_ms())).await;
            let (dedupe, held, policy) = (self.clone(), held.clone(), policy.clone());
            self.tasks.spawn(async move {
                let written = dedupe.finish_late(&held, &draft, &policy).await;
                dedupe.after_late(&held, written, entry).await;
            });
        }
        finish
    }

    /// Whether the store took the outcome before the lease ended.
    async fn finish_late(&self, held: &Held, draft: &Draft, policy: &Policy) -> bool {
        let end = Instant::now() + policy.lease;
        let mut pause = Duration::from_millis(50);
        while Instant::now() + pause < end {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
            if !matches!(self.write_outcome(held, draft, policy).await, Finish::Unwritten(_)) {
                self.shared.waiters.wake(&held.key.digest());
                return true;
            }
        }
        false
    }

    /// What the store did not take while the lease ran stays in the journal, and is settled when the store is back.
    async fn after_late(&self, held: &Held, written: bool, entry: Result<Entry, JournalError>) {
        if !written {
            audit::finalise_failure(held);
        }
        match entry {
            Ok(entry) if written => self.shared.journal.done(&entry).await,
            Ok(entry) => self.shared.journal.hand_over(entry),
            Err(error) if written => {
                tracing::warn!(%error, "an outcome was not in the journal while the store was down")
            }
            Err(error) => {
                tracing::error!(target: "onceward::audit", idempotency_key = %held.key, %error, "an outcome is lost");
            }
        }
    }

    async fn write_outcome(&self, held: &Held, draft: &Draft, policy: &Policy) -> Finish {
        let mut draft = Cow::Borrowed(draft);
        let mut expect = held.claim.expect(Status::Processing, Lease::Any);
        // Twice, since the same fence may also stand as `unknown`, written by this owner before the outcome was known.
        for _ in 0..2 {
            match self.store.swap(&held.key, expect, &draft).await {
                Ok(Swap::Done(record)) => return Finish::Kept { expires_at: record.expires_at },
                Ok(Swap::Refused(met)) => match met.current {
                    Some(record)
                        if record.fence == held.claim.fence && record.state.status() == draft.state.status() =>
                    {
                        return Finish::Kept { expires_at: record.expires_at };
                    }
                    Some(record) if record.fence == held.claim.fence && record.state.status() == Status::Unknown => {
                        expect = held.claim.expect(Status::Unknown, Lease::Any);
                    }
                    // The store was emptied under the claim. Nobody holds the event: what is known of it is worth keeping.
                    None if expect != Expect::Absent => {
                        tracing::warn!(idempotency_key = %held.key, "the claim is gone from the store; the outcome is written anew");
                        expect = Expect::Absent;
                        draft.to_mut().fence = Fence::Next { floor: held.claim.fence };
                    }
                    current => return self.lost(held, current, policy).await,
                },
                Err(error) => return Finish::Unwritten(error),
            }
        }
        Finish::Lost
    }

    /// Another owner has the event. Its answer is the one that redeliveries will get, so this sender gets it too, if it comes
    /// within the route's patience.
    async fn lost(&self, held: &Held, mut current: Option<Record>, policy: &Policy) -> Finish {
        let by = current.as_ref().map(|record| record.fence);
        audit::lease_lost(held, by);
        let end = Instant::now() + policy.in_flight.wait;
        loop {
            match current {
                Some(Record { state: State::Succeeded { response }, expires_at, .. }) => {
                    return Finish::Superseded(Kept { response, expires_at, compared: true });
                }
                Some(Record { state: State::Processing, .. }) if Instant::now() < end => {}
                _ => return Finish::Lost,
            }
            sleep(Duration::from_millis(100)).await;
            current = match self.store.peek(&held.key).await {
                Ok(seen) => seen.current,
                Err(_) => return Finish::Lost,
            };
        }
    }

    /// One write over a claim that no forward was made for.
    async fn hand_in(&self, held: &Held, outcome: Outcome, policy: &Policy) -> Result<Swap, StoreError> {
        let draft = on_outcome(&held.claim, outcome, policy);
        self.store.swap(&held.key, held.claim.expect(Status::Processing, Lease::Any), &draft).await
    }

    /// Gives a claim back of which nothing was sent: the next delivery claims at once.
    pub(super) async fn give_back(&self, held: &Held, why: &str, policy: &Policy) {
        if let Err(error) = self.hand_in(held, Outcome::Unsent { error: why.to_owned() }, policy).await {
            tracing::warn!(idempotency_key = %held.key, %error, "a claim could not be given back; looking for it");
            self.give_back_if_found(held.claim.owner.clone(), held.key.clone(), policy.clone());
        }
        self.shared.waiters.wake(&held.key.digest());
    }

    /// A claim's write went out and no answer came: nothing will be forwarded for it, so it must not park the event. Looks for it
    /// by its owner until the store has answered and a lease has passed, since the write may still be on its way.
    pub(super) fn give_back_if_found(&self, owner: Owner, key: ScopeKey, policy: Policy) {
        let dedupe = self.clone();
        self.tasks.spawn(async move {
            let end = Instant::now() + policy.lease;
            let mut pause = Duration::from_millis(100);
            let mut answered = false;
            while !answered || Instant::now() < end {
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
                match dedupe.store.peek(&key).await {
                    Ok(Seen { current: Some(record), .. }) if is_claim_of(&record, &owner) => {
                        let since = Instant::now();
                        let held = Held { key: key.clone(), claim: Claim::of(&record), before: None, since };
                        if dedupe.hand_in(&held, lost_claim(&policy), &policy).await.is_ok() {
                            tracing::info!(idempotency_key = %key, "a claim whose answer was lost was given back");
                            return;
                        }
                    }
                    Ok(_) => answered = true,
                    Err(_) => {}
                }
            }
        });
    }
}

/// What became of a claim whose write was in doubt: nothing was sent, unless the route forwards also without a claim.
fn lost_claim(policy: &Policy) -> Outcome {
    let error = "the store's answer to the claim was lost".to_owned();
    match policy.store_down {
        OnStoreDown::Reject => Outcome::Unsent { error },
        OnStoreDown::Forward => Outcome::Ambiguous { reason: UnknownReason::Broken, error },
    }
}

fn is_claim_of(record: &Record, owner: &Owner) -> bool {
    record.state == State::Processing && record.owner == *owner
}
