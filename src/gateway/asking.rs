//! Asks a route's plugin about a delivery: within its tenant's limits, and of another version when the active one fails.

use std::sync::Arc;
use std::time::Duration;

use crate::idempotency::policy::OnPluginFailure;
use crate::plugin::{FailureKind, Inspected, Inspection, PluginFault};

use super::Gateway;
use super::admission::Admitted;
use super::breaker::Pass;
use super::deployed::Runner;
use super::rejection::Rejection;
use super::trail::Trail;

impl Gateway {
    /// What the active version says of a delivery, or the previous one in its stead: while the active one is left alone, when it fails
    /// on trial, and under `plugin_failure = "previous"`.
    ///
    /// # Errors
    /// A limit of the tenant, or no version that may be run.
    pub(super) async fn ask(
        &self,
        admitted: &Admitted,
        trail: &mut Trail,
    ) -> Result<(Arc<Runner>, Inspected), Rejection> {
        let share = self.rates.of(&admitted.route.config.tenant);
        share.may_call(admitted.sender.address).map_err(|reached| trail.limited(reached))?;
        let code = &admitted.code;
        let pass = match code.active.breaker.enter() {
            Ok(pass) => pass,
            Err(after) => return self.ask_instead(admitted, after, trail).await,
        };
        let first = self.call(&code.active, admitted, trail).await;
        let Some(kind) = failed(&first) else {
            judge(pass, &first, None);
            return Ok((Arc::clone(&code.active), first));
        };
        trail.note(first.why_not().unwrap_or_default());
        let wanted = pass.is_probe || admitted.route.config.policy.plugin_failure == OnPluginFailure::Previous;
        // Whether the delivery is genuine, which the version did not get to say, the previous one knows.
        let is_doubtful = kind.is_the_versions() && !first.verified;
        let second = match code.healthy_previous() {
            Some(previous) if wanted || is_doubtful => Some((previous, self.stand_in(previous, admitted, trail).await)),
            _ => None,
        };
        judge(pass, &first, second.as_ref().map(|(_, second)| second));
        match second {
            // A sender whom the active version verified is not refused by a version that may not know him yet.
            Some((previous, second)) if wanted && second.result.is_ok() && (answers(&second) || !first.verified) => {
                trail.note(format!(
                    "{}; version {} was asked instead",
                    first.why_not().unwrap_or_default(),
                    previous.version.version
                ));
                Ok((Arc::clone(previous), second))
            }
            _ => Ok((Arc::clone(&code.active), first)),
        }
    }

    /// The active version is left alone: the previous one serves.
    async fn ask_instead(
        &self,
        admitted: &Admitted,
        after: Duration,
        trail: &mut Trail,
    ) -> Result<(Arc<Runner>, Inspected), Rejection> {
        let Some(previous) = admitted.code.healthy_previous() else {
            return Err(
                trail.fault("the active version fails too often and is left alone", Rejection::PluginOff { after })
            );
        };
        let inspected = self.stand_in(previous, admitted, trail).await;
        trail.note(inspected.why_not().unwrap_or_else(|| {
            format!("the active version is left alone; version {} was asked", previous.version.version)
        }));
        Ok((Arc::clone(previous), inspected))
    }

    /// The previous version on a delivery. It may turn out to fail as often; then there is none any more.
    async fn stand_in(&self, previous: &Arc<Runner>, admitted: &Admitted, trail: &Trail) -> Inspected {
        let pass = previous.breaker.enter();
        let inspected = self.call(previous, admitted, trail).await;
        if let Ok(pass) = pass {
            judge(pass, &inspected, None);
        }
        inspected
    }

    /// One call, charged to its tenant.
    async fn call(&self, runner: &Arc<Runner>, admitted: &Admitted, trail: &Trail) -> Inspected {
        let route = &admitted.route.config;
        let (share, from) = (self.rates.of(&route.tenant), admitted.sender.address);
        let mut reserved = Duration::ZERO;
        let reserve = || {
            reserved = runner.grant.budget.wall;
            share.reserve(from, reserved);
        };
        let inspected =
            self.aside.inspect(&share.line, &runner.plugin, &runner.grant, &admitted.delivery, reserve).await;
        let taken = Duration::from_micros(inspected.usage.wall_us.used);
        share.called(from, reserved, taken, is_genuine(&inspected, runner.grant.allow_unsigned));
        runner.meters.called(&inspected);
        // What the plugin logs is told apart by this.
        let span = tracing::info_span!("plugin", event = trail.event, tenant = route.tenant, route = route.name);
        span.in_scope(|| runner.plugin.report(share.log(&inspected.log, inspected.usage.log_dropped)));
        inspected
    }
}

/// How a call failed, unless it is the sender's fault or a matter of waiting.
fn failed(inspected: &Inspected) -> Option<FailureKind> {
    let kind = inspected.result.as_ref().err()?.kind;
    let answered = matches!(
        kind,
        FailureKind::PluginError(PluginFault::Malformed | PluginFault::Unavailable) | FailureKind::HostBusy
    );
    (!answered).then_some(kind)
}

/// Whether it says what is to be done with the delivery, and not that its sender is refused.
fn answers(inspected: &Inspected) -> bool {
    matches!(
        inspected.result,
        Ok(Inspection::Events(_) | Inspection::Respond(_) | Inspection::Pass(_) | Inspection::Reject { .. })
    )
}

/// Whether the delivery is the sender's own, as far as the route can tell.
fn is_genuine(inspected: &Inspected, allow_unsigned: bool) -> bool {
    inspected.verified || (allow_unsigned && answers(inspected))
}

/// Tells a version's breaker of a call, if that was about a genuine delivery. `second` is what the previous version said.
fn judge(pass: Pass, first: &Inspected, second: Option<&Inspected>) {
    match first.result.as_ref().err().map(|failure| failure.kind) {
        None if first.verified => pass.genuine(false),
        Some(kind) if kind.is_the_versions() && (first.verified || second.is_some_and(|second| second.verified)) => {
            pass.genuine(true);
        }
        _ => {}
    }
}
