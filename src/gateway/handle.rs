//! One request's journey, on one screen.

use std::sync::Arc;

use http::{Request, Response};
use tokio::time::Instant;
use tracing::Instrument;

use crate::config::model::Mode;
use crate::event::Event;
use crate::idempotency::Owner;
use crate::idempotency::policy::{OnMissingKey, OnPluginFailure, OnStoreDown};
use crate::plugin::{FailureKind, Inspection, PluginFault};
use crate::store::StoreFault;

use super::admission::{Admitted, Peer, admit, wall_clock_ms};
use super::dedupe::Begin;
use super::forward::{Exchange, exchange, passing};
use super::identity::{Identity, Unidentifiable};
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
        let events = match self.inspect(admitted, trail).await? {
            Inspected::Events(events) => events,
            Inspected::Respond(reply) => return Ok(reply),
            Inspected::Pass => return self.forward_undeduped(admitted, trail).await,
        };
        self.rates.verified(&admitted.route.config.tenant, events.len())?;
        let ids = match identify(admitted, &events) {
            Ok(ids) => ids,
            Err(missing) => match self.without_key(admitted, &events, &missing, trail)? {
                Some(id) => vec![id],
                None => return self.forward_undeduped(admitted, trail).await,
            },
        };
        let owner = Owner(trail.event.clone());
        trail.identified(admitted.route.space.readable(&ids));
        let observed = admitted.route.config.mode == Mode::Observe;
        fail::fail_point!("claim.before");
        let begin = match self.dedupe.begin(&owner, &ids, admitted.terms(ids.len()), trail).await {
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

    /// Verifies the sender, then reads the events, in one fresh instance of the route's plugin.
    async fn inspect(&self, admitted: &Admitted, trail: &mut Trail) -> Result<Inspected, Rejection> {
        let route = &admitted.route;
        let runner = route.plugin.as_ref().ok_or(Rejection::PluginUnavailable)?;
        // What the plugin logs is told apart by this.
        let span =
            tracing::info_span!("plugin", event = trail.event, tenant = route.config.tenant, route = route.config.name);
        let inspected = runner.plugin.inspect(&runner.grant, &admitted.delivery).instrument(span).await;
        runner.meters.called(&inspected);
        let refuse = route.refuse_status();
        match inspected.result {
            Ok(Inspection::Events(events)) => Ok(Inspected::Events(events)),
            Ok(Inspection::Respond(reply)) => Ok(Inspected::Respond(Reply::from_plugin(reply))),
            Ok(Inspection::Pass(why)) => {
                trail.note(why);
                Ok(Inspected::Pass)
            }
            Ok(Inspection::Invalid(refusal)) => {
                trail.note(format!("{:?}: {}", refusal.reason, refusal.detail));
                Err(Rejection::Unverified { status: refusal.status.unwrap_or(refuse) })
            }
            Ok(Inspection::UnsignedRefused) => {
                trail.note("the sender signs nothing, and the route does not allow that");
                Err(Rejection::Unverified { status: refuse })
            }
            Ok(Inspection::Stale(seconds)) => {
                trail.note(format!("{seconds} s outside the tolerance"));
                Err(Rejection::Stale { status: refuse })
            }
            Ok(Inspection::Reject { status, code, detail }) => {
                Err(Rejection::PluginRejected { status, detail: format!("{code}: {detail}") })
            }
            Err(failure) => {
                trail.note(&failure);
                match failure.kind {
                    FailureKind::PluginError(PluginFault::Malformed) => {
                        Err(Rejection::Malformed { detail: failure.detail })
                    }
                    FailureKind::PluginError(PluginFault::Unavailable) => Err(Rejection::PluginUnavailable),
                    FailureKind::HostBusy => Err(Rejection::Overloaded),
                    // Only past the sender's check: or anybody who can make the plugin fail could have his bytes forwarded.
                    _ if inspected.verified && route.config.policy.plugin_failure == OnPluginFailure::Forward => {
                        Ok(Inspected::Pass)
                    }
                    kind => Err(Rejection::PluginFailed { kind: kind.as_str() }),
                }
            }
        }
    }

    /// What the route wants of a delivery without a key: its body's digest as the key, or a forward without dedupe.
    fn without_key(
        &self,
        admitted: &Admitted,
        events: &[Event],
        missing: &Unidentifiable,
        trail: &mut Trail,
    ) -> Result<Option<Identity>, Rejection> {
        trail.note(missing);
        if let Unidentifiable::BadNumber(_) = missing {
            return Err(Rejection::PluginFailed { kind: "contract" });
        }
        let route = &admitted.route;
        match (route.config.policy.missing_key, &route.plugin) {
            (OnMissingKey::HashBody, Some(runner)) => {
                Identity::of_body(&route.space, &runner.version, &admitted.delivery, events)
                    .map(Some)
                    .map_err(|fault| trail.fault(fault, Rejection::PluginFailed { kind: "contract" }))
            }
            (OnMissingKey::Pass, _) => Ok(None),
            _ => Err(Rejection::MissingKey),
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

/// What the plugin made of a delivery.
enum Inspected {
    Events(Vec<Event>),
    Respond(Reply),
    Pass,
}

fn identify(admitted: &Admitted, events: &[Event]) -> Result<Vec<Identity>, Unidentifiable> {
    let route = &admitted.route;
    let runner = route.plugin.as_ref().filter(|_| !events.is_empty()).ok_or(Unidentifiable::NoKey)?;
    let delivery = &admitted.delivery;
    let ids = events.iter().map(|event| Identity::of(&route.space, &runner.version, delivery, event));
    // A body with several events names none of them.
    let named_by_body = route.config.policy.body_alias && events.len() == 1;
    ids.map(|id| id.map(|id| if named_by_body { id.with_body(&route.space, delivery) } else { id })).collect()
}

/// The upstream's answer, untouched but for what belongs to the connection.
pub(super) fn relay(head: &http::response::Parts, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers::to_sender(&head.headers);
    response
}
