//! What `onceward check` says, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::fault::{ConfigError, Fault, Notice};
use super::inactive::inactive;
use super::lint::lint;
use super::model::Config;

/// All there is to say about a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What stops the start.
    pub faults: Vec<Fault>,
    /// What is configured and not active in this version.
    pub notices: Vec<Notice>,
    /// What is probably a mistake.
    pub warnings: Vec<Notice>,
}

impl Report {
    /// What [`load`](super::load()) came to. A file that cannot be read or parsed counts as one fault, with its place as the path.
    /// Notices and warnings are about a configuration without faults.
    pub fn of(loaded: &Result<Config, ConfigError>) -> Self {
        let faults = match loaded {
            Ok(config) => {
                return Self { faults: Vec::new(), notices: inactive(config), warnings: lint(config) };
            }
            Err(ConfigError::Faults(faults)) => faults.clone(),
            Err(ConfigError::Syntax { path, line, column, message }) => {
                vec![Fault::new(format!("{}:{line}:{column}", path.display()), message.clone())]
            }
            Err(ConfigError::Unreadable { path, source }) => {
                vec![Fault::new(path.display().to_string(), format!("cannot read: {source}"))]
            }
        };
        Self { faults, ..Self::default() }
    }
}

/// A line each, faults first, and a last line that counts them.
pub fn render_text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for fault in &report.faults {
        let _ = writeln!(text, "fault: {fault}");
    }
    for (label, notices) in [("notice", &report.notices), ("warning", &report.warnings)] {
        for notice in notices {
            let _ = writeln!(text, "{label}: {}: {}", notice.path, notice.text);
        }
    }
    let verdict = if report.faults.is_empty() { "ok" } else { "refused" };
    let counts = [
        plural(report.faults.len(), "fault"),
        plural(report.notices.len(), "notice"),
        plural(report.warnings.len(), "warning"),
    ];
    let _ = writeln!(text, "{verdict}: {}", counts.join(", "));
    text
}

/// `{"ok", "faults": [{"path", "problem", "hint", "source"}], "notices": [{"path", "text"}], "warnings": [{"path", "text"}]}`.
pub fn render_json(report: &Report) -> Value {
    let fault = |fault: &Fault| json!({ "path": fault.path, "problem": fault.problem, "hint": fault.hint, "source": fault.source });
    let notice = |notice: &Notice| json!({ "path": notice.path, "text": notice.text });
    json!({
        "ok": report.faults.is_empty(),
        "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
        "notices": report.notices.iter().map(notice).collect::<Vec<_>>(),
        "warnings": report.warnings.iter().map(notice).collect::<Vec<_>>(),
    })
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
