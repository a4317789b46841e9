//! Captured requests, read again by two versions of a plugin and compared, as if both ran beside each other then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::config::model::Route;
use crate::gateway::deployed::Runner;
use crate::gateway::keep::read_back;
use crate::gateway::shadow::{Comparison, Reading, Report, is_busy, is_evidence, yield_to_others};

use super::Captures;
use super::files::{self, Place};

/// The most requests that one replay reads, the newest.
const REQUESTS_MAX: usize = 10_000;

/// The longest that a replay takes.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A route with what serves it and what might.
pub struct Pair {
    /// The route.
    pub route: Arc<Route>,
    /// Its active version.
    pub active: Arc<Runner>,
    /// The candidate, with what the route grants it.
    pub candidate: Arc<Runner>,
}

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replayed {
    /// Captured requests on this machine.
    pub captured: usize,
    /// Of these, those that the active version does not accept now, since a secret was changed, say: they were not compared.
    pub refused: usize,
    /// Those that could not be read: damaged, or encrypted with a key that is gone.
    pub unreadable: usize,
    /// Those that were left out since the replay took too long.
    pub left_out: usize,
}

impl Captures {
    /// Runs each pair over what its route has captured on this machine, at the time each request came. One replay runs at a time, on
    /// a thread that gets what the data plane leaves.
    pub async fn replay(&self, pairs: Vec<Pair>, comparison: Comparison) -> (Report, Replayed) {
        let _turn = self.0.replaying.lock().await;
        let (done, told) = oneshot::channel();
        let captures = self.clone();
        let thread = std::thread::Builder::new().name("replay".to_owned());
        let spawned = thread.spawn(move || {
            yield_to_others();
            // Whoever asked may be gone.
            let _ = done.send(captures.run(&pairs, &comparison));
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "captured requests were not replayed: there is no thread for it");
        }
        told.await.unwrap_or_default()
    }

    fn run(&self, pairs: &[Pair], comparison: &Comparison) -> (Report, Replayed) {
        let mut replayed = Replayed::default();
        let runtime = match tokio::runtime::Builder::new_current_thread().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "captured requests were not replayed: there is no runtime for it");
                return (comparison.report(), replayed);
            }
        };
        let end = Instant::now() + TIME_MAX;
        for pair in pairs {
            let place = Place::new(&self.0.root, &pair.route.tenant, &pair.route.name);
            let names = place.names().unwrap_or_else(|error| {
                tracing::error!(tenant = place.tenant, route = place.route, %error, "captured requests cannot be read");
                Vec::new()
            });
            let old = names.len().saturating_sub(REQUESTS_MAX);
            replayed.left_out += old;
            replayed.captured += names.len();
            for name in names.iter().skip(old) {
                if Instant::now() >= end {
                    replayed.left_out += 1;
                    continue;
                }
                match self.one(&place, name) {
                    Ok(None) => replayed.captured -= 1,
                    Ok(Some(octets)) => runtime.block_on(pair.read(&octets, name, comparison, &mut replayed)),
                    Err(problem) => {
                        tracing::warn!(
                            tenant = place.tenant,
                            route = place.route,
                            name,
                            problem,
                            "a captured request cannot be read"
                        );
                        replayed.unreadable += 1;
                    }
                }
            }
        }
        (comparison.report(), replayed)
    }

    fn one(&self, place: &Place, name: &str) -> Result<Option<Vec<u8>>, String> {
        place.open(&self.0.keys, name)
    }
}

impl Pair {
    async fn read(&self, octets: &[u8], name: &str, comparison: &Comparison, replayed: &mut Replayed) {
        let Ok(written) = read_back(octets) else {
            replayed.unreadable += 1;
            return;
        };
        let (route, delivery) = (&self.route, &written.delivery);
        let active = self.active.plugin.inspect(&self.active.grant, delivery).await;
        if !is_evidence(&active) {
            replayed.refused += 1;
            return;
        }
        let candidate = self.candidate.plugin.inspect(&self.candidate.grant, delivery).await;
        if is_busy(&candidate) {
            return comparison.skipped();
        }
        let active = Reading::of(&self.active, route, delivery, &active);
        let candidate = Reading::of(&self.candidate, route, delivery, &candidate);
        comparison.compare(&route.name, files::event_of(name), &active, &candidate);
    }
}
