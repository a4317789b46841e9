//! `onceward plugin build`: from a plain cargo crate to a component, with no other tool than the Wasm target.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use wit_component::{ComponentEncoder, DecodedWasm};

const TARGET: &str = "wasm32-unknown-unknown";

/// A guest's stack, in bytes. The linker's default of 1 MiB costs every fresh instance a memset.
const STACK_BYTES: u32 = 32768;

/// What was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Where the component was written.
    pub component: PathBuf,
    /// Its size in bytes.
    pub size: usize,
    /// Its SHA-256 in hexadecimal: how the gateway names this version.
    pub digest: String,
}

/// Builds the crate of `manifest` (`Cargo.toml` in the working directory by default) and writes the component to `out`
/// (`NAME.wasm` in the working directory by default), whole or not at all. `cargo` is the program to build with.
///
/// The bytes depend on the sources, the lock file and the compiler, not on where they lie: paths are cut from them.
///
/// # Errors
/// When there is no such crate or no Wasm target, when it does not compile, or when what it exports is no plugin.
pub fn build(cargo: &Path, manifest: Option<&Path>, out: Option<&Path>) -> anyhow::Result<Report> {
    let manifest = manifest.unwrap_or_else(|| Path::new("Cargo.toml"));
    let manifest = manifest.canonicalize().with_context(|| format!("no crate at {}", manifest.display()))?;
    let crate_dir = manifest.parent().context("a manifest lies in a directory")?;
    require_target(crate_dir)?;
    let metadata = metadata(cargo, &manifest)?;
    if !metadata.packages.iter().any(|package| package.manifest_path == manifest) {
        bail!("{} is a workspace; name the manifest of one plugin", manifest.display());
    }
    let module = compile(cargo, &manifest, &metadata)?;
    let bytes = std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let component = encode(&bytes).with_context(|| format!("{} is no Onceward plugin", module.display()))?;
    let file_name = module.file_name().context("a module has a file name")?;
    let out = out.map_or_else(|| PathBuf::from(file_name), Path::to_path_buf);
    write_whole(&out, &component)?;
    Ok(Report { component: out, size: component.len(), digest: hex::encode(Sha256::digest(&component)) })
}

/// The part of `cargo metadata` that is read here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    manifest_path: PathBuf,
    /// None for a package that lies on this machine.
    source: Option<String>,
}

/// The part of cargo's build messages that is read here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

fn require_target(crate_dir: &Path) -> anyhow::Result<()> {
    // Asked in the crate's directory, so that a toolchain file there counts.
    let printed = Command::new("rustc")
        .current_dir(crate_dir)
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .context("cannot run rustc; install Rust from https://rustup.rs")?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&printed.stdout).trim());
    if !printed.status.success() || !libraries.is_dir() {
        bail!("the Wasm target is not installed; type: rustup target add {TARGET}");
    }
    Ok(())
}

/// Where the sources of the crate and its dependencies lie. Fetches them if need be.
fn metadata(cargo: &Path, manifest: &Path) -> anyhow::Result<Metadata> {
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--filter-platform", TARGET, "--manifest-path"])
        .arg(manifest)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", cargo.display()))?;
    if !output.status.success() {
        bail!("cargo cannot read {}", manifest.display());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata answered in an unknown form")
}

/// Compiles the crate and says where its core module lies.
fn compile(cargo: &Path, manifest: &Path, metadata: &Metadata) -> anyhow::Result<PathBuf> {
    let output = Command::new(cargo)
        .args(["build", "--release", "--lib", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics", "--manifest-path"])
        .arg(manifest)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(metadata))
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", cargo.display()))?;
    if !output.status.success() {
        bail!("the crate does not compile");
    }
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let artifacts =
        messages.filter(|message: &Message| message.reason == "compiler-artifact" && message.manifest_path == manifest);
    let modules = artifacts.flat_map(|artifact| artifact.filenames);
    let mut modules = modules.filter(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    modules.next().context("the crate makes no module; its Cargo.toml needs: [lib] crate-type = [\"cdylib\"]")
}

/// The flags that make a small guest without a trace of this machine. They replace those of the environment and of cargo's
/// config files, since either would change the bytes.
fn rustflags(metadata: &Metadata) -> OsString {
    let linker = format!("link-arg=-zstack-size={STACK_BYTES}");
    let mut flags = vec![OsString::from("-C"), OsString::from(linker)];
    // The directories above a dependency hold its registry's name and the user's: only the crate's own name and version stay.
    let outside = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some() || !package.manifest_path.starts_with(&metadata.workspace_root));
    let above: BTreeSet<_> = outside.filter_map(|package| package.manifest_path.parent()?.parent()).collect();
    let remaps = above.into_iter().map(|directory| (directory, "/dependencies"));
    // The last that fits counts, so the workspace wins over a directory above it.
    for (directory, name) in remaps.chain([(metadata.workspace_root.as_path(), "/plugin")]) {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(directory);
        flag.push("=");
        flag.push(name);
        flags.push(flag);
    }
    flags.join(std::ffi::OsStr::new("\u{1f}"))
}

/// Wraps a core module as a component and checks that it is a plugin.
fn encode(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let component = ComponentEncoder::default().validate(true).module(module)?.encode()?;
    let DecodedWasm::Component(resolve, world) = wit_component::decode(&component)? else {
        bail!("it holds an interface and no code");
    };
    let exports = resolve.worlds.get(world).map(|world| &world.exports);
    let exported: Vec<_> =
        exports.into_iter().flat_map(|exports| exports.keys()).map(|key| resolve.name_world_key(key)).collect();
    for interface in ["meta", "verifier", "extractor"] {
        let name = format!("onceward:plugin/{interface}@0.1.0");
        if !exported.contains(&name) {
            bail!("it does not export {name}; has it an `export_plugin!` line?");
        }
    }
    Ok(component)
}

/// Writes beside `path` first, so that nobody ever reads half a component there.
fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let file_name = path.file_name().with_context(|| format!("{} is no file name", path.display()))?;
    let mut beside = OsString::from(".");
    beside.push(file_name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = std::fs::File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // Best effort: the first error is what the user needs to see.
        let _ = std::fs::remove_file(&beside);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}
