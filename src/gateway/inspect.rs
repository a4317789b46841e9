//! What a route's plugin makes of a delivery: whether its sender is genuine, which events it carries, and under which names.

use std::sync::Arc;

use crate::event::Event;
use crate::idempotency::policy::{OnMissingKey, OnPluginFailure};
use crate::plugin::{FailureKind, Inspection, PluginFault};

use super::Gateway;
use super::admission::Admitted;
use super::deployed::Runner;
use super::identity::{Identity, Unidentifiable};
use super::rejection::Rejection;
use super::reply::Reply;
use super::shadow::is_evidence;
use super::trail::Trail;

/// What the plugin made of a delivery.
pub(super) enum Inspected {
    /// Events, to be claimed.
    Events(Reading),
    /// An answer of the plugin's own.
    Respond(Reply),
    /// Nothing to deduplicate.
    Pass,
}

/// The events that a version of a plugin read.
pub(super) struct Reading {
    /// The version.
    pub(super) runner: Arc<Runner>,
    /// The events.
    pub(super) events: Vec<Event>,
}

impl Gateway {
    /// Verifies the sender, then reads the events, in one fresh instance of the route's plugin.
    pub(super) async fn inspect(&self, admitted: &Admitted, trail: &mut Trail) -> Result<Inspected, Rejection> {
        let route = &admitted.route;
        let refuse = route.refuse_status();
        let (runner, inspected) = self.ask(admitted, trail).await?;
        if is_evidence(&inspected) {
            self.captures.offer(admitted, &trail.event);
            // What the previous version said in the active one's stead is no measure of a candidate.
            if let Some(shadow) = admitted.code.shadow.as_ref().filter(|_| Arc::ptr_eq(&runner, &admitted.code.active))
            {
                shadow.offer(admitted, &inspected, &trail.event);
            }
        }
        match inspected.result {
            Ok(Inspection::Events(events)) => Ok(Inspected::Events(Reading { runner, events })),
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
            Err(failure) => match failure.kind {
                FailureKind::PluginError(PluginFault::Malformed) => {
                    Err(Rejection::Malformed { detail: failure.detail })
                }
                FailureKind::PluginError(PluginFault::Unavailable) => Err(Rejection::PluginUnavailable),
                FailureKind::HostBusy => Err(Rejection::Overloaded),
                // Only past the sender's check: or anybody who can make the plugin fail could have his bytes forwarded.
                _ if inspected.verified && route.config.policy.plugin_failure == OnPluginFailure::Forward => {
                    Ok(Inspected::Pass)
                }
                kind => Err(Rejection::PluginFailed { kind }),
            },
        }
    }
}

impl Reading {
    /// The events' identities, in their order.
    pub(super) fn identify(&self, admitted: &Admitted) -> Result<Vec<Identity>, Unidentifiable> {
        let named_by_body = admitted.route.config.policy.body_alias;
        Identity::all(&self.runner.space, &self.runner.version, &admitted.delivery, &self.events, named_by_body)
    }

    /// What the route wants of a delivery without a key: its body's digest as the key, or a forward without dedupe.
    pub(super) fn without_key(
        &self,
        admitted: &Admitted,
        missing: &Unidentifiable,
        trail: &mut Trail,
    ) -> Result<Option<Identity>, Rejection> {
        trail.note(missing);
        if let Unidentifiable::BadNumber(_) = missing {
            return Err(Rejection::PluginFailed { kind: FailureKind::Contract });
        }
        match admitted.route.config.policy.missing_key {
            OnMissingKey::HashBody => {
                Identity::of_body(&self.runner.space, &self.runner.version, &admitted.delivery, &self.events)
                    .map(Some)
                    .map_err(|fault| trail.fault(fault, Rejection::PluginFailed { kind: FailureKind::Contract }))
            }
            OnMissingKey::Pass => Ok(None),
            OnMissingKey::Reject => Err(Rejection::MissingKey),
        }
    }
}
