//! What is known of a candidate before it serves: what all replicas found beside live traffic, and what captured requests show.
//!
//! Invariant: two versions that declare one key namespace give the same keys to what was seen, or the second does not follow the first:
//! a redelivery across such a change would be forwarded again.

use std::sync::Arc;

use crate::gateway::capture::{Captures, Pair, Replayed};
use crate::gateway::shadow::{Comparison, Counts, Report, Side};
use crate::plugin::Plugin;
use crate::plugin::registry::{CodeDigest, PluginId, RegistryError};

use super::deployer::Deployer;
use super::place::{Place, PrepareError};

/// What is known of a candidate beside one active version.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Of live traffic, all replicas together; none: it never ran beside it.
    pub live: Option<Report>,
    /// Of what this replica has captured; none: there was nothing.
    pub replay: Option<(Report, Replayed)>,
}

impl Evidence {
    /// The first that forbids an activation.
    pub fn blocking(&self) -> Option<&Counts> {
        let replay = self.replay.as_ref().map(|(report, _)| &report.counts);
        self.live.iter().map(|report| &report.counts).chain(replay).find(|counts| counts.blocks())
    }
}

impl Deployer {
    /// All that is known of a candidate beside an active version.
    ///
    /// # Errors
    /// When the registry or the candidate's code cannot be had.
    pub(super) async fn evidence(
        &self,
        captures: &Captures,
        id: &PluginId,
        active: CodeDigest,
        candidate: CodeDigest,
    ) -> Result<Evidence, PrepareError> {
        self.publish(id).await?;
        let live = self.live(id, active, candidate).await?;
        let replay = match self.replay(captures, id, active, candidate).await? {
            (_, Replayed { captured: 0, .. }) => None,
            found => Some(found),
        };
        Ok(Evidence { live, replay })
    }

    /// What all replicas wrote down of a candidate beside an active version. None: nothing.
    ///
    /// # Errors
    /// When the registry does not answer.
    pub(super) async fn live(
        &self,
        id: &PluginId,
        active: CodeDigest,
        candidate: CodeDigest,
    ) -> Result<Option<Report>, RegistryError> {
        let config = self.place(id).map(Place::config).unwrap_or_default();
        let mut all: Option<Report> = None;
        for (path, written) in self.registry().reports(id, candidate).await? {
            let report: Report = match serde_json::from_slice(&written) {
                Ok(report) => report,
                Err(error) => {
                    tracing::error!(plugin = %id, path, %error, "a report of a candidate is damaged and left out");
                    continue;
                }
            };
            // One of before the active version or the configuration changed says nothing of now.
            if report.counts.active != active.to_string() || report.counts.config != config {
                continue;
            }
            match &mut all {
                Some(all) => all.merge(&report),
                None => all = Some(report),
            }
        }
        Ok(all)
    }

    /// Writes down what this process found of a plugin's candidate, if there is more than when it last did.
    ///
    /// # Errors
    /// When the registry does not take it.
    pub(super) async fn publish(&self, id: &PluginId) -> Result<(), RegistryError> {
        let Some(place) = self.place(id) else { return Ok(()) };
        let Some(comparison) = place.comparison.load_full() else { return Ok(()) };
        let report = comparison.report();
        let seen = report.counts.compared.saturating_add(report.counts.skipped);
        let mut published = place.published.lock().await;
        if published.as_ref().is_some_and(|(of, known)| Arc::ptr_eq(of, &comparison) && *known == seen) {
            return Ok(());
        }
        if let Ok(candidate) = report.counts.candidate.parse() {
            // Plain data has a JSON form.
            let json = serde_json::to_vec(&report).unwrap_or_default();
            self.registry().put_report(id, candidate, comparison.name(), json.into()).await?;
        }
        *published = Some((comparison, seen));
        Ok(())
    }

    /// Runs the active version and a candidate over what this replica has captured for the routes that name the plugin.
    ///
    /// # Errors
    /// When the candidate's code cannot be had, or a route does not fit it.
    pub(super) async fn replay(
        &self,
        captures: &Captures,
        id: &PluginId,
        active: CodeDigest,
        candidate: CodeDigest,
    ) -> Result<(Report, Replayed), PrepareError> {
        let new = self.load(id, candidate).await?;
        let old = match self.load(id, active).await {
            Ok(old) => old,
            // What cannot be run any more must not keep its successor out.
            Err(error) => {
                tracing::warn!(plugin = %id, digest = %active, %error, "captured requests are not compared: the active version cannot be had");
                return Ok(Default::default());
            }
        };
        let config = self.place(id).map(Place::config).unwrap_or_default();
        let comparison = Comparison::new(side(active, &old), side(candidate, &new), config);
        let pairs = self.pairs(id, &old, &new).await?;
        Ok(captures.replay(pairs, comparison).await)
    }

    async fn pairs(&self, id: &PluginId, active: &Plugin, candidate: &Plugin) -> Result<Vec<Pair>, PrepareError> {
        let Some(place) = self.place(id) else { return Ok(Vec::new()) };
        let (old, new) = (self.runners(place, active).await, self.runners(place, candidate).await?);
        // The configuration may have moved on from what the active version takes.
        let Ok(old) = old else { return Ok(Vec::new()) };
        let routes = place.routes.iter().map(|(_, route)| Arc::clone(&route.config));
        let pairs = routes.zip(old.into_iter().zip(new)).filter(|(route, _)| route.capture.is_some());
        let pair = |(route, (active, candidate))| Pair { route, active: Arc::new(active), candidate: Arc::new(candidate) };
        Ok(pairs.map(pair).collect())
    }
}

/// A version in a comparison.
pub(super) fn side(digest: CodeDigest, plugin: &Plugin) -> Side {
    Side { digest: digest.to_string(), namespace: plugin.descriptor().key_namespace.clone() }
}
