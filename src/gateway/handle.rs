//! One request's journey, on one screen.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;

use crate::config::model::Mode;
use crate::idempotency::Owner;
use crate::idempotency::policy::OnStoreDown;
use crate::store::StoreFault;

use super::admission::{Admitted, Peer, admit, wall_clock_ms};
use super::dedupe::Begin;
use super::forward::{Exchange, exchange, passing};
use super::identity::Identity;
use super::inspect::Inspected;
use super::rejection::Rejection;
use super::reply::{IdempotencyStatus, Reply, full};
use super::trail::Trail;
use super::{Body, Gateway, headers};

/// How much of an answer that is not kept is collected before it is passed on as it comes, in bytes.
const UNKEPT_MAX: usize = 64 * 1024;

impl Gateway {
    /// Answers one request. The future may be dropped when the client hangs up: until the body is whole nothing has happened,
    /// and from there on the journey runs in a task of its own and ends whatever becomes of the client.
    pub async fn handle(self: Arc<Self>, request: Request<Body>, peer: Peer) -> Response<Body> {
        let received_at_ms = wall_clock_ms();
        let mut trail = Trail::new(received_at_ms, Arc::clone(&self.unrouted));
        let event = trail.event.clone();
        let admitted = match admit(&self, request, peer, received_at_ms, &mut trail).await {
            Ok(admitted) => admitted,
            Err(rejection) => return self.answer(&trail, Err(rejection)),
        };
        let gateway = Arc::clone(&self);
        let journey = self.dedupe.tasks.spawn(async move {
            let result = gateway.journey(&admitted, &mut trail).await;
            gateway.answer(&trail, result)
        });
        // A panic in one journey is that request's own fault; its claim is left to its lease.
        journey.await.unwrap_or_else(|_| Rejection::Internal.into_response(Some(&event)).map(full))
    }

    /// From a whole delivery to its answer.
    async fn journey(self: &Arc<Self>, admitted: &Admitted, trail: &mut Trail) -> Result<Reply, Rejection> {
        let share = self.rates.of(&admitted.route.config.tenant);
        // From its whole body on, so that a slow sender takes no place; given up while it only waits for another request's answer.
        let place = share.begin().await.map_err(|reached| trail.limited(reached))?;
        let reading = match self.inspect(admitted, trail).await? {
            Inspected::Events(reading) => reading,
            Inspected::Respond(reply) => return Ok(reply),
            Inspected::Pass => return self.forward_undeduped(admitted, trail).await,
        };
        share.verified(reading.events.len()).map_err(|reached| trail.limited(reached))?;
        let ids = match reading.identify(admitted) {
            Ok(ids) => ids,
            Err(missing) => match reading.without_key(admitted, &missing, trail)? {
                Some(id) => vec![id],
                None => return self.forward_undeduped(admitted, trail).await,
            },
        };
        let owner = Owner(trail.event.clone());
        trail.identified(Identity::readable(&ids));
        let observed = admitted.route.config.mode == Mode::Observe;
        fail::fail_point!("claim.before");
        let begin = match self.dedupe.begin(&owner, &ids, admitted.terms(ids.len(), &place), trail).await {
            Ok(begin) => begin,
            Err(error) => {
                trail.undecided(&error);
                return match admitted.route.config.policy.store_down {
                    // What cannot be read was written once: the event is no stranger.
                    OnStoreDown::Forward if error.kind != StoreFault::Corrupt || observed => {
                        self.forward_beside(admitted, &ids, trail).await
                    }
                    _ => Err(Rejection::StoreUnavailable),
                };
            }
        };
        trail.decided(&begin);
        match begin {
            Begin::Fresh(items) => self.complete(admitted, &ids, items, trail).await,
            // Observed routes decide and record, and forward all the same.
            _ if observed => self.forward_undeduped(admitted, trail).await,
            Begin::Replay(kept) => Ok(Reply::replay(kept)),
            Begin::Busy { after, .. } => Err(admitted.route.in_flight(after)),
            Begin::Mismatch { fields, kept } => Err(admitted.route.mismatch(fields, kept, ids.len())),
            Begin::Held { .. } => Err(Rejection::Held),
        }
    }

    /// Forwards once and relays the answer: not an event, or a policy that does without dedupe.
    async fn forward_undeduped(&self, admitted: &Admitted, trail: &mut Trail) -> Result<Reply, Rejection> {
        let upstream = self.upstream(admitted)?;
        let deadline = Instant::now() + upstream.settings.timeout;
        let request = admitted.forward(trail).plain(upstream)?;
        let (head, body) = match admitted.route.meters.upstream(exchange(upstream, request, UNKEPT_MAX, deadline)).await
        {
            Exchange::Whole(head, body) => (head, full(body)),
            Exchange::Large(head, start, rest) => (head, passing(start, rest, deadline)),
            Exchange::Unsent(error) => return Err(trail.fault(error, Rejection::UpstreamUnreachable)),
            Exchange::Broken(error) => return Err(trail.fault(error, Rejection::UpstreamFailed)),
            Exchange::TimedOut => return Err(Rejection::UpstreamTimeout),
        };
        trail.finished("", Some(head.status.as_u16()));
        Ok(Reply::new(relay(&head, body), IdempotencyStatus::Bypassed))
    }

    fn answer(&self, trail: &Trail, result: Result<Reply, Rejection>) -> Response<Body> {
        trail.log(&result);
        match result {
            Ok(reply) => reply.into_response(&trail.event),
            Err(rejection) => {
                let status = rejection.idempotency_status();
                let response = rejection.into_response(Some(&trail.event)).map(full);
                if trail.is_routed() { Reply::new(response, status).into_response(&trail.event) } else { response }
            }
        }
    }
}

/// The upstream's answer, untouched but for what belongs to the connection.
pub(super) fn relay(head: &http::response::Parts, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers::to_sender(&head.headers);
    response
}
