//! The environment as a value, so that tests pass their own and the process's is read in one place.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// What every variable of this program starts with.
const PREFIX: &str = "ONCEWARD_";

/// Environment variables by name.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

/// A variable that sets a key.
pub(super) struct Setting<'a> {
    pub(super) name: &'a str,
    pub(super) table: String,
    /// Below the table, at least one.
    pub(super) keys: Vec<String>,
    pub(super) value: &'a OsStr,
}

impl Environment {
    /// The process's own. The one place that reads it.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// One variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The variables whose names start so, as far as they are text.
    pub(super) fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let text = self.0.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        text.filter(move |(name, _)| name.starts_with(prefix))
    }

    /// The variables that set a key of one of the `tables`. All others are left alone.
    pub(super) fn settings<'a>(&'a self, tables: &'a [&'a str]) -> impl Iterator<Item = Setting<'a>> {
        self.0.iter().filter_map(move |(name, value)| {
            let name = name.to_str()?;
            let (table, key) = name.strip_prefix(PREFIX)?.split_once("__")?;
            let table = table.to_ascii_lowercase();
            let keys = key.split("__").map(str::to_ascii_lowercase).collect();
            tables.contains(&table.as_str()).then_some(Setting { name, table, keys, value })
        })
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    /// The names alone: values are where secrets live.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
