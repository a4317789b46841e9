//! Disk space kept back for ending what was begun.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use tokio::time::{Duration, Instant};

/// Enough for some hundred finished events with usual answers.
const RESERVED_BYTES: u64 = 4 << 20;

const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A file of blank space beside the database. When the disk is full it is given up: new claims are then refused, and the answers
/// of running forwards go where it was, so that what reached an upstream is still recorded. It comes back when there is space.
pub(super) struct Reserve {
    path: PathBuf,
    held: bool,
    tried: Option<Instant>,
}

impl Reserve {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, held: false, tried: None }
    }

    /// Whether there is room for new claims: the space is set aside, or can be now.
    pub(super) fn secure(&mut self) -> bool {
        if !self.held && self.tried.is_none_or(|tried| tried.elapsed() >= RETRY_EVERY) {
            self.tried = Some(Instant::now());
            match set_aside(&self.path) {
                Ok(()) => self.held = true,
                Err(error) => {
                    tracing::warn!(%error, "the disk has no room to spare: new events are refused, running ones still end");
                    self.release();
                }
            }
        }
        self.held
    }

    /// Gives the space up; whether there was any.
    pub(super) fn release(&mut self) -> bool {
        self.tried = Some(Instant::now());
        // Space that cannot be given up is as good as none.
        let removed = std::fs::remove_file(&self.path).is_ok();
        std::mem::replace(&mut self.held, false) && removed
    }
}

fn set_aside(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    // Really allocated: a sparse file would reserve nothing.
    Ok(fallocate(&file, FallocateFlags::empty(), 0, RESERVED_BYTES)?)
}
