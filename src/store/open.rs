//! Opening a store by its kind, and a handle for each core.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::measured::Measured;
use super::{Layered, Memory, Postgres, Redis, Sqlite, Store};

/// Which store, and where.
#[derive(Clone)]
pub enum Backend {
    /// In this process; ends with it.
    Memory,
    /// A file, made when it is not there.
    Sqlite(PathBuf),
    /// A `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://` address, which may hold a password.
    Redis(String),
    /// A `postgres://` address, which may hold a password.
    Postgres(String),
}

/// A store that cannot be used at all. One that is merely down is no such thing: its calls fail until it is back.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process serves from the same file.
    #[error(
        "another process is serving from {path}: it holds the lock on {lock}; stop it, or give this one a store of its own"
    )]
    InUse {
        /// The database.
        path: String,
        /// The lock file.
        lock: String,
    },
    /// The file was written by a later version of this program.
    #[error("{path} has schema {found}, and this version knows {known} at most; run the version that wrote it")]
    Newer {
        /// The database.
        path: String,
        /// Its schema.
        found: i64,
        /// The newest known here.
        known: i64,
    },
    /// The file cannot be opened, made or read.
    #[error("cannot open the store {path}: {detail}")]
    File {
        /// The database or its lock.
        path: String,
        /// Why.
        detail: String,
    },
    /// The address cannot be read. Its text is left out, since it may hold a password.
    #[error("the store's address is not usable: {0}")]
    Address(String),
}

/// An opened store, from which each core takes its handle.
pub struct Stores(Opened);

enum Opened {
    /// One for all: safe to call from any runtime.
    Shared(Arc<dyn Store>),
    /// A connection each: its driver runs where it is used.
    PerCore(Box<Redis>),
    /// As much, for the front.
    Layered(Box<Layered>),
}

impl Stores {
    /// Opens a store to serve from. `timeout` is the longest that one call may take. A server that is down is no fault here.
    ///
    /// # Errors
    /// [`OpenError`] when no waiting will help.
    pub async fn open(backend: Backend, timeout: Duration) -> Result<Self, OpenError> {
        Ok(Self(match backend {
            Backend::Memory => Opened::Shared(Arc::new(Memory::new())),
            Backend::Sqlite(path) => Opened::Shared(Arc::new(Sqlite::open(&path, timeout).await?)),
            Backend::Postgres(url) => Opened::Shared(Arc::new(Postgres::open(&url, timeout).await?)),
            Backend::Redis(url) => {
                let store = Redis::new(&url, timeout).map_err(|error| OpenError::Address(error.to_string()))?;
                Opened::PerCore(Box::new(store))
            }
        }))
    }

    /// Opens a store to look into while another process may be serving from it. An embedded store then refuses every write.
    ///
    /// # Errors
    /// [`OpenError`], also when there is no such file.
    pub async fn look(backend: Backend, timeout: Duration) -> Result<Self, OpenError> {
        match backend {
            Backend::Sqlite(path) => Ok(Self(Opened::Shared(Arc::new(Sqlite::look(&path, timeout).await?)))),
            Backend::Postgres(url) => Ok(Self(Opened::Shared(Arc::new(Postgres::look(&url, timeout).await?)))),
            other => Self::open(other, timeout).await,
        }
    }

    /// Puts a Redis in front. It answers what is final; this store goes on to decide everything else.
    ///
    /// # Errors
    /// [`OpenError::Address`] when the front's address cannot be read.
    pub fn behind(self, front: &str) -> Result<Self, OpenError> {
        let layered = Layered::new(self.bare(), front).map_err(|error| OpenError::Address(error.to_string()))?;
        Ok(Self(Opened::Layered(Box::new(layered))))
    }

    /// A handle, to be used on one runtime. Cheap; connects when first used.
    pub fn handle(&self) -> Arc<dyn Store> {
        Arc::new(Measured::new(self.bare()))
    }

    fn bare(&self) -> Arc<dyn Store> {
        match &self.0 {
            Opened::Shared(store) => store.clone(),
            Opened::PerCore(store) => Arc::new(store.another()),
            Opened::Layered(store) => Arc::new(store.another()),
        }
    }
}
