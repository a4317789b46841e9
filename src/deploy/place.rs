//! What a deployer knows of one plugin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use metrics::{Gauge, gauge};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::gateway::route::Route;
use crate::gateway::shadow::{Comparison, Side};
use crate::plugin::Plugin;
use crate::plugin::artifacts::ArtifactError;
use crate::plugin::registry::{CodeDigest, Generation, PluginId, RegistryError};

use super::runner::RouteFault;

/// What serves of a plugin here, and what should.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What serves; none: nothing was ever activated, or could be prepared.
    pub serving: Option<Generation>,
    /// The highest generation that the registry was seen to have.
    pub seen: u64,
    /// Why these differ, or why the registry could not be asked.
    pub fault: Option<String>,
}

impl Status {
    /// The number of what serves; 0 for nothing.
    pub fn serving_number(&self) -> u64 {
        self.serving.as_ref().map_or(0, |generation| generation.generation)
    }
}

/// Why a generation does not serve.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Its record or its code cannot be had.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Its code is no plugin here.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A route does not fit it.
    #[error("{}", .0.iter().map(|(key, text)| format!("{key}: {text}")).collect::<Vec<_>>().join("; "))]
    Routes(Vec<RouteFault>),
    /// It could not be prepared a moment ago, for this reason.
    #[error("{0}")]
    Again(String),
    /// The thread that loads code is gone: the process is ending.
    #[error("the code was not loaded")]
    Ended,
}

/// Where a plugin serves.
pub(super) struct Place {
    /// Its place in the configuration with each.
    pub(super) routes: Vec<(usize, Arc<Route>)>,
    pub(super) status: ArcSwap<Status>,
    /// What is known of the candidate that runs beside, if one does.
    pub(super) comparison: ArcSwapOption<Comparison>,
    /// Which comparison was written down last, with how many deliveries. Held while one is being written.
    pub(super) published: Mutex<Option<(Arc<Comparison>, u64)>>,
    /// One change at a time.
    pub(super) turn: Mutex<Turn>,
    pub(super) generation: Gauge,
    pub(super) lag: Gauge,
}

#[derive(Default)]
pub(super) struct Turn {
    /// The code of what serves, so that a rollback to it loads nothing.
    pub(super) loaded: BTreeMap<CodeDigest, Plugin>,
    pub(super) failed: Option<Failed>,
    /// What routes had against it.
    pub(super) unfit: Option<Vec<RouteFault>>,
}

/// A generation that could not be prepared.
pub(super) struct Failed {
    pub(super) generation: u64,
    pub(super) why: String,
    /// When it is tried again, and how long after this try.
    pub(super) again_at: Instant,
    pub(super) wait: Duration,
}

/// What a look found, each under its key path.
#[derive(Debug, Default)]
pub struct Found {
    /// A route's config that its plugin's active version refuses.
    pub faults: Vec<(String, String)>,
    /// A plugin without an active version, or one that cannot be had.
    pub warnings: Vec<(String, String)>,
}

impl Place {
    pub(super) fn new(id: &PluginId) -> Self {
        let labels = [("tenant", id.tenant.clone()), ("plugin", id.to_string())];
        Self {
            routes: Vec::new(),
            status: ArcSwap::default(),
            comparison: ArcSwapOption::default(),
            published: Mutex::default(),
            turn: Mutex::default(),
            generation: gauge!("onceward_plugin_generation", &labels),
            lag: gauge!("onceward_plugin_generation_lag", &labels),
        }
    }
    /// The comparison of these two, gone on with if they are compared already.
    pub(super) fn compare(&self, active: Side, candidate: Side) -> Arc<Comparison> {
        let config = self.config();
        let running = self.comparison.load_full().filter(|known| known.is_of(&active, &candidate, &config));
        let comparison = running.unwrap_or_else(|| Arc::new(Comparison::new(active, candidate, config)));
        self.comparison.store(Some(Arc::clone(&comparison)));
        comparison
    }

    /// A digest of what its routes tell it and of where their keys live: with another one the same code may give other keys.
    pub(super) fn config(&self) -> String {
        let mut hash = Sha256::new();
        for (_, route) in &self.routes {
            let route = &route.config;
            for part in [&route.name, &route.scope, &route.plugin_config.to_string()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        hex::encode(hash.finalize()).chars().take(16).collect()
    }
}
