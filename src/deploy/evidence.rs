//! What is known of a candidate before it serves: what all replicas found beside live traffic, and what captured requests show.
//!
//! Invariant: two versions that declare one key namespace give the same keys to what was seen, or the second does not follow the first:
//! a redelivery across such a change would be forwarded again.

use std::sync::Arc;

use futures::StreamExt;

use crate::gateway::capture::{Captures, Pair, Replayed};
use crate::gateway::shadow::{Comparison, Counts, Report, Shadow, Side};
use crate::plugin::Plugin;
use crate::plugin::registry::{CodeDigest, Generation, PluginId, RegistryError, Standing, VersionRecord};

use super::deployer::{Deployer, POLLS_MAX};
use super::desk::Desk;
use super::place::{Place, PrepareError, Turn};
use super::refused::Refused;

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
    /// A candidate for each route, in their order; none when the generation names none. One that cannot be prepared is no reason not to
    /// serve the rest.
    pub(super) async fn candidates(
        &self,
        id: &PluginId,
        place: &Place,
        turn: &mut Turn,
        generation: &Generation,
        active: &Plugin,
    ) -> Vec<Shadow> {
        let (Some(digest), Some(shadows)) = (generation.shadow, self.shadows()) else {
            place.comparison.store(None);
            return Vec::new();
        };
        let prepared = async {
            let plugin = self.loaded(id, turn, digest).await?;
            Ok::<_, PrepareError>((self.runners(place, &plugin).await?, plugin))
        };
        match prepared.await {
            Ok((runners, plugin)) => {
                let comparison = place.compare(side(generation.active, active), side(digest, &plugin));
                let beside = |runner| Shadow::new(Arc::new(runner), Arc::clone(&comparison), shadows.clone());
                runners.into_iter().map(beside).collect()
            }
            Err(error) => {
                tracing::error!(plugin = %id, %digest, %error, "a candidate does not run beside the active version");
                place.comparison.store(None);
                Vec::new()
            }
        }
    }

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
        let config = self.plugins().get(id).map(Place::config).unwrap_or_default();
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
        let Some(place) = self.plugins().get(id) else { return Ok(()) };
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

    /// As [`Self::publish`], for all plugins.
    pub(super) async fn publish_all(&self) {
        let plugins = futures::stream::iter(self.plugins().keys());
        let publish = async |id: &PluginId| {
            // Tried again at the next turn.
            if let Err(error) = self.publish(id).await {
                tracing::warn!(plugin = %id, %error, "what a candidate was found to do could not be written down");
            }
        };
        plugins.for_each_concurrent(POLLS_MAX, publish).await;
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
        let config = self.plugins().get(id).map(Place::config).unwrap_or_default();
        let comparison = Comparison::new(side(active, &old), side(candidate, &new), config);
        let pairs = self.pairs(id, &old, &new).await?;
        Ok(captures.replay(pairs, comparison).await)
    }

    async fn pairs(&self, id: &PluginId, active: &Plugin, candidate: &Plugin) -> Result<Vec<Pair>, PrepareError> {
        let Some(place) = self.plugins().get(id) else { return Ok(Vec::new()) };
        let (old, new) = (self.runners(place, active).await, self.runners(place, candidate).await?);
        // The configuration may have moved on from what the active version takes.
        let Ok(old) = old else { return Ok(Vec::new()) };
        let routes = place.routes.iter().map(|(_, route)| Arc::clone(&route.config));
        let pairs = routes.zip(old.into_iter().zip(new)).filter(|(route, _)| route.capture.is_some());
        let pair =
            |(route, (active, candidate))| Pair { route, active: Arc::new(active), candidate: Arc::new(candidate) };
        Ok(pairs.map(pair).collect())
    }
}

impl Desk {
    /// Whether a version may follow the active one, by all that was seen of both.
    pub(super) async fn judge(
        &self,
        id: &PluginId,
        active: CodeDigest,
        candidate: &VersionRecord,
    ) -> Result<(), Refused> {
        if active == candidate.digest {
            return Ok(());
        }
        match self.deployer.registry().version(id, active).await {
            Ok(before) if before.key_namespace == candidate.key_namespace => {}
            // Keys of another namespace are others whatever they are called.
            Ok(_) => return Ok(()),
            Err(RegistryError::Absent(_) | RegistryError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let evidence = self.deployer.evidence(&self.captures, id, active, candidate.digest).await?;
        if evidence.blocking().is_some() { Err(Refused::Keys(Box::new(evidence))) } else { Ok(()) }
    }

    /// Runs the active version and this one over what this replica has captured. Nothing is stored or forwarded.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn replay(&self, id: &PluginId, digest: CodeDigest) -> Result<(Report, Replayed), Refused> {
        if let Err(RegistryError::Absent(_)) = self.deployer.registry().version(id, digest).await {
            return Err(Refused::Absent(format!("version {digest} of {id}")));
        }
        let standing = self.deployer.registry().standing(id).await?;
        let active =
            standing.generation.ok_or(Refused::Conflict("nothing is active that it could be compared with"))?;
        Ok(self.deployer.replay(&self.captures, id, active.active, digest).await?)
    }

    /// What is known of the candidate that runs beside the active version, all replicas together.
    pub(super) async fn shadow_report(&self, id: &PluginId, standing: &Standing) -> Result<Option<Report>, Refused> {
        let named = standing.generation.as_ref().and_then(|now| Some((now.active, now.shadow?)));
        let Some((active, candidate)) = named else { return Ok(None) };
        self.deployer.publish(id).await?;
        Ok(self.deployer.live(id, active, candidate).await?)
    }
}

/// A version in a comparison.
fn side(digest: CodeDigest, plugin: &Plugin) -> Side {
    Side { digest: digest.to_string(), namespace: plugin.descriptor().key_namespace.clone() }
}
