//! From claims to an answer: forward once, write the outcome, answer.

use std::iter::repeat_n;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::model::Mode;
use crate::event::{StoredResponse, Timestamp};
use crate::idempotency::record::UnknownReason;
use crate::idempotency::{Outcome, Policy};
use crate::store::StoreError;

use super::admission::Admitted;
use super::claiming::pipelined;
use super::claims::Finish;
use super::dedupe::{Dedupe, Held, Item, Kept};
use super::forward::{Exchange, Part, exchange, parts_body, pump};
use super::handle::relay;
use super::identity::Identity;
use super::rejection::Rejection;
use super::reply::{IdempotencyStatus, Reply, full};
use super::trail::Trail;
use super::{Gateway, keep};

impl Gateway {
    /// Forwards a delivery whose events are claimed, and answers when the outcome is written.
    pub(super) async fn complete(
        self: &Arc<Self>,
        admitted: &Admitted,
        ids: &[Identity],
        items: Vec<Item>,
        trail: &mut Trail,
    ) -> Result<Reply, Rejection> {
        let policy = &admitted.route.config.policy;
        let prepared = self.upstream(admitted).and_then(|upstream| {
            let request = admitted.forward(trail).deduplicated(upstream, ids, &items)?;
            Ok((upstream, request))
        });
        let claims =
            Claims { dedupe: &self.dedupe, policy, held: items.into_iter().filter_map(Item::into_held).collect() };
        let (upstream, request) = match prepared {
            Ok(prepared) => prepared,
            Err(rejection) => {
                claims.finish(Outcome::Unsent { error: "the request could not be made".to_owned() }).await;
                return Err(rejection);
            }
        };
        fail::fail_point!("claim.after");
        if let Some(gone) = claims.gone().await {
            return claims.unsent(gone, admitted, trail).await;
        }
        let deadline = Instant::now() + upstream.settings.timeout;
        let working = admitted.route.meters.working(claims.held.len());
        let forward = admitted.route.meters.upstream(exchange(upstream, request, policy.replay.max_body, deadline));
        match self.dedupe.renewing(&claims.held, policy, forward).await {
            Exchange::Whole(head, body) => {
                let kept = keep::answer(&head, Some(&body), &policy.replay);
                trail.finished(state_after(policy, kept.status), Some(kept.status));
                fail::fail_point!("forward.answered");
                let finished = claims.finish(Outcome::Answered(kept)).await;
                fail::fail_point!("finalise.after");
                if finished.unwritten {
                    trail.unwritten();
                }
                let observed = admitted.route.config.mode == Mode::Observe;
                if let Some(winner) = finished.superseded.filter(|_| !observed) {
                    trail.note("the lease was lost: the winner's answer is given");
                    return Ok(Reply::replay(winner));
                }
                let mut reply = Reply::new(relay(&head, full(body)), IdempotencyStatus::First);
                reply.expires_at = finished.expires_at.filter(|_| policy.final_statuses.contains(head.status.as_u16()));
                Ok(reply)
            }
            Exchange::Large(head, start, rest) => {
                trail.finished(state_after(policy, head.status.as_u16()), Some(head.status.as_u16()));
                trail.note("the answer is larger than the route keeps: its replay will have no body");
                let (to_sender, body) = parts_body();
                let mut to_sender = Some(to_sender);
                let (dedupe, policy, held) = (self.dedupe.clone(), policy.clone(), claims.held);
                let kept = keep::answer(&head, None, &policy.replay);
                let passing = async move {
                    let _working = working;
                    let claims = Claims { dedupe: &dedupe, policy: &policy, held };
                    let pumped =
                        dedupe.renewing(&claims.held, &policy, pump(start, rest, &mut to_sender, deadline)).await;
                    pass_on(&claims, pumped, kept, to_sender).await;
                };
                self.dedupe.tasks.spawn(passing);
                Ok(Reply::new(relay(&head, body), IdempotencyStatus::First))
            }
            fault => {
                let (outcome, rejection) = fault.as_outcome();
                trail.finished(if rejection == Rejection::UpstreamUnreachable { "failed" } else { "unknown" }, None);
                trail.note(outcome.error());
                let finished = claims.finish(outcome).await;
                if finished.unwritten {
                    trail.unwritten();
                }
                finished.superseded.map_or(Err(rejection), |winner| Ok(Reply::replay(winner)))
            }
        }
    }
}

/// The claims of one delivery, finished together.
struct Claims<'a> {
    dedupe: &'a Dedupe,
    policy: &'a Policy,
    held: Vec<Held>,
}

/// What the sender is to be told after the outcome was written.
#[derive(Default)]
struct Finished {
    unwritten: bool,
    expires_at: Option<Timestamp>,
    superseded: Option<Kept>,
}

/// Why nothing may be sent under a claim.
enum Gone {
    /// Another owner has it.
    ToAnother,
    /// Its lease is over, and the store cannot say who has it.
    StoreDown(StoreError),
}

impl Claims<'_> {
    /// Whether nothing may be sent any more: a process that was stopped since it claimed must not send under an old fence.
    async fn gone(&self) -> Option<Gone> {
        match self.dedupe.hold_still(&self.held, self.policy).await {
            Ok(true) => None,
            Ok(false) => Some(Gone::ToAnother),
            Err(error) => Some(Gone::StoreDown(error)),
        }
    }

    /// Ends claims under which nothing was sent: the sender gets the winner's answer if there is one.
    async fn unsent(&self, gone: Gone, admitted: &Admitted, trail: &mut Trail) -> Result<Reply, Rejection> {
        let error = "the lease was over before anything was sent";
        trail.note(error);
        let finished = self.finish(Outcome::Unsent { error: error.to_owned() }).await;
        match (finished.superseded, gone) {
            (Some(winner), _) => Ok(Reply::replay(winner)),
            (None, Gone::ToAnother) => Err(admitted.route.in_flight(self.policy.lease)),
            (None, Gone::StoreDown(error)) => Err(trail.fault(error, Rejection::StoreUnavailable)),
        }
    }

    async fn finish(&self, outcome: Outcome) -> Finished {
        let mut finished = Finished::default();
        let mut finishing = Vec::with_capacity(self.held.len());
        for (held, outcome) in self.held.iter().zip(repeat_n(outcome, self.held.len())) {
            finishing.push(self.dedupe.finish(held, outcome, self.policy).boxed());
        }
        for finish in pipelined(finishing).await {
            match finish {
                Finish::Kept { expires_at } => finished.expires_at = finished.expires_at.or(Some(expires_at)),
                Finish::Superseded(winner) => finished.superseded = finished.superseded.or(Some(winner)),
                Finish::Unwritten(_) => finished.unwritten = true,
                Finish::Lost => {}
            }
        }
        finished
    }
}

/// Ends a large answer: the last part goes out after the outcome is written, and a broken one is cut.
async fn pass_on(
    claims: &Claims<'_>,
    pumped: Result<Bytes, Exchange>,
    kept: StoredResponse,
    to_sender: Option<mpsc::Sender<Part>>,
) {
    match pumped {
        Ok(last) => {
            claims.finish(Outcome::Answered(kept)).await;
            fail::fail_point!("reply.mid");
            if let Some(to_sender) = to_sender {
                let _ = to_sender.send(Part::Last(last)).await;
            }
        }
        // Dropping the channel without a last part cuts the sender's connection.
        Err(fault) => {
            claims.finish(fault.as_outcome().0).await;
        }
    }
}

impl Exchange {
    /// What an exchange without a whole answer leaves, and what the sender is told.
    pub(super) fn as_outcome(&self) -> (Outcome, Rejection) {
        let ambiguous = |reason, error: &str| Outcome::Ambiguous { reason, error: error.to_owned() };
        match self {
            Self::Unsent(error) => (Outcome::Unsent { error: error.clone() }, Rejection::UpstreamUnreachable),
            Self::Broken(error) => (ambiguous(UnknownReason::Broken, error), Rejection::UpstreamFailed),
            Self::TimedOut => {
                (ambiguous(UnknownReason::Timeout, "the upstream did not answer in time"), Rejection::UpstreamTimeout)
            }
            Self::Whole(..) | Self::Large(..) => {
                (ambiguous(UnknownReason::Broken, "the answer was not passed on"), Rejection::Internal)
            }
        }
    }
}

fn state_after(policy: &Policy, status: u16) -> &'static str {
    if policy.final_statuses.contains(status) { "succeeded" } else { "failed" }
}
