//! Reading a route's `plugin_config`, every fault at once.
//!
//! ```
//! use onceward_plugin::Tolerance;
//! use onceward_plugin::config::{self, Noted, Table};
//!
//! struct Config { secret: String, tolerance: Tolerance }
//!
//! fn configure(table: &Table<'_>) -> Result<Config, Noted> {
//!     let secret = table.text("secret");
//!     let tolerance = table.tolerance("5m");
//!     Ok(Config { secret: secret?, tolerance: tolerance? })
//! }
//!
//! assert!(config::read(r#"{"secret": "partner", "tolerance": "10m"}"#, configure).is_ok());
//! let faults = config::read(r#"{"tolerance": "soon", "secrets": []}"#, configure).err().unwrap_or_default();
//! assert_eq!(faults.len(), 3);
//! ```

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::{Fault, Tolerance};

/// A fault was written down where the config's reader will find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted(());

/// Reads a config through `configure`; members that it did not ask for are faults.
///
/// # Errors
/// Every fault, each with its JSON pointer.
pub fn read<T>(config: &str, configure: impl FnOnce(&Table<'_>) -> Result<T, Noted>) -> Result<T, Vec<Fault>> {
    let faults = RefCell::new(Vec::new());
    let value = serde_json::from_str(config).map_err(|error| vec![fault("", format!("no JSON: {error}"))])?;
    let read = Item { pointer: String::new(), value: &value, faults: &faults }.table(configure);
    let faults = faults.into_inner();
    match read {
        Ok(config) if faults.is_empty() => Ok(config),
        _ => Err(faults),
    }
}

/// A table of the config.
pub struct Table<'a> {
    pointer: &'a str,
    members: &'a Map<String, Value>,
    faults: &'a RefCell<Vec<Fault>>,
    known: RefCell<Vec<&'static str>>,
}

impl Table<'_> {
    /// The member `name` as `read` makes it of its value, or none when it is not there.
    ///
    /// # Errors
    /// When `read` noted a fault.
    pub fn optional<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(Item<'_>) -> Result<T, Noted>,
    ) -> Result<Option<T>, Noted> {
        self.known.borrow_mut().push(name);
        let Some(value) = self.members.get(name) else { return Ok(None) };
        read(Item { pointer: self.pointer_to(name), value, faults: self.faults }).map(Some)
    }

    /// The member `name`, which must be there.
    ///
    /// # Errors
    /// When it is not, or `read` noted a fault.
    pub fn required<T>(&self, name: &'static str, read: impl FnOnce(Item<'_>) -> Result<T, Noted>) -> Result<T, Noted> {
        self.optional(name, read)?.ok_or_else(|| self.fault(name, "is missing"))
    }

    /// A text that must be there and not be empty.
    ///
    /// # Errors
    /// When it is not so.
    pub fn text(&self, name: &'static str) -> Result<String, Noted> {
        self.required(name, |item| item.text().map(str::to_owned))
    }

    /// `tolerance` (a text such as `"5m"`) or `tolerance_s` (seconds), else `default`.
    ///
    /// # Errors
    /// When both are there, or one is no time from a second to 30 days.
    pub fn tolerance(&self, default: &'static str) -> Result<Tolerance, Noted> {
        let text = self.optional("tolerance", |item| match item.value.as_str().map(Tolerance::parse) {
            Some(Some(tolerance)) => Ok(tolerance),
            _ => Err(item.fault("must be a time from \"1s\" to \"30d\", as in \"5m\"")),
        });
        let seconds = self.optional("tolerance_s", |item| match item.value.as_u64().map(Tolerance::from_seconds) {
            Some(Some(tolerance)) => Ok(tolerance),
            _ => Err(item.fault("must be whole seconds from 1 to 2592000")),
        });
        match (text?, seconds?) {
            (Some(_), Some(_)) => Err(self.fault("tolerance_s", "says the same as `tolerance`: keep one of them")),
            (Some(tolerance), None) | (None, Some(tolerance)) => Ok(tolerance),
            (None, None) => Tolerance::parse(default).ok_or_else(|| self.fault("tolerance", "has no usable default")),
        }
    }

    /// Writes down that the member `name` is wrong.
    pub fn fault(&self, name: &str, text: impl Into<String>) -> Noted {
        note(self.faults, &self.pointer_to(name), text)
    }

    fn pointer_to(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1"))
    }

    fn refuse_unknown(&self) -> Result<(), Noted> {
        let known = self.known.borrow();
        let unknown: Vec<_> = self.members.keys().filter(|name| !known.contains(&name.as_str())).collect();
        let list = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let faults = unknown.into_iter().map(|name| self.fault(name, format!("is not known here: there are {list}")));
        faults.last().map_or(Ok(()), Err)
    }
}

/// A value of the config and where it stands.
pub struct Item<'a> {
    pointer: String,
    value: &'a Value,
    faults: &'a RefCell<Vec<Fault>>,
}

impl<'a> Item<'a> {
    /// A text that is not empty.
    ///
    /// # Errors
    /// For anything else.
    pub fn text(&self) -> Result<&'a str, Noted> {
        match self.value.as_str() {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => Err(self.fault("must not be empty")),
            None => Err(self.fault("must be a text")),
        }
    }

    /// A text that may be empty.
    ///
    /// # Errors
    /// For anything else.
    pub fn any_text(&self) -> Result<&'a str, Noted> {
        self.value.as_str().ok_or_else(|| self.fault("must be a text"))
    }

    /// One of a few words, as what it stands for.
    ///
    /// # Errors
    /// For anything else.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, Noted> {
        let wanted = self.value.as_str();
        choices.iter().find(|(word, _)| Some(*word) == wanted).map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.fault(format!("must be one of {}", words.join(", ")))
        })
    }

    /// Whether it is a list, where one value alone may stand for a list of one.
    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// A list of `least` to `most` items, each made by `read`.
    ///
    /// # Errors
    /// When it is no list, has another length, or `read` noted a fault: the other items are read all the same.
    pub fn list<T>(
        &self,
        least: usize,
        most: usize,
        read: impl Fn(Item<'_>) -> Result<T, Noted>,
    ) -> Result<Vec<T>, Noted> {
        let Some(values) = self.value.as_array() else { return Err(self.fault("must be a list")) };
        let items = values.iter().enumerate().map(|(index, value)| {
            read(Item { pointer: format!("{}/{index}", self.pointer), value, faults: self.faults })
        });
        let items: Vec<_> = items.collect();
        if !(least..=most).contains(&items.len()) {
            return Err(self.fault(format!("must have {least} to {most} items")));
        }
        items.into_iter().collect()
    }

    /// A table; members that `read` did not ask for are faults.
    ///
    /// # Errors
    /// When it is no table, or has a fault.
    pub fn table<T>(&self, read: impl FnOnce(&Table<'_>) -> Result<T, Noted>) -> Result<T, Noted> {
        let Some(members) = self.value.as_object() else { return Err(self.fault("must be a table")) };
        let table = Table { pointer: &self.pointer, members, faults: self.faults, known: RefCell::default() };
        let read = read(&table);
        let known = table.refuse_unknown();
        read.and_then(|value| known.map(|()| value))
    }

    /// Writes down that this value is wrong.
    pub fn fault(&self, text: impl Into<String>) -> Noted {
        note(self.faults, &self.pointer, text)
    }
}

fn note(faults: &RefCell<Vec<Fault>>, pointer: &str, text: impl Into<String>) -> Noted {
    faults.borrow_mut().push(fault(pointer, text));
    Noted(())
}

fn fault(pointer: &str, text: impl Into<String>) -> Fault {
    Fault { path: pointer.to_owned(), text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults<T>(config: &str, configure: impl FnOnce(&Table<'_>) -> Result<T, Noted>) -> Vec<String> {
        let faults = read(config, configure).err().unwrap_or_default();
        faults.into_iter().map(|fault| format!("{} {}", fault.path, fault.text)).collect()
    }

    fn shape(table: &Table<'_>) -> Result<(String, Vec<String>), Noted> {
        let name = table.text("name");
        let list = table.required("list", |item| item.list(1, 2, |item| item.text().map(str::to_owned)));
        let inner = table.optional("in/ner", |item| item.table(|table| table.text("x")));
        let _ = inner?;
        Ok((name?, list?))
    }

    /// The promise of `check`: all faults at once, each with its place.
    #[test]
    fn every_fault_is_reported() {
        assert_eq!(read(r#"{"name":"n","list":["a"]}"#, shape).ok(), Some(("n".to_owned(), vec!["a".to_owned()])));
        assert_eq!(
            faults(r#"{"name":"","list":["a",1,""],"in/ner":{"y":1},"zz":0}"#, shape),
            [
                "/name must not be empty",
                "/list/1 must be a text",
                "/list/2 must not be empty",
                "/list must have 1 to 2 items",
                "/in~1ner/x is missing",
                "/in~1ner/y is not known here: there are `x`",
                "/zz is not known here: there are `name`, `list`, `in/ner`",
            ]
        );
        assert_eq!(faults("[]", shape), [" must be a table"]);
        assert!(faults("{", shape).concat().starts_with(" no JSON"));
    }

    #[test]
    fn a_tolerance_comes_in_one_of_two_spellings() {
        let tolerance = |config: &str| read(config, |table| table.tolerance("5m"));
        assert_eq!(tolerance("{}").ok(), Tolerance::from_seconds(300));
        assert_eq!(tolerance(r#"{"tolerance":"10m"}"#).ok(), Tolerance::from_seconds(600));
        assert_eq!(tolerance(r#"{"tolerance_s":7}"#).ok(), Tolerance::from_seconds(7));
        for wrong in [
            r#"{"tolerance":"5m","tolerance_s":300}"#,
            r#"{"tolerance":"0s"}"#,
            r#"{"tolerance":300}"#,
            r#"{"tolerance_s":0}"#,
            r#"{"tolerance_s":-1}"#,
            r#"{"tolerance_s":1.5}"#,
            r#"{"tolerance_s":"300"}"#,
        ] {
            assert_eq!(tolerance(wrong).err().map(|faults| faults.len()), Some(1), "{wrong}");
        }
    }
}
