//! A plugin and its case files, from a command line.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::deploy::case::{Case, Prepared};
use crate::deploy::trial::{Outcome, trial};
use crate::plugin::{self, Budget, Engine, Inspected, Plugin};

/// Reads one case file.
///
/// # Errors
/// When it is not there or not a case.
pub fn read(path: &Path) -> anyhow::Result<Case> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Case::parse(&text).with_context(|| format!("{} is not a case file", path.display()))
}

/// Reads all `.json` files of a directory, in the order of their names.
///
/// # Errors
/// When the directory cannot be read, holds no case, or one that is none.
pub fn read_all(directory: &Path) -> anyhow::Result<Vec<Case>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    ensure!(!paths.is_empty(), "{} holds no case file (*.json)", directory.display());
    paths.iter().map(|path| read(path)).collect()
}

/// A plugin and where to run it.
pub struct Bench {
    plugin: Plugin,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    /// Loads a bundled plugin by its name, or a component from its file.
    ///
    /// # Errors
    /// When there is no such plugin, or it is none.
    pub fn new(plugin: &str) -> anyhow::Result<Self> {
        let engine = Engine::new(plugin::Settings { concurrency: 4, ..plugin::Settings::default() })?;
        let plugin = match plugin::bundled::bundled(plugin) {
            Some(wasm) => engine.load(plugin, wasm)?,
            None if Path::new(plugin).extension().is_some_and(|extension| extension == "wasm") => {
                let wasm = std::fs::read(plugin).with_context(|| format!("cannot read {plugin}"))?;
                engine.load(plugin, &wasm).with_context(|| plugin.to_owned())?
            }
            None => bail!(
                "there is no bundled plugin {plugin:?} (there are {}); a file's name ends in .wasm",
                plugin::bundled::NAMES.join(", ")
            ),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        Ok(Self { plugin, runtime })
    }

    /// The plugin.
    pub fn plugin(&self) -> &Plugin {
        &self.plugin
    }

    /// Asks the plugin about the case's config.
    ///
    /// # Errors
    /// When the case's request is none, or the plugin refuses the config.
    pub fn prepare(&self, case: &Case) -> anyhow::Result<Prepared> {
        Ok(self.runtime.block_on(case.prepare(&self.plugin, Budget::default()))?)
    }

    /// Runs a case in a fresh instance.
    pub fn run(&self, case: &Prepared) -> Inspected {
        let inspected = self.runtime.block_on(case.run(&self.plugin));
        self.plugin.report(&inspected.log);
        inspected
    }

    /// Runs all cases, and holds them against what they expect.
    pub fn try_out(&self, cases: &[Case]) -> Vec<Outcome> {
        self.runtime.block_on(trial(&self.plugin, cases, Budget::default()))
    }
}
