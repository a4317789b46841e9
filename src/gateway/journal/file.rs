//! The journal's files: one a process, locked while it lives, so that what a dead one left can be told from what is in use.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use tokio::sync::oneshot;

/// The most that one process's file may hold. Beyond it an entry is refused, so that an outage does not fill the disk.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The most lines that are written with one sync.
const BATCH_MAX: usize = 1024;

/// A line to be written.
pub(super) struct Job {
    /// With its newline; empty to see only whether the file can be had.
    pub line: Vec<u8>,
    /// What it does to which entry.
    pub change: Change,
    /// Told when the line is on the disk.
    pub done: oneshot::Sender<Result<(), String>>,
}

/// What a line does.
pub(super) enum Change {
    /// The entry waits from now on.
    Opens(String),
    /// It waits no longer.
    Closes(String),
    /// Nothing.
    Tries,
}

/// Writes what comes, many lines with one sync, until nobody is left to send. Runs on a thread of its own: a sync blocks.
pub(super) fn write_all(jobs: &Receiver<Job>, dir: &Path) {
    let mut own: Option<Own> = None;
    while let Ok(first) = jobs.recv() {
        let batch: Vec<Job> = std::iter::once(first).chain(jobs.try_iter().take(BATCH_MAX)).collect();
        let result = write(&mut own, dir, &batch).map_err(|error| format!("{}: {error}", dir.display()));
        if result.is_err() {
            // After a failed write or sync nothing is sure about this file. A new one takes over; this one is adopted later.
            own = None;
        }
        for job in batch {
            // Whoever asked may be gone.
            let _ = job.done.send(result.clone());
        }
    }
}

fn write(own: &mut Option<Own>, dir: &Path, batch: &[Job]) -> io::Result<()> {
    let file = match own {
        Some(own) => own,
        None => own.insert(Own::create(dir)?),
    };
    file.append(batch)
}

/// This process's file.
struct Own {
    file: File,
    length: u64,
    /// The entries in it that still wait.
    open: HashSet<String>,
}

impl Own {
    fn create(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut token = [0; 6];
        getrandom::fill(&mut token).map_err(io::Error::other)?;
        let path = dir.join(format!("{}-{}.jsonl", std::process::id(), hex::encode(token)));
        let file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path)?;
        file.lock()?;
        // Another process may have taken it for a leftover before it was locked.
        if file.metadata()?.nlink() == 0 {
            return Self::create(dir);
        }
        File::open(dir)?.sync_all()?;
        Ok(Self { file, length: 0, open: HashSet::new() })
    }

    fn append(&mut self, batch: &[Job]) -> io::Result<()> {
        let lines: Vec<u8> = batch.iter().flat_map(|job| job.line.iter().copied()).collect();
        let length = self.length + lines.len() as u64;
        if length > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("the journal holds {FILE_BYTES_MAX} bytes already")));
        }
        if let Err(error) = self.file.write_all(&lines).and_then(|()| self.file.sync_data()) {
            // Nobody was told that these lines are kept: a half of one may not stand before others.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length = length;
        for job in batch {
            match &job.change {
                Change::Opens(id) => drop(self.open.insert(id.clone())),
                Change::Closes(id) => drop(self.open.remove(id)),
                Change::Tries => {}
            }
        }
        if self.open.is_empty() && self.length > 0 {
            self.file.set_len(0)?;
            self.length = 0;
        }
        Ok(())
    }
}

/// A dead process's file, locked while this value lives.
pub(super) struct Leftover {
    pub path: PathBuf,
    pub text: Vec<u8>,
    _locked: File,
}

/// The files of processes that are gone.
pub(super) fn leftovers(dir: &Path) -> io::Result<Vec<Leftover>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        // It may be adopted and removed by another process at any moment until it is locked here.
        let Ok(file) = File::open(&path) else { continue };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if file.metadata()?.nlink() > 0 {
            found.push(Leftover { text: fs::read(&path)?, path, _locked: file });
        }
    }
    Ok(found)
}
