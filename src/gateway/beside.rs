//! Forwards beside the store: `store_down = "forward"`. Without a claim an event may be forwarded twice; so each such forward is
//! counted, carries the business key to the upstream, and is written down here until the store is back.

use std::sync::Arc;

use tokio::time::Instant;

use crate::event::Fingerprint;
use crate::idempotency::Outcome;

use super::Gateway;
use super::admission::{Admitted, wall_clock_ms};
use super::dedupe::Dedupe;
use super::forward::{Exchange, Part, exchange, parts_body, pump};
use super::handle::relay;
use super::identity::Identity;
use super::journal::{Beside, Entry};
use super::keep;
use super::rejection::Rejection;
use super::reply::{IdempotencyStatus, Reply, full};
use super::route::Route;
use super::trail::Trail;

impl Gateway {
    /// Forwards once though nothing could be claimed, and answers when that is written down.
    pub(super) async fn forward_beside(
        self: &Arc<Self>,
        admitted: &Admitted,
        ids: &[Identity],
        trail: &mut Trail,
    ) -> Result<Reply, Rejection> {
        let upstream = self.upstream(admitted)?;
        let request = admitted.forward(trail).unclaimed(upstream, ids)?;
        let deadline = Instant::now() + upstream.settings.timeout;
        let (route, policy) = (&admitted.route, &admitted.route.config.policy);
        let (tenant, name) = (route.config.tenant.clone(), route.config.name.clone());
        tracing::warn!(target: "onceward::audit", tenant, route = name, event = trail.event, "forwarded without a claim: the store is down");
        metrics::counter!("onceward_store_down_forwards_total", "tenant" => tenant, "route" => name).increment(1);
        let unclaimed = Unclaimed {
            dedupe: self.dedupe.clone(),
            route: Arc::clone(route),
            ids: ids.to_vec(),
            event: trail.event.clone(),
        };
        match exchange(upstream, request, policy.replay.max_body, deadline).await {
            Exchange::Whole(head, body) => {
                trail.finished("", Some(head.status.as_u16()));
                unclaimed.write_down(Outcome::Answered(keep::answer(&head, Some(&body), &policy.replay))).await;
                Ok(Reply::new(relay(&head, full(body)), IdempotencyStatus::Bypassed))
            }
            Exchange::Large(head, start, rest) => {
                trail.finished("", Some(head.status.as_u16()));
                let (to_sender, body) = parts_body();
                let mut to_sender = Some(to_sender);
                let kept = keep::answer(&head, None, &policy.replay);
                self.dedupe.tasks.spawn(async move {
                    match pump(start, rest, &mut to_sender, deadline).await {
                        Ok(last) => {
                            unclaimed.write_down(Outcome::Answered(kept)).await;
                            if let Some(to_sender) = to_sender {
                                let _ = to_sender.send(Part::Last(last)).await;
                            }
                        }
                        // Dropping the channel without a last part cuts the sender's connection.
                        Err(fault) => unclaimed.write_down(fault.as_outcome().0).await,
                    }
                });
                Ok(Reply::new(relay(&head, body), IdempotencyStatus::Bypassed))
            }
            fault => {
                let (outcome, rejection) = fault.as_outcome();
                trail.note(outcome.error());
                // Of what was never sent there is nothing to tell.
                if !matches!(outcome, Outcome::Unsent { .. }) {
                    unclaimed.write_down(outcome).await;
                }
                Err(rejection)
            }
        }
    }
}

/// A delivery that is forwarded without claims.
struct Unclaimed {
    dedupe: Dedupe,
    route: Arc<Route>,
    ids: Vec<Identity>,
    event: String,
}

impl Unclaimed {
    /// Puts the outcome of each event into the journal. One that cannot be written changes no answer: the upstream has the event.
    async fn write_down(&self, outcome: Outcome) {
        let keys = self.dedupe.shared.keyring.known();
        let config = &self.route.config;
        for id in &self.ids {
            let fingerprint: Option<Fingerprint> = keys.as_ref().map(|keys| id.fingerprint(keys.newest()));
            let beside = Beside { id, fingerprint, event: &self.event, route: &config.name };
            let entry = Entry::beside(beside, outcome.clone(), &config.policy, wall_clock_ms());
            match self.dedupe.shared.journal.write(entry).await {
                Ok(entry) => self.dedupe.shared.journal.hand_over(entry),
                Err(error) => {
                    tracing::error!(target: "onceward::audit", idempotency_key = %id.key, event = self.event, %error, "a forward without a claim is not written down: a redelivery will be forwarded again");
                }
            }
        }
    }
}
