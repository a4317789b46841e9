//! Which code serves a route. It changes while the route serves: one pointer, swapped whole.
//!
//! Invariant: a delivery takes the pointer once, when its body is whole, and ends on what it took.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::event::PluginVersion;
use crate::plugin::{Grant, Plugin};

use super::breaker::Breaker;
use super::identity::KeySpace;
use super::meters::PluginMeters;
use super::shadow::Shadow;

/// A plugin's version with what a route grants it.
pub struct Runner {
    /// The code.
    pub plugin: Plugin,
    /// Which version of code and config names the fields.
    pub version: PluginVersion,
    /// Its config and secrets.
    pub grant: Arc<Grant>,
    /// Where the keys live that it names.
    pub space: KeySpace,
    /// What is counted of it.
    pub meters: PluginMeters,
    /// Whether it fails too often to be run.
    pub breaker: Breaker,
}

/// What serves a route.
pub struct Deployed {
    /// Reads the deliveries.
    pub active: Arc<Runner>,
    /// Served before that one, and stands in for it where it fails.
    pub previous: Option<Arc<Runner>>,
    /// Reads them beside it, to be compared.
    pub shadow: Option<Arc<Shadow>>,
}

impl Deployed {
    /// The previous version, if it does not fail itself.
    pub fn healthy_previous(&self) -> Option<&Arc<Runner>> {
        self.previous.as_ref().filter(|previous| !previous.breaker.is_off())
    }
}

/// A route's code; none while its tenant has no active version.
#[derive(Default)]
pub struct Slot(ArcSwapOption<Deployed>);

impl Slot {
    /// With code, or waiting for it.
    pub fn new(deployed: Option<Deployed>) -> Self {
        Self(ArcSwapOption::new(deployed.map(Arc::new)))
    }

    /// What serves now.
    pub fn now(&self) -> Option<Arc<Deployed>> {
        self.0.load_full()
    }

    /// The next delivery goes to this.
    pub fn set(&self, deployed: Option<Deployed>) {
        self.0.store(deployed.map(Arc::new));
    }
}
