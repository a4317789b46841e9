//! What the store should hold and did not take, on this machine's disk until it does: outcomes of forwards without a claim
//! (`store_down = "forward"`), and outcomes of claims that the store did not answer for. An entry is on the disk before its sender is
//! answered, survives the process, and is settled once the store is back.
//!
//! With encryption keys the entries are sealed. Without, an answer's fields and body are left out: its replay has the status alone.

mod entry;
mod file;
mod reconcile;

pub use entry::{Beside, Entry};

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

use crate::store::SealingKeys;

use file::{Change, Job, Leftover};

/// What a sealed line is bound to.
const PLACE: &[u8] = b"onceward journal 1";

/// An entry that could not be put on the disk.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal cannot be written: {0}")]
pub struct JournalError(String);

/// The journal of one process. Cheap to clone.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    keys: SealingKeys,
    jobs: Sender<Job>,
    /// What nobody else is about to write, oldest first.
    waiting: Mutex<VecDeque<Entry>>,
    wake: Notify,
}

/// One line of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Put(Box<Entry>),
    Sealed { key: String, octets: String },
    Done(String),
}

impl Journal {
    /// In this directory, which is made when the first entry comes.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn open(dir: &Path, keys: SealingKeys) -> io::Result<Self> {
        let (jobs, work) = std::sync::mpsc::channel();
        let into = dir.to_owned();
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || file::write_all(&work, &into))?;
        let dir = dir.to_owned();
        Ok(Self(Arc::new(Inner { dir, keys, jobs, waiting: Mutex::default(), wake: Notify::new() })))
    }

    /// Whether entries can be written here.
    ///
    /// # Errors
    /// Why not.
    pub async fn check(&self) -> Result<(), JournalError> {
        self.append(Vec::new(), Change::Tries).await
    }

    /// Puts an entry on the disk. It is the caller's until it is done, or handed over.
    ///
    /// # Errors
    /// When the disk does not take it: it is then known to nobody but the caller.
    pub async fn write(&self, entry: Entry) -> Result<Entry, JournalError> {
        let id = entry.id.clone();
        let sealed = self.0.keys.seal(PLACE, json(&entry));
        // In memory as on the disk, so that a crash changes nothing.
        let (entry, line) = match sealed {
            Some(sealed) => (entry, Line::Sealed { key: sealed.key_id, octets: STANDARD.encode(sealed.octets) }),
            None => {
                let bare = entry.bare();
                (bare.clone(), Line::Put(Box::new(bare)))
            }
        };
        self.append(json_line(&line), Change::Opens(id)).await?;
        Ok(entry)
    }

    /// The store holds the outcome. Were this lost, the entry would be settled once more, to no effect.
    pub async fn done(&self, entry: &Entry) {
        let id = entry.id.clone();
        if let Err(error) = self.append(json_line(&Line::Done(id.clone())), Change::Closes(id)).await {
            tracing::warn!(%error, "a settled entry stays in the journal");
        }
    }

    /// Leaves an entry to be settled once the store answers.
    pub fn hand_over(&self, entry: Entry) {
        self.waiting().push_back(entry);
        self.0.wake.notify_one();
    }

    async fn append(&self, line: Vec<u8>, change: Change) -> Result<(), JournalError> {
        let (done, told) = oneshot::channel();
        let gone = || JournalError("its thread has ended".to_owned());
        self.0.jobs.send(Job { line, change, done }).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?.map_err(JournalError)
    }

    /// Takes over what dead processes left: into the own file first, then theirs goes.
    async fn adopt(&self) {
        let dir = self.0.dir.clone();
        let found = tokio::task::spawn_blocking(move || file::leftovers(&dir)).await;
        let leftovers = match found {
            Ok(Ok(leftovers)) => leftovers,
            Ok(Err(error)) => return tracing::error!(%error, dir = %self.0.dir.display(), "the journal cannot be read"),
            Err(error) => return tracing::error!(%error, "the journal was not read"),
        };
        for leftover in leftovers {
            match self.adopt_one(&leftover).await {
                Ok(adopted) => {
                    if let Err(error) = std::fs::remove_file(&leftover.path) {
                        tracing::warn!(%error, file = %leftover.path.display(), "an adopted journal could not be removed");
                    }
                    if adopted > 0 {
                        tracing::warn!(target: "onceward::audit", adopted, "a journal was taken over from a process that ended");
                    }
                }
                Err(problem) => {
                    tracing::error!(file = %leftover.path.display(), problem, "a journal cannot be taken over and stays as it is");
                }
            }
        }
    }

    async fn adopt_one(&self, leftover: &Leftover) -> Result<usize, String> {
        let entries = self.read(leftover)?;
        let adopted = entries.len();
        for entry in entries {
            let entry = self.write(entry).await.map_err(|error| error.to_string())?;
            self.hand_over(entry);
        }
        Ok(adopted)
    }

    /// The entries that still wait. Lines that are torn or damaged are left out, and said to be.
    fn read(&self, leftover: &Leftover) -> Result<Vec<Entry>, String> {
        let mut entries: Vec<Entry> = Vec::new();
        for line in leftover.text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Put(entry)) => entries.push(*entry),
                Ok(Line::Sealed { key, octets }) => {
                    let sealed = STANDARD.decode(octets).map_err(|error| error.to_string())?;
                    let opened = self.0.keys.open(PLACE, &key, &sealed).map_err(|error| error.detail)?;
                    entries.push(serde_json::from_slice(&opened).map_err(|error| error.to_string())?);
                }
                Ok(Line::Done(id)) => entries.retain(|entry| entry.id != id),
                // Its sender was not answered, or else the whole line would be there.
                Err(error) => {
                    let length = line.len();
                    tracing::error!(target: "onceward::audit", %error, length, "a torn or damaged line of the journal is skipped");
                }
            }
        }
        Ok(entries)
    }

    fn first(&self) -> Option<Entry> {
        self.waiting().front().cloned()
    }

    fn drop_first(&self) {
        self.waiting().pop_front();
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // A panic elsewhere leaves the queue whole.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::expect_used, reason = "strings, numbers and lists of them always have a JSON form")]
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data has a JSON form")
}

fn json_line(line: &Line) -> Vec<u8> {
    let mut octets = json(line);
    octets.push(b'\n');
    octets
}
