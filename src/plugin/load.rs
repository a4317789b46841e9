//! From bytes to a plugin that can be called: what is refused, and what is checked once.

use std::sync::Arc;

use futures::FutureExt;
use wasmtime::component::Component;

use super::bindings::{self, Prepared};
use super::call::{Budget, Call};
use super::engine::{Engine, Shared};
use super::failure::{Failure, FailureKind, Stage};
use super::host::{Level, LogLine, Usage};
use super::registry::CodeDigest;
use crate::event::PluginVersion;

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What its author calls it.
    pub name: String,
    /// Its author's version.
    pub version: String,
    /// Names the meaning of its keys; part of every key, empty at first.
    pub key_namespace: String,
    /// JSON Schema of a route's `plugin_config`.
    pub config_schema: Option<String>,
}

/// Compiled code, ready to be called. Cheap to clone.
#[derive(Clone)]
pub struct Plugin(Arc<Loaded>);

struct Loaded {
    shared: Arc<Shared>,
    prepared: Prepared,
    descriptor: Descriptor,
    describe: Usage,
    version: PluginVersion,
}

/// Bytes that are no plugin for this host.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Text format, or anything else.
    #[error("this is not WebAssembly in its binary form: build a component with `onceward plugin build`")]
    NotBinary,
    /// Native code made by Wasmtime, which could do anything.
    #[error(
        "this is precompiled native code, which is never taken from a file: give the `.wasm` component it was made from"
    )]
    Precompiled,
    /// A module that nothing has wrapped.
    #[error(
        "this is a core WebAssembly module, not a component: wrap it with `onceward plugin build` or `wasm-tools component new`"
    )]
    CoreModule,
    /// Broken, or it uses a proposal that the host leaves out.
    #[error("this component is not valid here: {0}")]
    Invalid(String),
    /// It needs what no plugin gets.
    #[error(
        "this component imports {}, which plugins do not get: build it for `wasm32-unknown-unknown`, as `onceward plugin build` does",
        .0.join(", ")
    )]
    Imports(Vec<String>),
    /// Another world.
    #[error("this component does not export {}: it is not of the world `onceward:plugin/plugin@0.1.0`", .0.join(", "))]
    Exports(Vec<String>),
    /// The right names with other types, or more than the pool's slots hold.
    #[error("this component does not fit the world `onceward:plugin/plugin@0.1.0`: {0}")]
    World(String),
    /// It could not say what it is.
    #[error("this plugin does not answer `describe`")]
    Describe(#[source] Failure),
}

impl Engine {
    /// Compiles a component and asks it what it is. It takes tens of milliseconds for an honest plugin, and as long as it likes
    /// for a hostile one: only for code that the operator chose.
    ///
    /// `name` is what the route calls it.
    ///
    /// # Errors
    /// When the bytes are no plugin; the message says what to do.
    pub fn load(&self, name: &str, wasm: &[u8]) -> Result<Plugin, LoadError> {
        Plugin::check_form(wasm)?;
        let component = Component::from_binary(&self.shared.engine, wasm);
        let component = component.map_err(|error| LoadError::Invalid(format!("{error:#}")))?;
        self.adopt(name, CodeDigest::of(wasm), &component)
    }

    /// Links compiled code, and asks it what it is.
    pub(super) fn adopt(&self, name: &str, digest: CodeDigest, component: &Component) -> Result<Plugin, LoadError> {
        let shared = Arc::clone(&self.shared);
        check_names(&shared, component)?;
        let misfit = |error: wasmtime::Error| LoadError::World(format!("{error:#}"));
        let pre = shared.linker.instantiate_pre(component).map_err(misfit)?;
        let prepared = Prepared::new(pre).map_err(misfit)?;
        let (descriptor, describe) = describe(&shared, &prepared).map_err(LoadError::Describe)?;

        let short: String = digest.to_string().chars().take(12).collect();
        let version = PluginVersion { name: name.to_owned(), version: format!("{}+{short}", descriptor.version) };
        Ok(Plugin(Arc::new(Loaded { shared, prepared, descriptor, describe, version })))
    }
}

impl Plugin {
    /// Whether bytes are a component at all, by their first few.
    ///
    /// # Errors
    /// [`LoadError`] for text, native code and bare modules.
    pub fn check_form(wasm: &[u8]) -> Result<(), LoadError> {
        if wasmtime::Engine::detect_precompiled(wasm).is_some() {
            return Err(LoadError::Precompiled);
        }
        match wasm {
            [b'\0', b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(LoadError::CoreModule),
            [b'\0', b'a', b's', b'm', ..] => Ok(()),
            _ => Err(LoadError::NotBinary),
        }
    }

    /// What it says of itself.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// What saying so took.
    pub fn describe_usage(&self) -> Usage {
        self.0.describe
    }

    /// The name its route uses; its own version and the start of its code's SHA-256.
    pub fn version(&self) -> &PluginVersion {
        &self.0.version
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    pub(super) fn prepared(&self) -> &Prepared {
        &self.0.prepared
    }

    /// Sends a call's lines to the program's log, after the call, so that a guest never waits for it. The caller's span names
    /// the event.
    pub fn report(&self, log: &[LogLine]) {
        let PluginVersion { name, version } = self.version();
        for line in log {
            let text = line.text.as_str();
            match line.level {
                Level::Debug => tracing::debug!(plugin = name, version, "{text}"),
                Level::Info => tracing::info!(plugin = name, version, "{text}"),
                Level::Warn => tracing::warn!(plugin = name, version, "{text}"),
                Level::Error => tracing::error!(plugin = name, version, "{text}"),
            }
        }
    }
}

/// Names what is missing or too much, which Wasmtime would do one at a time.
fn check_names(shared: &Shared, component: &Component) -> Result<(), LoadError> {
    let kind = component.component_type();
    let imports = kind.imports(&shared.engine).map(|(name, _)| name.to_owned());
    let unknown: Vec<_> = imports.filter(|name| !bindings::IMPORTS.contains(&name.as_str())).collect();
    if !unknown.is_empty() {
        return Err(LoadError::Imports(unknown));
    }
    let exports: Vec<_> = kind.exports(&shared.engine).map(|(name, _)| name).collect();
    let missing: Vec<_> =
        bindings::EXPORTS.into_iter().filter(|name| !exports.contains(name)).map(str::to_owned).collect();
    if missing.is_empty() { Ok(()) } else { Err(LoadError::Exports(missing)) }
}

fn describe(shared: &Shared, prepared: &Prepared) -> Result<(Descriptor, Usage), Failure> {
    let budget = Budget { wall: Budget::WALL_MAX, ..Budget::default() };
    let mut call = Call::new(shared, None, &budget, 0, false);
    let work = async |call: &mut Call| {
        let guest = call.instantiate(prepared).await?;
        let told = guest.describe(&mut call.store, &mut call.taken).await;
        told.map_err(|fault| call.failure(fault, Stage::Describe))
    };
    // Nothing in the host waits and this call does not yield, so one poll is the whole call, on any thread.
    let done = call.guarded(Stage::Describe, work).now_or_never();
    let done = done.unwrap_or_else(|| Err(Failure::new(FailureKind::Host, Stage::Describe, "the call did not end")));
    done.map(|descriptor| (descriptor, call.usage()))
}
