//! What tenants and operators do with plugins: upload, activate, roll back, try, look. Rules of who may are the caller's.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::config::model::Tenant;
use crate::gateway::admission::wall_clock_ms;
use crate::gateway::audit;
use crate::gateway::capture::Captures;
use crate::gateway::shadow::Report;
use crate::plugin::registry::{CodeDigest, Generation, PluginId, RegistryError, Standing, VersionRecord};
use crate::plugin::{Budget, Inspected};

use super::case::Case;
use super::deployer::Deployer;
use super::gate::{Gate, Upload};
use super::place::Status;
use super::quota::{Turn, Uploads};
use super::refused::Refused;

/// How long an activation waits until this process serves the version.
const SERVES_WITHIN: Duration = Duration::from_secs(5);
/// How often an activation that another one came before is tried again.
const RACES_MAX: usize = 8;

/// Who does something with which plugin.
#[derive(Clone, Copy, Debug)]
pub struct Doing<'a> {
    /// The name of the token.
    pub by: &'a str,
    /// Which plugin.
    pub id: &'a PluginId,
}

/// An upload that is a version now.
pub struct Uploaded {
    /// As the registry has it.
    pub record: VersionRecord,
    /// Versions that went for it.
    pub removed: Vec<CodeDigest>,
    /// Bytes of the tenant's code, with it.
    pub code_used: u64,
}

/// What an activation or a rollback came to.
pub struct Activated {
    /// What the registry says now.
    pub generation: Generation,
    /// Whether this process serves it already.
    pub serving: bool,
    /// Why not, if that is known.
    pub fault: Option<String>,
}

/// A plugin, whole.
pub struct Overview {
    /// Which.
    pub id: PluginId,
    /// What the registry has.
    pub standing: Standing,
    /// Newest first.
    pub versions: Vec<VersionRecord>,
    /// What serves here; none when no route names it.
    pub status: Option<Arc<Status>>,
    /// Those that name it.
    pub routes: Vec<String>,
    /// What is known of the candidate that runs beside the active version, all replicas together.
    pub shadow: Option<Report>,
}

/// The desk of one process. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pub(super) deployer: Deployer,
    pub(super) captures: Captures,
    gate: Arc<Gate>,
    uploads: Arc<Uploads>,
}

impl Desk {
    /// Over what deploys, and what routes have captured.
    pub fn new(deployer: Deployer, captures: Captures) -> Self {
        let gate = Gate::new(deployer.engine().clone(), Arc::clone(deployer.artifacts()));
        let uploads = Uploads::new(&deployer.config().tenants);
        Self { deployer, captures, gate: Arc::new(gate), uploads: Arc::new(uploads) }
    }

    /// A tenant of the configuration.
    pub fn tenant(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.deployer.config().tenants.get(name)
    }

    /// What keeps versions from serving.
    pub fn concerns(&self) -> Vec<String> {
        self.deployer.concerns()
    }

    /// A tenant's turn to upload, before its bytes are read.
    ///
    /// # Errors
    /// [`Refused::NotNow`].
    pub fn begin(&self, doing: Doing<'_>) -> Result<Turn, Refused> {
        let tenant = &doing.id.tenant;
        let begun = self.uploads.begin(tenant).ok_or_else(|| Refused::Absent(format!("tenant {tenant}")))?;
        let begun = begun.map_err(Refused::NotNow);
        if let Err(why) = &begun {
            say(doing, "upload", None, None, why);
        }
        begun
    }

    /// Examines an upload, and keeps it as a version.
    ///
    /// # Errors
    /// [`Refused`], with what to do about it.
    pub async fn upload(&self, turn: Turn, doing: Doing<'_>, upload: Upload) -> Result<Uploaded, Refused> {
        debug_assert_eq!(turn.tenant, doing.id.tenant, "a turn is its tenant's");
        let digest = CodeDigest::of(&upload.wasm);
        let done = self.admit(doing, digest, upload).await;
        match &done {
            Ok(_) => audit::plugin(doing.by, &doing.id.to_string(), "upload", "done", Some(&digest.to_string()), None),
            Err(why) => say(doing, "upload", Some(digest), None, why),
        }
        done
    }

    async fn admit(&self, doing: Doing<'_>, digest: CodeDigest, upload: Upload) -> Result<Uploaded, Refused> {
        let Doing { by, id } = doing;
        let limits = self.tenant(&id.tenant).ok_or_else(|| Refused::Absent(format!("tenant {}", id.tenant)))?.limits;
        let registry = self.deployer.registry();
        let size = upload.wasm.len() as u64;
        let passed = self.gate.examine(id, &upload).await?;
        let (used, limit) =
            (registry.code_bytes(&id.tenant, Some(digest)).await?.saturating_add(size), limits.code as u64);
        if used > limit {
            return Err(Refused::Quota { used, limit });
        }
        let told = passed.plugin.descriptor();
        let record = VersionRecord {
            digest,
            version: told.version.clone(),
            key_namespace: told.key_namespace.clone(),
            size,
            fuel: passed.fuel,
            memory: passed.memory,
            compile_ms: passed.compile_ms,
            cases: passed.cases,
            by: by.to_owned(),
            at_ms: wall_clock_ms(),
        };
        registry.keep(id, &record, &upload.wasm).await?;
        let removed = registry.prune(id, limits.versions).await.unwrap_or_else(|error| {
            tracing::warn!(plugin = %id, ?error, "older versions are not removed yet; the next upload tries again");
            Vec::new()
        });
        Ok(Uploaded { record, removed, code_used: used })
    }

    /// Makes a version the active one, or with `shadow` one that runs beside it, on every gateway.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then, unless the registry did not answer.
    pub async fn activate(&self, doing: Doing<'_>, digest: CodeDigest, shadow: bool) -> Result<Activated, Refused> {
        let verb = if shadow { "shadow" } else { "activate" };
        let done = self.try_activate(doing, digest, shadow).await;
        self.told(doing, verb, Some(digest), done).await
    }

    async fn try_activate(&self, doing: Doing<'_>, digest: CodeDigest, shadow: bool) -> Result<Generation, Refused> {
        let Doing { by, id } = doing;
        let registry = self.deployer.registry();
        let record = match registry.version(id, digest).await {
            Err(RegistryError::Absent(_)) => return Err(Refused::Absent(format!("version {digest} of {id}"))),
            other => other?,
        };
        // All gateways will need it, whatever this one has kept of it.
        let wasm = registry.code(id, digest).await.map_err(|error| match error {
            RegistryError::Absent(_) => {
                Refused::Unprepared("its code is gone from the registry; upload it again".to_owned())
            }
            error => error.into(),
        })?;
        let plugin = self.deployer.load(id, digest).await?;
        self.deployer.fits(id, &plugin).await?;
        let mut judged = None;
        for _ in 0..RACES_MAX {
            let standing = registry.standing(id).await?;
            let active = standing.generation.as_ref().map(|now| now.active);
            if let Some(active) = active.filter(|active| !shadow && judged != Some(*active)) {
                self.judge(id, active, &record).await?;
                judged = Some(active);
            }
            let next = match (standing.generation, shadow) {
                (None, true) => {
                    return Err(Refused::Conflict(
                        "nothing is active that it could run beside: activate a version first",
                    ));
                }
                (Some(now), true) if now.active == digest => {
                    return Err(Refused::Conflict("it is the active version: there is nothing to compare it with"));
                }
                // What is so already is not made anew, unless something that cannot be read stands above it.
                (Some(now), true) if now.shadow == Some(digest) && now.generation == standing.number => return Ok(now),
                (Some(now), true) => Generation { shadow: Some(digest), ..now },
                (Some(now), false)
                    if now.active == digest && now.shadow.is_none() && now.generation == standing.number =>
                {
                    return Ok(now);
                }
                (Some(now), false) => {
                    let previous = if now.active == digest { now.previous } else { Some(now.active) };
                    Generation { active: digest, previous, shadow: None, ..now }
                }
                (None, false) => Generation {
                    generation: 0,
                    active: digest,
                    previous: None,
                    shadow: None,
                    by: String::new(),
                    at_ms: 0,
                },
            };
            let next =
                Generation { generation: standing.number + 1, by: by.to_owned(), at_ms: wall_clock_ms(), ..next };
            if registry.advance(id, &next).await? {
                // An upload may have removed the version after it was found, and before it was named.
                registry.keep(id, &record, &wasm).await?;
                return Ok(next);
            }
        }
        Err(Refused::Conflict("other activations came first, again and again; try again"))
    }

    /// Makes the version before the active one active again.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then, unless the registry did not answer.
    pub async fn roll_back(&self, doing: Doing<'_>) -> Result<Activated, Refused> {
        let done = self.try_roll_back(doing).await;
        self.told(doing, "rollback", done.as_ref().ok().map(|generation| generation.active), done).await
    }

    async fn try_roll_back(&self, doing: Doing<'_>) -> Result<Generation, Refused> {
        let Doing { by, id } = doing;
        let registry = self.deployer.registry();
        let standing = registry.standing(id).await?;
        let now = standing.generation.ok_or(Refused::Conflict("nothing is active"))?;
        let target = now
            .previous
            .ok_or(Refused::Conflict("there is no previous version to go back to; activate one by its digest"))?;
        let plugin = self.deployer.load(id, target).await?;
        self.deployer.fits(id, &plugin).await?;
        // One step further back, so that a second rollback does not return to what was just left.
        let previous = self.before(id, &now, target).await?;
        let (generation, by) = (standing.number + 1, by.to_owned());
        let next = Generation { generation, active: target, previous, shadow: None, by, at_ms: wall_clock_ms() };
        if registry.advance(id, &next).await? {
            return Ok(next);
        }
        Err(Refused::Conflict("another activation came first; look at what is active now"))
    }

    /// What was previous when `target` was last active, if it is still there.
    async fn before(&self, id: &PluginId, now: &Generation, target: CodeDigest) -> Result<Option<CodeDigest>, Refused> {
        let registry = self.deployer.registry();
        let earlier =
            registry.generations_after(id, 0).await?.into_iter().rev().filter(|number| *number < now.generation);
        for number in earlier {
            let Ok(then) = registry.generation(id, number).await else { continue };
            if then.active == target {
                let Some(previous) = then.previous else { return Ok(None) };
                return Ok(registry.version(id, previous).await.is_ok().then_some(previous));
            }
        }
        Ok(None)
    }

    /// Waits until this process serves what was made, and writes the audit's line.
    async fn told(
        &self,
        doing: Doing<'_>,
        verb: &'static str,
        digest: Option<CodeDigest>,
        done: Result<Generation, Refused>,
    ) -> Result<Activated, Refused> {
        let generation = done.inspect_err(|why| say(doing, verb, digest, None, why))?;
        let digest = digest.map(|digest| digest.to_string());
        audit::plugin(doing.by, &doing.id.to_string(), verb, "done", digest.as_deref(), Some(generation.generation));
        let status = timeout(SERVES_WITHIN, self.deployer.refresh(doing.id)).await.ok().flatten();
        let serving = status.as_ref().is_some_and(|status| status.serving_number() >= generation.generation);
        let fault = status.and_then(|status| status.fault.clone());
        Ok(Activated { generation, serving, fault })
    }

    /// Runs a request through a version. Nothing is stored or forwarded.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn test(&self, id: &PluginId, digest: CodeDigest, case: &Case) -> Result<Inspected, Refused> {
        if let Err(RegistryError::Absent(_)) = self.deployer.registry().version(id, digest).await {
            return Err(Refused::Absent(format!("version {digest} of {id}")));
        }
        let plugin = self.deployer.load(id, digest).await?;
        let prepared = case.prepare(&plugin, Budget::default()).await?;
        Ok(prepared.run(&plugin).await)
    }

    /// A tenant's plugins: those that were uploaded, and those that routes name.
    ///
    /// # Errors
    /// [`Refused::Registry`].
    pub async fn list(&self, tenant: &str) -> Result<Vec<Overview>, Refused> {
        let mut names = self.deployer.registry().names(tenant).await?;
        names.extend(self.deployer.named(tenant));
        names.sort_unstable();
        names.dedup();
        let mut plugins = Vec::new();
        for name in names {
            plugins.push(self.overview(PluginId { tenant: tenant.to_owned(), name }).await?);
        }
        Ok(plugins)
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Refused::Absent`] when it was neither uploaded nor named.
    pub async fn show(&self, id: PluginId) -> Result<Overview, Refused> {
        let found = self.overview(id).await?;
        if found.versions.is_empty() && found.standing.number == 0 && found.routes.is_empty() {
            return Err(Refused::Absent(format!("plugin {}", found.id)));
        }
        Ok(found)
    }

    /// Bytes of a tenant's code.
    ///
    /// # Errors
    /// [`Refused::Registry`].
    pub async fn code_used(&self, tenant: &str) -> Result<u64, Refused> {
        Ok(self.deployer.registry().code_bytes(tenant, None).await?)
    }

    async fn overview(&self, id: PluginId) -> Result<Overview, Refused> {
        let registry = self.deployer.registry();
        let (standing, versions) = (registry.standing(&id).await?, registry.versions(&id).await?);
        let (status, routes) = (self.deployer.status(&id), self.deployer.routes(&id));
        let shadow = self.shadow_report(&id, &standing).await?;
        Ok(Overview { id, standing, versions, status, routes, shadow })
    }
}

/// The audit's line of what was not done.
fn say(doing: Doing<'_>, verb: &str, digest: Option<CodeDigest>, generation: Option<u64>, why: &Refused) {
    let digest = digest.map(|digest| digest.to_string());
    audit::plugin(doing.by, &doing.id.to_string(), verb, &format!("refused: {why}"), digest.as_deref(), generation);
}
