//! What an upload must pass before it is a version: size, form, caps, a compilation within limits, the world's names and types,
//! `describe`, and the cases that came with it.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::plugin::artifacts::{ArtifactError, Artifacts};
use crate::plugin::caps::BYTES_MAX;
use crate::plugin::confined::ConfinedError;
use crate::plugin::registry::PluginId;
use crate::plugin::{Budget, Engine, Plugin, Usage};

use super::case::Case;
use super::trial::{Outcome, trial};

/// Components that are compiled at once, whoever they are from: a compilation takes a core.
const COMPILATIONS_MAX: usize = 1;
/// Cases that may come with an upload.
pub const CASES_MAX: usize = 256;
/// What all cases of an upload may have together, in bytes.
pub const CASE_BYTES_MAX: usize = 4 << 20;

/// What was uploaded.
pub struct Upload {
    /// The component.
    pub wasm: Bytes,
    /// Requests with what they should come to.
    pub cases: Vec<Case>,
}

/// What passed, and what it took.
pub struct Passed {
    /// Ready to be called.
    pub plugin: Plugin,
    /// The most fuel of a call.
    pub fuel: u64,
    /// The most memory of a call, in bytes.
    pub memory: u64,
    /// On the clock.
    pub compile_ms: u64,
    /// Passed.
    pub cases: u64,
}

/// Why an upload is no version.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// More bytes than any plugin may have.
    #[error("it has more than the {} bytes that a plugin may have: build it in release mode with `opt-level = \"s\"`, `lto = true` and `panic = \"abort\"`, and leave out what it does not use", .0)]
    TooLarge(usize),
    /// It is no plugin for this gateway. The text says what to do.
    #[error("{0}")]
    NoPlugin(String),
    /// Its own cases fail.
    #[error("{} of its {of} cases failed", .failed.len())]
    Cases {
        /// Those that failed.
        failed: Vec<Outcome>,
        /// All of them.
        of: usize,
    },
    /// The compiler's process could not be run: nothing is known of the upload.
    #[error("the compiler's process cannot run: {0}")]
    Host(String),
}

/// The gate of one process.
pub(super) struct Gate {
    engine: Engine,
    artifacts: Arc<Artifacts>,
    turns: Semaphore,
}

impl Gate {
    pub(super) fn new(engine: Engine, artifacts: Arc<Artifacts>) -> Self {
        Self { engine, artifacts, turns: Semaphore::new(COMPILATIONS_MAX) }
    }

    /// Examines an upload. It takes as long as compiling may take, and its turn.
    pub(super) async fn examine(&self, id: &PluginId, upload: &Upload) -> Result<Passed, Unfit> {
        if upload.wasm.len() > BYTES_MAX {
            return Err(Unfit::TooLarge(BYTES_MAX));
        }
        let ended = || Unfit::Host("this process is ending".to_owned());
        let turn = self.turns.acquire().await.map_err(|_| ended())?;
        let (artifacts, engine) = (Arc::clone(&self.artifacts), self.engine.clone());
        let (name, wasm) = (id.to_string(), upload.wasm.clone());
        let compiled = tokio::task::spawn_blocking(move || artifacts.compile(&engine, &name, &wasm)).await;
        drop(turn);
        let (compiled, plugin) = compiled.map_err(|_| ended())?.map_err(unfit)?;

        // A busy machine takes nothing from a case's budget but its time, which decides nothing here.
        let budget = Budget { wall: Budget::WALL_MAX, ..Budget::default() };
        let outcomes = trial(&plugin, &upload.cases, budget).await;
        let failed: Vec<Outcome> = outcomes.iter().filter(|outcome| !outcome.faults.is_empty()).cloned().collect();
        if !failed.is_empty() {
            return Err(Unfit::Cases { failed, of: outcomes.len() });
        }
        let calls =
            || outcomes.iter().filter_map(|outcome| outcome.usage).chain(std::iter::once(plugin.describe_usage()));
        let most = |used: fn(&Usage) -> u64| calls().map(|usage| used(&usage)).max().unwrap_or_default();
        Ok(Passed {
            fuel: most(|usage| usage.fuel.used),
            memory: most(|usage| usage.memory_bytes.used),
            compile_ms: u64::try_from(compiled.wall.as_millis()).unwrap_or(u64::MAX),
            cases: outcomes.len() as u64,
            plugin,
        })
    }
}

fn unfit(error: ArtifactError) -> Unfit {
    match error {
        ArtifactError::Compile(ConfinedError::Process(error)) => Unfit::Host(error.to_string()),
        error => {
            let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
            Unfit::NoPlugin(format!("{error}{cause}"))
        }
    }
}
