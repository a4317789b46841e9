//! What can be wrong with a configuration, in words for the one who wrote it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// One thing that must change before the gateway starts. Its text never holds a secret, nor an address that may hold one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key, as in `routes[2].idempotency.window`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: Option<String>,
    /// Where the value came from: a file or an environment variable; none when the key is missing.
    pub source: Option<String>,
}

/// Something to know that stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The key, as in `routes[2].idempotency.window`.
    pub path: String,
    /// What to know about it.
    pub text: String,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is missing, not readable, or not UTF-8.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML. The text has no excerpt: the line may hold a secret.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What the parser expected.
        message: String,
    },
    /// It is TOML, but not a configuration: all that is wrong with it.
    #[error("{}", list(.0))]
    Faults(Vec<Fault>),
}

/// What a check found, before it is known at which key.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) text: String,
    pub(super) hint: Option<String>,
}

impl Problem {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl Fault {
    /// A fault at a key, for the rooms that check what configuration alone cannot.
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into(), hint: None, source: None }
    }
}

impl Notice {
    /// A notice at a key.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        match &self.source {
            Some(source) => write!(f, " ({source})"),
            None => Ok(()),
        }
    }
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
}
