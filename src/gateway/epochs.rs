//! Which epoch a store was last seen with, also by an earlier run: a file in `server.state_dir`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest, Sha256};

/// The file's name within the state directory.
const FILE: &str = "epochs.json";

/// The last epoch of one store.
pub struct Epochs {
    /// None for a store that ends with the process.
    file: Option<PathBuf>,
    /// Names the store in the file.
    name: String,
    known: Option<String>,
}

impl Epochs {
    /// For the store at `url`, which holds no password. Without a directory nothing is remembered beyond the process.
    pub fn open(state_dir: Option<&Path>, url: &str) -> Self {
        let file = state_dir.map(|dir| dir.join(FILE));
        let name = hex::encode(Sha256::digest(url));
        let known = file.as_deref().and_then(|file| read(file).remove(&name));
        Self { file, name, known }
    }

    /// The store has this epoch now. Gives the one before, when it was another: everything was forgotten since.
    pub fn seen(&mut self, epoch: &str) -> Option<String> {
        if self.known.as_deref() == Some(epoch) {
            return None;
        }
        if let Err(error) = self.write(epoch) {
            tracing::warn!(%error, "the store's epoch cannot be written to server.state_dir: a store that is emptied while this gateway is down will go unnoticed");
        }
        self.known.replace(epoch.to_owned())
    }

    /// Whole or not at all, so that a crash leaves a file that can be read.
    fn write(&self, epoch: &str) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut all = read(file);
        all.insert(self.name.clone(), epoch.to_owned());
        let beside = file.with_extension(format!("json.{}", std::process::id()));
        fs::write(&beside, serde_json::to_vec_pretty(&all)?)?;
        fs::rename(&beside, file)
    }
}

/// What an earlier run left; nothing when it cannot be read.
fn read(file: &Path) -> BTreeMap<String, String> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the epochs seen before cannot be read");
            return BTreeMap::new();
        }
    };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), %error, "the epochs seen before cannot be read");
        BTreeMap::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_epoch_is_told_once_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = |url| Epochs::open(Some(dir.path()), url);
        let mut first = open("redis://a");
        assert_eq!(first.seen("1"), None, "a new store is no reset");
        assert_eq!(first.seen("1"), None);
        assert_eq!(open("redis://b").seen("9"), None, "another store");
        let mut again = open("redis://a");
        assert_eq!(again.seen("2").as_deref(), Some("1"));
        assert_eq!(again.seen("2"), None);
        assert_eq!(open("redis://a").seen("2"), None);
    }

    #[test]
    fn without_a_directory_the_process_remembers() {
        let mut epochs = Epochs::open(None, "memory:");
        assert_eq!((epochs.seen("1"), epochs.seen("2").as_deref()), (None, Some("1")));
    }
}
