//! The merged tree being read: every value with its key path and its source, every fault gathered, every unasked key reported.
//!
//! Reading key by key instead of through a mirror type keeps one wrong type from hiding the other faults, and leaves one place
//! where a key's name stands.

use std::cell::RefCell;

use figment::Figment;
use figment::value::{Dict, Tag, Value};

use super::environment::Environment;
use super::fault::{ConfigError, Fault, Problem};
use super::values::{kind, nearest};

/// The name of the layer that is no source worth naming.
pub(super) const DEFAULTS: &str = "defaults";

/// Gathers what the checks find.
pub(super) struct Reader<'a> {
    figment: &'a Figment,
    /// For secrets that name a variable.
    pub(super) env: &'a Environment,
    faults: RefCell<Vec<Fault>>,
    inline_secrets: RefCell<Vec<String>>,
    #[cfg(test)]
    absent: RefCell<Vec<String>>,
}

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) path: String,
    value: Value,
}

/// A table being taken apart.
pub(super) struct Table<'a> {
    reader: &'a Reader<'a>,
    path: String,
    own: Dict,
    /// A table whose keys count where the own one has none, and its path.
    inherited: Option<(String, Dict)>,
    asked: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(figment: &'a Figment, env: &'a Environment, faults: Vec<Fault>) -> Self {
        Self {
            figment,
            env,
            faults: RefCell::new(faults),
            inline_secrets: RefCell::default(),
            #[cfg(test)]
            absent: RefCell::default(),
        }
    }

    /// Reads the whole tree.
    pub(super) fn root<T>(&'a self, values: Dict, read: impl FnOnce(&mut Table<'a>) -> Option<T>) -> Option<T> {
        Table { reader: self, path: String::new(), own: values, inherited: None, asked: Vec::new() }.read_by(read)
    }

    /// What was read, if nothing was wrong.
    pub(super) fn finish<T>(&self, read: Option<T>) -> Result<T, ConfigError> {
        let faults = self.faults.take();
        match read {
            Some(read) if faults.is_empty() => Ok(read),
            _ => Err(ConfigError::Faults(faults)),
        }
    }

    /// Remembers a secret that stands in the configuration itself.
    pub(super) fn note_inline_secret(&self, path: &str) {
        self.inline_secrets.borrow_mut().push(path.to_owned());
    }

    /// The keys that were asked for and stood nowhere.
    #[cfg(test)]
    pub(super) fn absent(&self) -> Vec<String> {
        self.absent.take()
    }

    fn fault(&self, path: &str, tag: Option<Tag>, problem: Problem) {
        let metadata = tag.and_then(|tag| self.figment.get_metadata(tag));
        let source = metadata.map(|metadata| metadata.name.to_string()).filter(|name| name != DEFAULTS);
        let fault = Fault { path: path.to_owned(), problem: problem.text, hint: problem.hint, source };
        let mut faults = self.faults.borrow_mut();
        // An inherited key is read once for every table that inherits it.
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
}

impl<'a> Item<'a> {
    /// The value as `parse` reads it; a fault if it cannot.
    pub(super) fn read<T>(&self, parse: impl FnOnce(&Value) -> Result<T, Problem>) -> Option<T> {
        parse(&self.value).map_err(|problem| self.fault(problem)).ok()
    }

    pub(super) fn fault(&self, problem: Problem) {
        self.reader.fault(&self.path, Some(self.value.tag()), problem);
    }

    /// The same value under a path below its own, for a fault inside of a free-form table.
    pub(super) fn below(&self, key: &str) -> Self {
        Self { path: format!("{}.{key}", self.path), ..self.clone() }
    }

    /// The table that it must be.
    pub(super) fn table<T>(self, read: impl FnOnce(&mut Table<'a>) -> Option<T>) -> Option<T> {
        let Value::Dict(_, own) = self.value else {
            self.fault(Problem::new(format!("expected a table, found {}", kind(&self.value))));
            return None;
        };
        Table { reader: self.reader, path: self.path, own, inherited: None, asked: Vec::new() }.read_by(read)
    }

    /// The list that it must be.
    pub(super) fn items(self) -> Option<Vec<Self>> {
        let Value::Array(_, values) = self.value else {
            self.fault(Problem::new(format!("expected a list, found {}", kind(&self.value))).hint("write [ … ]"));
            return None;
        };
        let items = values.into_iter().enumerate();
        Some(
            items
                .map(|(at, value)| Self { reader: self.reader, path: format!("{}[{at}]", self.path), value })
                .collect(),
        )
    }
}

impl<'a> Table<'a> {
    /// A key's value, its own or inherited.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Item<'a>> {
        self.asked.push(key);
        let inherited = || self.inherited.as_ref().and_then(|(path, values)| Some((path, values.get(key)?)));
        let found = self.own.get(key).map(|value| (&self.path, value)).or_else(inherited);
        #[cfg(test)]
        if found.is_none() {
            self.reader.absent.borrow_mut().push(join(&self.path, key));
        }
        found.map(|(path, value)| Item { reader: self.reader, path: join(path, key), value: value.clone() })
    }

    /// A key that may be absent.
    pub(super) fn read<T>(&mut self, key: &'static str, parse: impl FnOnce(&Value) -> Result<T, Problem>) -> Option<T> {
        self.take(key)?.read(parse)
    }

    /// A key that must be there.
    pub(super) fn required(&mut self, key: &'static str) -> Option<Item<'a>> {
        let item = self.take(key);
        if item.is_none() {
            self.reader.fault(&join(&self.path, key), None, Problem::new("is missing"));
        }
        item
    }

    /// A list; absent is empty.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Value) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        let Some(item) = self.take(key) else { return Some(Vec::new()) };
        let read: Vec<Option<T>> = item.items()?.iter().map(|item| item.read(&parse)).collect();
        read.into_iter().collect()
    }

    /// A table; absent is empty.
    pub(super) fn sub<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Table<'a>) -> Option<T>) -> Option<T> {
        let below = self.inherited.as_ref().and_then(|(path, values)| match values.get(key) {
            Some(Value::Dict(_, values)) => Some((join(path, key), values.clone())),
            _ => None,
        });
        self.sub_over(key, below, read)
    }

    /// A table over another one, whose keys count where its own are absent.
    pub(super) fn sub_over<T>(
        &mut self,
        key: &'static str,
        inherited: Option<(String, Dict)>,
        read: impl FnOnce(&mut Table<'a>) -> Option<T>,
    ) -> Option<T> {
        self.asked.push(key);
        let path = join(&self.path, key);
        let own = match self.own.get(key).cloned() {
            None => Dict::new(),
            Some(Value::Dict(_, own)) => own,
            Some(value) => return Item { reader: self.reader, path, value }.table(read),
        };
        Table { reader: self.reader, path, own, inherited, asked: Vec::new() }.read_by(read)
    }

    /// A table of free names, each with its item; absent is empty.
    pub(super) fn entries(&mut self, key: &'static str) -> Vec<(String, Item<'a>)> {
        let Some(item) = self.take(key) else { return Vec::new() };
        let Value::Dict(_, values) = &item.value else {
            item.fault(Problem::new(format!("expected a table, found {}", kind(&item.value))));
            return Vec::new();
        };
        let entry = |(name, value): (&String, &Value)| {
            (name.clone(), Item { reader: self.reader, path: join(&item.path, name), value: value.clone() })
        };
        values.iter().map(entry).collect()
    }

    /// The values of a table that others inherit, unread.
    pub(super) fn heritage(&self, key: &'static str) -> Option<(String, Dict)> {
        match self.own.get(key) {
            Some(Value::Dict(_, values)) => Some((join(&self.path, key), values.clone())),
            _ => None,
        }
    }

    /// Where secrets stand in the configuration itself.
    pub(super) fn inline_secrets(&self) -> Vec<String> {
        self.reader.inline_secrets.take()
    }

    /// A fault of the table as a whole.
    pub(super) fn fault(&self, problem: Problem) {
        let tag = self.own.values().next().map(Value::tag);
        self.reader.fault(&self.path, tag, problem);
    }

    fn read_by<T>(mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let read = read(&mut self);
        for (key, value) in self.own.iter().filter(|(key, _)| !self.asked.contains(&key.as_str())) {
            let problem = Problem::new("unknown key");
            let problem = match nearest(key, self.asked.iter().copied()) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem.hint(format!("known here: {}", self.asked.join(", "))),
            };
            self.reader.fault(&join(&self.path, key), Some(value.tag()), problem);
        }
        read
    }
}

/// A key path, with the quotes that TOML would want.
fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
