//! Native code of uploaded components, kept so that a start need not compile again.
//!
//! Invariants: this process compiles nothing that came by upload: a child does. It runs native code only from a file that it has
//! written itself: each begins with a MAC over all that follows, under a key that never leaves the process and its directory, and
//! above all never reaches the child, which sees hostile input. A file that does not bear it is as good as none.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::hmac;
use wasmtime::component::Component;

use super::confined::{self, Compiled, ConfinedError, Limits, NativeCode};
use super::engine::{Engine, WASMTIME};
use super::load::{LoadError, Plugin};
use super::registry::CodeDigest;

/// Bytes of the key.
const KEY_BYTES: usize = 32;
/// Bytes of a file's MAC, HMAC-SHA256.
const MAC_BYTES: usize = 32;
/// How long a file stays that nothing uses: a version that was uploaded, or left, a while ago may well be activated.
const UNUSED_MAX: Duration = Duration::from_hours(24);

/// Why a component is no plugin here.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It is no component.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It holds too much, does not compile, or takes too much to.
    #[error(transparent)]
    Compile(#[from] ConfinedError),
}

/// Compiles components in a child, and keeps what came of it.
pub struct Artifacts {
    program: PathBuf,
    limits: Limits,
    /// None: nothing is kept.
    cache: Option<Cache>,
}

struct Cache {
    directory: PathBuf,
    key: hmac::Key,
}

impl Artifacts {
    /// Keeps native code in `directory`, which is made when it is missing, for its owner alone. `program` is this program's own file.
    ///
    /// # Errors
    /// When the directory or the key in it cannot be made or read.
    pub fn open(directory: &Path, program: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key(directory)?);
        let cache = Some(Cache { directory: directory.to_owned(), key });
        Ok(Self { program: program.to_owned(), limits: Limits::default(), cache })
    }

    /// Keeps nothing: for a look.
    pub fn none(program: &Path) -> Self {
        Self { program: program.to_owned(), limits: Limits::default(), cache: None }
    }

    /// A version as it was compiled before, by this build of the program. Blocks.
    pub fn kept(&self, engine: &Engine, name: &str, digest: CodeDigest) -> Option<Plugin> {
        let code = self.cache.as_ref()?.read(engine, digest)?;
        adopt(engine, name, digest, &code).ok()
    }

    /// A component as a plugin, compiled, with what that took; what came of it is kept. Blocks.
    ///
    /// # Errors
    /// [`ArtifactError`] says what to do about it.
    pub fn compile(&self, engine: &Engine, name: &str, wasm: &[u8]) -> Result<(Compiled, Plugin), ArtifactError> {
        // First: its texts say more than a validator's about what is no component at all.
        Plugin::check_form(wasm)?;
        let compiled = confined::compile(&self.program, wasm, &self.limits)?;
        let digest = CodeDigest::of(wasm);
        let plugin = adopt(engine, name, digest, &compiled.code)?;
        if let Some(cache) = &self.cache
            && let Err(error) = cache.write(engine, digest, &compiled.code)
        {
            tracing::warn!(%error, "compiled code cannot be kept; the next start compiles it again");
        }
        Ok((compiled, plugin))
    }

    /// Removes what nothing uses any more: neither these components, nor this build of the program.
    pub fn sweep(&self, engine: &Engine, used: impl Iterator<Item = CodeDigest>) {
        let Some(cache) = &self.cache else { return };
        let used: HashSet<String> = used.map(|digest| file_name(engine, digest)).collect();
        let Ok(files) = fs::read_dir(&cache.directory) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let name = name.to_string_lossy();
            let is_old = || file.metadata().ok()?.modified().ok()?.elapsed().ok().map(|age| age > UNUSED_MAX);
            if !name.starts_with(KEY) && !used.contains(&*name) && is_old().unwrap_or(false) {
                // The next sweep tries again.
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

#[expect(unsafe_code, reason = "the bytes are what the compiler's child gave this process, or bear this process's MAC")]
fn adopt(engine: &Engine, name: &str, digest: CodeDigest, code: &NativeCode) -> Result<Plugin, LoadError> {
    // SAFETY: `code` is Wasmtime's own output, of the same build with the same settings: either it just came from our child, or
    // `Cache::read` has checked its MAC over these very bytes, which nobody can change any more.
    let component = unsafe { Component::deserialize(&engine.shared.engine, &code.0) };
    let component = component.map_err(|error| LoadError::Invalid(format!("{error:#}")))?;
    engine.adopt(name, digest, &component)
}

/// The key's file, and the beginning of its drafts' names.
const KEY: &str = "key";

/// The directory's key, made by whoever comes first.
fn key(directory: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = directory.join(KEY);
    if !path.exists() {
        let mut fresh = [0; KEY_BYTES];
        getrandom::fill(&mut fresh).map_err(io::Error::other)?;
        let draft = draft(directory, KEY)?;
        let written = write_draft(&draft, &[&fresh]);
        // Of two processes one links its key; both read that.
        let linked = written.and_then(|()| fs::hard_link(&draft, &path));
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let mut key = [0; KEY_BYTES];
    File::open(&path)?.read_exact(&mut key)?;
    Ok(key)
}

impl Cache {
    fn read(&self, engine: &Engine, digest: CodeDigest) -> Option<NativeCode> {
        let path = self.directory.join(file_name(engine, digest));
        let bytes = fs::read(&path).ok()?;
        let (mac, code) = bytes.split_at_checked(MAC_BYTES)?;
        if hmac::verify(&self.key, &authenticated(engine, digest, code), mac).is_err() {
            tracing::warn!(file = %path.display(), "kept code is not what was written; it is compiled again");
            return None;
        }
        Some(NativeCode(code.to_vec()))
    }

    fn write(&self, engine: &Engine, digest: CodeDigest, code: &NativeCode) -> io::Result<()> {
        let name = file_name(engine, digest);
        let mac = hmac::sign(&self.key, &authenticated(engine, digest, &code.0));
        let draft = draft(&self.directory, &name)?;
        let written = write_draft(&draft, &[mac.as_ref(), &code.0]);
        written.and_then(|()| fs::rename(&draft, self.directory.join(name))).inspect_err(|_| {
            let _ = fs::remove_file(&draft);
        })
    }
}

/// What the MAC covers: the name too, so that no file passes for another component's, or another build's.
fn authenticated(engine: &Engine, digest: CodeDigest, code: &[u8]) -> Vec<u8> {
    [file_name(engine, digest).as_bytes(), b"\n", code].concat()
}

/// The component, the compiler's settings and processor, and Wasmtime to the patch.
fn file_name(engine: &Engine, digest: CodeDigest) -> String {
    let mut settings = DefaultHasher::new();
    engine.shared.engine.precompile_compatibility_hash().hash(&mut settings);
    format!("{digest}-{WASMTIME}-{:016x}.cwasm", settings.finish())
}

/// A name of its own for a file in the making.
fn draft(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    Ok(directory.join(format!("{name}.{random:016x}")))
}

fn write_draft(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.sync_all()
}
