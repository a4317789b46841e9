//! Where tenants' plugins are kept: an object store that all gateways share.
//!
//! ```text
//! <tenant>/<name>/blobs/<sha256>.wasm               the component
//! <tenant>/<name>/versions/<sha256>.json            what the gate measured: a VersionRecord
//! <tenant>/<name>/generations/<20 digits>.json      which versions serve from here on: a Generation
//! <tenant>/<name>/shadow/<sha256>/<16 digits>.json  what one replica found of a candidate beside live traffic
//! ```
//!
//! Invariants: no object is changed once it is there, but for a component whose bytes are no longer those of its name, and a report by
//! whoever wrote it. A generation
//! is created under the next number or not at all, so of two activations at once exactly one has that number, and the highest one
//! counts. What is read back is checked: a component by its digest, JSON by its form.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

mod open;
mod records;
mod reports;

pub use records::{CodeDigest, Generation, NoDigest, PluginId, VersionRecord};

/// The longest that one call may take.
const CALL_MAX: Duration = Duration::from_secs(10);

/// Generations that are kept behind the newest one: how far back rollbacks can go, one after the other.
const GENERATIONS_KEPT: u64 = 20;

/// What a registry could not do. The texts are for tenants too: where the registry is stands in `Debug` alone.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// `plugins.registry` names nothing that can be opened.
    #[error("plugins.registry cannot be opened: {0}")]
    Address(String),
    /// No answer, or a refusal.
    #[error("the plugin registry cannot be reached")]
    Unavailable(String),
    /// No answer in time.
    #[error("the plugin registry does not answer within {} s", CALL_MAX.as_secs())]
    TimedOut,
    /// Not there.
    #[error("the plugin registry has no {0}")]
    Absent(String),
    /// There, and not what was put there.
    #[error("the plugin registry's {path} is damaged: {why}")]
    Damaged {
        /// Which object.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

impl RegistryError {
    fn address(error: impl std::fmt::Display) -> Self {
        Self::Address(error.to_string())
    }
}

impl From<Error> for RegistryError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound { path, .. } => Self::Absent(path.rsplit('/').next().unwrap_or_default().to_owned()),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// The newest generation of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The highest number that is taken; 0: none.
    pub number: u64,
    /// The newest one that can be read.
    pub generation: Option<Generation>,
}

/// A handle to the object store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Registry(Arc<dyn ObjectStore>);

impl Registry {
    /// Opens what `url` names (`file:DIR`, which is made with the first upload, `s3://…`, `gs://…`, `az://…`). `options` are names and
    /// values as the environment has them: credentials, region, endpoint.
    ///
    /// # Errors
    /// [`RegistryError::Address`]. Whether a bucket answers is only found by asking it.
    pub fn open<'o>(url: &str, options: impl IntoIterator<Item = (&'o str, &'o str)>) -> Result<Self, RegistryError> {
        open::open(url, options.into_iter()).map(Self)
    }

    /// Keeps a version: its code, then what the gate measured. Doing it again is no fault, and mends code that was damaged.
    ///
    /// # Errors
    /// [`RegistryError`]; what was put of it then is harmless.
    pub async fn keep(&self, id: &PluginId, record: &VersionRecord, wasm: &Bytes) -> Result<(), RegistryError> {
        let path = blob(id, record.digest);
        if !self.create(&path, wasm.clone()).await? && self.code(id, record.digest).await.is_err() {
            let overwrite = PutOptions::from(PutMode::Overwrite);
            within(self.0.put_opts(&path, wasm.clone().into(), overwrite)).await?;
        }
        self.create(&version(id, record.digest), json(record)).await?;
        Ok(())
    }

    /// A version's code.
    ///
    /// # Errors
    /// [`RegistryError::Absent`], or [`RegistryError::Damaged`] when the bytes are not those of the digest.
    pub async fn code(&self, id: &PluginId, digest: CodeDigest) -> Result<Bytes, RegistryError> {
        let path = blob(id, digest);
        let wasm = self.read(&path).await?;
        if CodeDigest::of(&wasm) == digest {
            return Ok(wasm);
        }
        Err(RegistryError::Damaged { path: path.to_string(), why: "its bytes have another SHA-256".to_owned() })
    }

    /// What the gate measured of a version.
    ///
    /// # Errors
    /// [`RegistryError::Absent`] when there is no such version.
    pub async fn version(&self, id: &PluginId, digest: CodeDigest) -> Result<VersionRecord, RegistryError> {
        self.parsed(&version(id, digest)).await
    }

    /// The versions of a plugin, newest first. One whose record is damaged is left out and logged.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn versions(&self, id: &PluginId) -> Result<Vec<VersionRecord>, RegistryError> {
        let mut versions = Vec::new();
        for object in self.list(&folder(id, "versions")).await? {
            match self.parsed::<VersionRecord>(&object.location).await {
                Ok(record) => versions.push(record),
                Err(RegistryError::Absent(_)) => {}
                Err(error @ RegistryError::Damaged { .. }) => tracing::error!(plugin = %id, "{error}"),
                Err(error) => return Err(error),
            }
        }
        versions.sort_by_key(|record| std::cmp::Reverse((record.at_ms, record.digest)));
        Ok(versions)
    }

    /// The numbers of the generations above `known`, lowest first.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn generations_after(&self, id: &PluginId, known: u64) -> Result<Vec<u64>, RegistryError> {
        let folder = folder(id, "generations");
        let offset = generation(id, known);
        let listed = self.0.list_with_offset(Some(&folder), &offset).try_collect::<Vec<_>>();
        let mut numbers: Vec<u64> =
            within(listed).await?.iter().filter_map(|object| number(&object.location)).collect();
        numbers.retain(|number| *number > known);
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// One generation.
    ///
    /// # Errors
    /// [`RegistryError`], also when it names another number.
    pub async fn generation(&self, id: &PluginId, number: u64) -> Result<Generation, RegistryError> {
        let path = generation(id, number);
        let read: Generation = self.parsed(&path).await?;
        if read.generation == number {
            return Ok(read);
        }
        let why = format!("it says that it is generation {}", read.generation);
        Err(RegistryError::Damaged { path: path.to_string(), why })
    }

    /// What counts now. Above a generation that is damaged a new one can be made.
    ///
    /// # Errors
    /// [`RegistryError`] when the registry does not answer.
    pub async fn standing(&self, id: &PluginId) -> Result<Standing, RegistryError> {
        let numbers = self.generations_after(id, 0).await?;
        let number = numbers.last().copied().unwrap_or_default();
        for candidate in numbers.into_iter().rev() {
            match self.generation(id, candidate).await {
                Ok(generation) => return Ok(Standing { number, generation: Some(generation) }),
                Err(error @ (RegistryError::Damaged { .. } | RegistryError::Absent(_))) => {
                    tracing::error!(plugin = %id, "{error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Standing { number, generation: None })
    }

    /// Makes a generation, unless its number is taken: then false.
    ///
    /// # Errors
    /// [`RegistryError`]; whether it was made is then not known.
    pub async fn advance(&self, id: &PluginId, next: &Generation) -> Result<bool, RegistryError> {
        let created = self.create(&generation(id, next.generation), json(next)).await?;
        if !created {
            // A bucket that is asked twice, since its first answer was lost, says that the number is taken: by this very generation.
            return Ok(self.generation(id, next.generation).await.is_ok_and(|taken| taken == *next));
        }
        if let Err(error) = self.forget_before(id, next.generation.saturating_sub(GENERATIONS_KEPT)).await {
            tracing::warn!(plugin = %id, ?error, "older generations are not removed yet; the next activation tries again");
        }
        Ok(true)
    }

    async fn forget_before(&self, id: &PluginId, first: u64) -> Result<(), RegistryError> {
        for object in self.list(&folder(id, "generations")).await? {
            if number(&object.location).is_some_and(|number| number < first) {
                within(self.0.delete(&object.location)).await?;
            }
        }
        Ok(())
    }

    /// The names of a tenant's plugins.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn names(&self, tenant: &str) -> Result<Vec<String>, RegistryError> {
        let folder = Path::from_iter([tenant]);
        let listed = within(self.0.list_with_delimiter(Some(&folder))).await?;
        Ok(listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect())
    }

    /// Bytes of code that a tenant has here; the version of this digest is left out, if one is given.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn code_bytes(&self, tenant: &str, but: Option<CodeDigest>) -> Result<u64, RegistryError> {
        let but = but.map(|digest| format!("{digest}.wasm")).unwrap_or_default();
        let objects = self.list(&Path::from_iter([tenant])).await?;
        let is_code = |object: &&ObjectMeta| {
            let name = object.location.filename().unwrap_or_default();
            name.ends_with(".wasm") && name != but
        };
        Ok(objects.iter().filter(is_code).map(|object| object.size).sum())
    }

    /// Removes all but the newest `keep` versions and those that the newest generation names; says which.
    ///
    /// # Errors
    /// [`RegistryError`]; what was not removed is removed the next time.
    pub async fn prune(&self, id: &PluginId, keep: usize) -> Result<Vec<CodeDigest>, RegistryError> {
        let versions = self.versions(id).await?;
        if versions.len() <= keep {
            return Ok(Vec::new());
        }
        let named: BTreeSet<CodeDigest> =
            self.standing(id).await?.generation.iter().flat_map(Generation::names).collect();
        let mut removed = Vec::new();
        for record in versions.iter().skip(keep).filter(|record| !named.contains(&record.digest)) {
            // The code first: what breaks off in between is still listed, and removed the next time.
            for path in [blob(id, record.digest), version(id, record.digest)] {
                match within(self.0.delete(&path)).await {
                    Ok(()) | Err(RegistryError::Absent(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            self.forget_reports(id, record.digest).await?;
            removed.push(record.digest);
        }
        Ok(removed)
    }

    /// Puts an object unless there is one: then false.
    async fn create(&self, path: &Path, bytes: Bytes) -> Result<bool, RegistryError> {
        let put = async {
            match self.0.put_opts(path, bytes.into(), PutOptions::from(PutMode::Create)).await {
                Ok(_) => Ok(true),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        within(put).await
    }

    async fn read(&self, path: &Path) -> Result<Bytes, RegistryError> {
        within(async { self.0.get(path).await?.bytes().await }).await
    }

    async fn parsed<T: DeserializeOwned>(&self, path: &Path) -> Result<T, RegistryError> {
        let bytes = self.read(path).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| RegistryError::Damaged { path: path.to_string(), why: error.to_string() })
    }

    async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, RegistryError> {
        within(self.0.list(Some(folder)).try_collect()).await
    }
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, RegistryError> {
    Ok(tokio::time::timeout(CALL_MAX, call).await.map_err(|_| RegistryError::TimedOut)??)
}

fn json(value: &impl Serialize) -> Bytes {
    // Records hold nothing that JSON cannot.
    serde_json::to_vec_pretty(value).unwrap_or_default().into()
}

fn folder(id: &PluginId, kind: &str) -> Path {
    Path::from_iter([id.tenant.as_str(), &id.name, kind])
}

fn blob(id: &PluginId, digest: CodeDigest) -> Path {
    Path::from_iter([id.tenant.as_str(), &id.name, "blobs", &format!("{digest}.wasm")])
}

fn version(id: &PluginId, digest: CodeDigest) -> Path {
    Path::from_iter([id.tenant.as_str(), &id.name, "versions", &format!("{digest}.json")])
}

/// Twenty digits, so that the order of names is the order of numbers.
fn generation(id: &PluginId, number: u64) -> Path {
    Path::from_iter([id.tenant.as_str(), &id.name, "generations", &format!("{number:020}.json")])
}

fn number(path: &Path) -> Option<u64> {
    path.filename()?.strip_suffix(".json")?.parse().ok()
}
