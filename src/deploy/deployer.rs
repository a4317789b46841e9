//! Follows the registry: prepares what a new generation names, then lets it serve.
//!
//! Invariant: a route's code changes only when every route that names the plugin has its new code ready. Until then, and when that
//! fails, what served before serves on, and the fault is reported.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::config::model::{Config, PluginRef};
use crate::gateway::breaker::Breakers;
use crate::gateway::deployed::{Deployed, Runner};
use crate::gateway::route::Routes;
use crate::gateway::shadow::Shadows;
use crate::plugin::artifacts::Artifacts;
use crate::plugin::registry::{CodeDigest, Generation, PluginId, Registry, RegistryError};
use crate::plugin::{Engine, Plugin};

use super::place::{Failed, Found, Place, PrepareError, Status, Turn};
use super::runner::runner;

/// How often the registry is asked for a newer generation.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Plugins that are asked about at once.
pub(super) const POLLS_MAX: usize = 8;
/// How long a generation that could not be prepared is left alone, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often it is written down what candidates were found to do.
const PUBLISH_EVERY: Duration = Duration::from_secs(2);
/// How often compiled code is looked over for what nothing uses.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// The deployer of one process. Cheap to clone.
#[derive(Clone)]
pub struct Deployer(Arc<Inner>);

struct Inner {
    config: Arc<Config>,
    engine: Engine,
    registry: Registry,
    artifacts: Arc<Artifacts>,
    breakers: Breakers,
    /// Where candidates run; none in a process that only looks.
    shadows: Option<Shadows>,
    /// Those that routes name.
    plugins: BTreeMap<PluginId, Place>,
}

impl Deployer {
    /// For the routes that name tenants' plugins.
    pub fn new(
        config: Arc<Config>,
        engine: Engine,
        registry: Registry,
        artifacts: Arc<Artifacts>,
        shadows: Option<Shadows>,
        routes: &Routes,
    ) -> Self {
        let mut plugins: BTreeMap<PluginId, Place> = BTreeMap::new();
        for (at, route) in routes.all().iter().enumerate() {
            let PluginRef::Uploaded { tenant, name } = &route.config.plugin else { continue };
            let id = PluginId { tenant: tenant.clone(), name: name.clone() };
            let place = plugins.entry(id).or_insert_with_key(Place::new);
            place.routes.push((at, Arc::clone(route)));
        }
        Self(Arc::new(Inner { config, engine, registry, artifacts, breakers: Breakers::default(), shadows, plugins }))
    }

    /// The configuration that it serves by.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(super) fn artifacts(&self) -> &Arc<Artifacts> {
        &self.0.artifacts
    }

    pub(super) fn plugins(&self) -> &BTreeMap<PluginId, Place> {
        &self.0.plugins
    }

    pub(super) fn shadows(&self) -> Option<&Shadows> {
        self.0.shadows.as_ref()
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Brings in what is active, before anything is served, for so long at most.
    pub async fn first(&self, patience: Duration) {
        if timeout(patience, self.poll()).await.is_err() {
            tracing::warn!(
                ?patience,
                "the plugin registry was not read through in time; what is missing comes when it can"
            );
        }
        for (id, place) in &self.0.plugins {
            let status = place.status.load();
            if status.serving.is_none() && status.fault.is_none() {
                let routes: Vec<&str> = place.routes.iter().map(|(_, route)| route.config.name.as_str()).collect();
                let routes = routes.join(", ");
                tracing::warn!(plugin = %id, routes, "no active version: its routes answer 503 until one is activated");
            }
        }
    }

    /// What serving would come to now: the faults that routes have for their plugins' active versions, and what is not active.
    pub async fn look(&self) -> Found {
        self.poll().await;
        let mut found = Found::default();
        for (id, place) in &self.0.plugins {
            let status = place.status.load();
            if status.serving.is_some() && status.fault.is_none() {
                continue;
            }
            let turn = place.turn.lock().await;
            if let Some(faults) = &turn.unfit {
                found.faults.extend(faults.iter().cloned());
                continue;
            }
            let why = match &status.fault {
                Some(fault) => fault.clone(),
                None => {
                    format!("{id} has no active version: the route answers 503 until one is uploaded and activated")
                }
            };
            found.warnings.extend(place.routes.iter().map(|(at, _)| (format!("routes[{at}].plugin"), why.clone())));
        }
        found
    }

    /// Goes on following the registry. Never ends.
    pub async fn run(self) {
        let mut tick = interval(POLL_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut swept, mut published): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            tick.tick().await;
            self.poll().await;
            if published.is_none_or(|at| at.elapsed() > PUBLISH_EVERY) {
                published = Some(Instant::now());
                self.publish_all().await;
            }
            if swept.is_none_or(|at| at.elapsed() > SWEEP_EVERY) {
                swept = Some(Instant::now());
                self.sweep().await;
            }
        }
    }

    async fn poll(&self) {
        let plugins = futures::stream::iter(self.0.plugins.iter());
        plugins.for_each_concurrent(POLLS_MAX, |(id, place)| self.follow(id, place)).await;
    }

    /// Looks for a newer generation of a plugin now, and brings it in; what serves afterwards. None: no route names the plugin.
    pub async fn refresh(&self, id: &PluginId) -> Option<Arc<Status>> {
        let place = self.0.plugins.get(id)?;
        self.follow(id, place).await;
        Some(place.status.load_full())
    }

    /// What serves of a plugin. None: no route names it.
    pub fn status(&self, id: &PluginId) -> Option<Arc<Status>> {
        Some(self.0.plugins.get(id)?.status.load_full())
    }

    /// The names of the routes that name a plugin.
    pub fn routes(&self, id: &PluginId) -> Vec<String> {
        let places = self.0.plugins.get(id).into_iter().flat_map(|place| &place.routes);
        places.map(|(_, route)| route.config.name.clone()).collect()
    }

    /// The plugins of a tenant that routes name.
    pub fn named(&self, tenant: &str) -> Vec<String> {
        self.0.plugins.keys().filter(|id| id.tenant == tenant).map(|id| id.name.clone()).collect()
    }

    /// What keeps the newest generations from serving, for anybody who may ask whether this process is well.
    pub fn concerns(&self) -> Vec<String> {
        let concern = |(id, place): (&PluginId, &Place)| {
            let status = place.status.load();
            status.fault.as_ref()?;
            let (serving, seen) = (status.serving_number(), status.seen);
            Some(match (serving, seen) {
                (_, seen) if seen <= serving => {
                    format!("the registry cannot be asked for plugin {id}; generation {serving} serves on")
                }
                (0, _) => format!("plugin {id}: generation {seen} cannot be prepared, and nothing else serves"),
                _ => format!("plugin {id}: generation {seen} cannot be prepared; generation {serving} serves on"),
            })
        };
        self.0.plugins.iter().filter_map(concern).collect()
    }

    async fn follow(&self, id: &PluginId, place: &Place) {
        let mut turn = place.turn.lock().await;
        let before = place.status.load_full();
        let mut after = Status { fault: None, ..Status::clone(&before) };
        let advanced = self.advance(id, place, &mut turn, &mut after).await;
        match advanced {
            Ok(()) => {}
            Err(error) => {
                let fault = error.to_string();
                if before.fault.as_ref() != Some(&fault) {
                    let (serving, seen) = (after.serving_number(), after.seen);
                    tracing::error!(plugin = %id, serving, seen, detail = ?error, "a plugin's newest version does not serve: {fault}");
                }
                after.fault = Some(fault);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        {
            place.generation.set(after.serving_number() as f64);
            place.lag.set(after.seen.saturating_sub(after.serving_number()) as f64);
        }
        place.status.store(Arc::new(after));
    }

    /// Brings in the newest generation that can be read, if there is a newer one.
    async fn advance(
        &self,
        id: &PluginId,
        place: &Place,
        turn: &mut Turn,
        status: &mut Status,
    ) -> Result<(), PrepareError> {
        let newer = self.0.registry.generations_after(id, status.serving_number()).await?;
        status.seen = newer.last().copied().unwrap_or(status.serving_number());
        let mut damaged = Ok(());
        for number in newer.into_iter().rev() {
            match self.0.registry.generation(id, number).await {
                Ok(generation) => {
                    self.bring_in(id, place, turn, generation, status).await?;
                    break;
                }
                Err(error @ RegistryError::Damaged { .. }) if damaged.is_ok() => damaged = Err(error.into()),
                Err(RegistryError::Damaged { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        damaged
    }

    /// Lets a generation serve, unless it failed to a moment ago.
    async fn bring_in(
        &self,
        id: &PluginId,
        place: &Place,
        turn: &mut Turn,
        generation: Generation,
        status: &mut Status,
    ) -> Result<(), PrepareError> {
        let number = generation.generation;
        let wait = match &turn.failed {
            Some(failed) if failed.generation == number && Instant::now() < failed.again_at => {
                return Err(PrepareError::Again(failed.why.clone()));
            }
            Some(failed) if failed.generation == number => (failed.wait * 2).min(RETRY_MAX),
            _ => RETRY_FIRST,
        };
        if let Err(error) = self.swap(id, place, turn, &generation).await {
            let (why, again_at) = (error.to_string(), Instant::now() + wait);
            turn.failed = Some(Failed { generation: number, why, again_at, wait });
            turn.unfit = match &error {
                PrepareError::Routes(faults) => Some(faults.clone()),
                _ => None,
            };
            return Err(error);
        }
        (turn.failed, turn.unfit) = (None, None);
        tracing::info!(plugin = %id, generation = number, digest = %generation.active, "a plugin's version serves from now on");
        status.serving = Some(generation);
        Ok(())
    }

    /// Prepares everything, then changes every route's code.
    async fn swap(
        &self,
        id: &PluginId,
        place: &Place,
        turn: &mut Turn,
        generation: &Generation,
    ) -> Result<(), PrepareError> {
        let active = self.loaded(id, turn, generation.active).await?;
        let runners = self.runners(place, &active).await?;
        let mut previous = self.previous(id, place, turn, generation).await.into_iter();
        let mut shadows = self.candidates(id, place, turn, generation, &active).await.into_iter();
        for ((_, route), runner) in place.routes.iter().zip(runners) {
            let (previous, shadow) = (previous.next().map(Arc::new), shadows.next().map(Arc::new));
            route.plugin.set(Some(Deployed { active: Arc::new(runner), previous, shadow }));
        }
        turn.loaded.retain(|digest, _| generation.names().any(|named| named == *digest));
        Ok(())
    }

    /// A runner of the previous version for each route; none when it cannot be had, which is no reason to hold the active one up.
    async fn previous(&self, id: &PluginId, place: &Place, turn: &mut Turn, generation: &Generation) -> Vec<Runner> {
        let Some(digest) = generation.previous else { return Vec::new() };
        let prepared = async { self.runners(place, &self.loaded(id, turn, digest).await?).await };
        prepared.await.unwrap_or_else(|error: PrepareError| {
            tracing::warn!(plugin = %id, %digest, "the previous version cannot stand in for the active one: {error}");
            Vec::new()
        })
    }

    pub(super) async fn loaded(
        &self,
        id: &PluginId,
        turn: &mut Turn,
        digest: CodeDigest,
    ) -> Result<Plugin, PrepareError> {
        if let Some(plugin) = turn.loaded.get(&digest) {
            return Ok(plugin.clone());
        }
        let plugin = self.load(id, digest).await?;
        turn.loaded.insert(digest, plugin.clone());
        Ok(plugin)
    }

    /// A version's code: what this machine has compiled before, or else what the registry has.
    pub(super) async fn load(&self, id: &PluginId, digest: CodeDigest) -> Result<Plugin, PrepareError> {
        let (artifacts, engine, name) = (Arc::clone(self.artifacts()), self.engine().clone(), id.to_string());
        let kept = tokio::task::spawn_blocking(move || artifacts.kept(&engine, &name, digest)).await;
        if let Ok(Some(plugin)) = kept {
            return Ok(plugin);
        }
        let wasm = self.0.registry.code(id, digest).await?;
        let (artifacts, engine, name) = (Arc::clone(self.artifacts()), self.engine().clone(), id.to_string());
        let compiled = tokio::task::spawn_blocking(move || artifacts.compile(&engine, &name, &wasm)).await;
        Ok(compiled.map_err(|_| PrepareError::Ended)??.1)
    }

    /// Whether every route takes a version.
    ///
    /// # Errors
    /// Every fault of every route, under its key.
    pub(super) async fn fits(&self, id: &PluginId, plugin: &Plugin) -> Result<(), PrepareError> {
        match self.0.plugins.get(id) {
            Some(place) => self.runners(place, plugin).await.map(drop),
            None => Ok(()),
        }
    }

    /// A runner for each route, in their order; or every fault, under its key.
    pub(super) async fn runners(&self, place: &Place, plugin: &Plugin) -> Result<Vec<Runner>, PrepareError> {
        let mut runners = Vec::new();
        let mut faults = Vec::new();
        for (at, route) in &place.routes {
            match runner(&self.0.config, &route.config, plugin, &self.0.breakers).await {
                Ok(runner) => runners.push(runner),
                Err(found) => faults.extend(found.into_iter().map(|(key, text)| (format!("routes[{at}].{key}"), text))),
            }
        }
        if faults.is_empty() { Ok(runners) } else { Err(PrepareError::Routes(faults)) }
    }

    async fn sweep(&self) {
        let mut used = Vec::new();
        for place in self.0.plugins.values() {
            used.extend(place.status.load().serving.iter().flat_map(Generation::names));
        }
        let (artifacts, engine) = (Arc::clone(self.artifacts()), self.engine().clone());
        // Tried again in an hour.
        let _ = tokio::task::spawn_blocking(move || artifacts.sweep(&engine, used.into_iter())).await;
    }
}
