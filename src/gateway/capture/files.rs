//! The captured requests of one route on the disk: a ring of files, one a request, the oldest first to go.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::config::model::Capture;
use crate::store::SealingKeys;

/// The most that one route's requests may take together, in bytes.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// What a sealed request is bound to, before its place.
const PURPOSE: &str = "onceward capture 1";

/// How the name of a request's file ends.
const EXTENSION: &str = "request";

/// What a half written one is called after that.
const HALF: &str = "half";

/// Where a route's requests are.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub tenant: String,
    pub route: String,
    pub dir: PathBuf,
}

impl Place {
    pub fn new(root: &Path, tenant: &str, route: &str) -> Self {
        Self { tenant: tenant.to_owned(), route: route.to_owned(), dir: root.join(tenant).join(route) }
    }

    /// So that a file opens nowhere else, and under no other name: the name holds the time that it expires by.
    fn bound(&self, name: &str) -> Vec<u8> {
        [PURPOSE, &self.tenant, &self.route, name].join("\n").into_bytes()
    }

    /// Deletes all requests; how many there were.
    pub fn erase(&self) -> io::Result<usize> {
        let mut erased = 0;
        for path in self.paths()? {
            erased += usize::from(path.extension().is_some_and(|extension| extension == EXTENSION));
            gone(fs::remove_file(path))?;
        }
        gone(fs::remove_dir(&self.dir))?;
        Ok(erased)
    }

    /// The names of the requests, oldest first.
    pub fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.list()?.into_iter().map(|file| file.name).collect())
    }

    /// The octets of one request; none when it is gone by now.
    pub fn open(&self, keys: &SealingKeys, name: &str) -> Result<Option<Vec<u8>>, String> {
        let octets = match fs::read(self.dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            octets => octets.map_err(|error| error.to_string())?,
        };
        let damaged = || "it is damaged".to_owned();
        let end = octets.iter().position(|octet| *octet == b'\n').ok_or_else(damaged)?;
        let (key_id, sealed) = octets.split_at_checked(end).ok_or_else(damaged)?;
        let key_id = std::str::from_utf8(key_id).map_err(|_| damaged())?;
        let sealed = sealed.get(1..).ok_or_else(damaged)?;
        keys.open(&self.bound(name), key_id, sealed).map(Some).map_err(|error| error.detail)
    }

    /// Deletes writes that a crash broke off. Only while nothing is being written.
    fn sweep_halves(&self) -> io::Result<()> {
        for path in self.paths()? {
            if path.extension().is_some_and(|extension| extension == HALF) {
                gone(fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            files => files?.map(|file| file.map(|file| file.path())).collect(),
        }
    }

    fn list(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for path in self.paths()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // One that is being written is not there yet.
            let Some(received_at_ms) = received_at_ms(&name) else { continue };
            match path.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                metadata => kept.push(Kept { name, received_at_ms, bytes: metadata?.len() }),
            }
        }
        kept.sort_by(|one, other| (one.received_at_ms, &one.name).cmp(&(other.received_at_ms, &other.name)));
        Ok(kept)
    }
}

/// One request on the disk.
struct Kept {
    name: String,
    received_at_ms: u64,
    bytes: u64,
}

/// A route's ring.
pub(super) struct Ring {
    pub place: Place,
    limits: Capture,
    /// Oldest first.
    kept: VecDeque<Kept>,
    bytes: u64,
}

impl Ring {
    /// With what an earlier run left.
    pub fn open(place: Place, limits: Capture) -> io::Result<Self> {
        place.sweep_halves()?;
        let kept: VecDeque<Kept> = place.list()?.into();
        let bytes = kept.iter().map(|file| file.bytes).sum();
        Ok(Self { place, limits, kept, bytes })
    }

    /// Keeps a request.
    pub fn keep(&mut self, keys: &SealingKeys, received_at_ms: u64, event: &str, octets: Vec<u8>) -> io::Result<()> {
        let name = format!("{received_at_ms:020}-{event}.{EXTENSION}");
        let sealed = keys.seal(&self.place.bound(&name), octets);
        let sealed = sealed.ok_or_else(|| io::Error::other("there is no key to encrypt it with"))?;
        let file = [sealed.key_id.as_bytes(), b"\n", &sealed.octets].concat();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.place.dir)?;
        // Under another name until it is whole. It is not synced: what a crash of the machine takes was only for trying out.
        let half = self.place.dir.join(format!("{name}.{HALF}"));
        let written = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&half)
            .and_then(|mut half| half.write_all(&file));
        if let Err(error) = written.and_then(|()| fs::rename(&half, self.place.dir.join(&name))) {
            let _ = fs::remove_file(&half);
            return Err(error);
        }
        let bytes = file.len() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        self.kept.push_back(Kept { name, received_at_ms, bytes });
        self.trim(|ring| ring.kept.len() > ring.limits.max || ring.bytes > BYTES_MAX)
    }

    /// Deletes what is older than the route keeps.
    pub fn expire(&mut self, now_ms: u64) -> io::Result<()> {
        let ttl_ms = u64::try_from(self.limits.ttl.as_millis()).unwrap_or(u64::MAX);
        let before = now_ms.saturating_sub(ttl_ms);
        self.trim(|ring| ring.kept.front().is_some_and(|oldest| oldest.received_at_ms < before))
    }

    /// Deletes all.
    pub fn erase(&mut self) -> io::Result<usize> {
        let erased = self.place.erase();
        // Whatever is left is still counted.
        self.kept = self.place.list()?.into();
        self.bytes = self.kept.iter().map(|file| file.bytes).sum();
        erased
    }

    fn trim(&mut self, too_much: impl Fn(&Self) -> bool) -> io::Result<()> {
        while too_much(self)
            && let Some(oldest) = self.kept.front()
        {
            gone(fs::remove_file(self.place.dir.join(&oldest.name)))?;
            self.bytes = self.bytes.saturating_sub(oldest.bytes);
            self.kept.pop_front();
        }
        Ok(())
    }
}

/// The event's id in a request's name.
pub(super) fn event_of(name: &str) -> &str {
    name.split(['-', '.']).nth(1).unwrap_or_default()
}

fn received_at_ms(name: &str) -> Option<u64> {
    let (stem, _) = name.rsplit_once('.').filter(|(_, extension)| *extension == EXTENSION)?;
    stem.split_once('-')?.0.parse().ok()
}

/// Another one may have deleted it first: an operator, by hand.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
