//! Secrets: each from exactly one place, read at the start so that a missing one is found then. No text here repeats a value.

use std::fs::File;
use std::io::Read;

use crate::config::fault::Problem;
use crate::config::model::Secret;
use crate::config::raw::{Item, Table};
use crate::config::values::{kind, path, quote, text};

/// Longer than any key; a file beyond it is not a secret but a mistake.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A list of secrets, newest first, with at least one entry.
pub(super) fn secrets(item: Item<'_>) -> Option<Vec<Secret>> {
    let whole = item.clone();
    let items = item.items()?;
    if items.is_empty() {
        whole.fault(Problem::new("holds no secret").hint("write [ { env = \"NAME\" } ]"));
        return None;
    }
    items.into_iter().map(|item| item.table(secret)).collect::<Vec<_>>().into_iter().collect()
}

fn secret(table: &mut Table<'_>) -> Option<Secret> {
    match (table.take("env"), table.take("file"), table.take("value")) {
        (Some(item), None, None) => {
            let reader = item.reader;
            let name = item.read(text)?;
            let found = reader.env.get(&name).map(|value| value.to_str().map(str::to_owned));
            let named = quote(&name);
            item.read(|_| match found {
                None => Err(Problem::new(format!("the environment variable {named} is not set"))),
                Some(None) => Err(Problem::new(format!("the environment variable {named} is not UTF-8"))),
                Some(Some(value)) => some(value, "the environment variable is empty"),
            })
        }
        (None, Some(item), None) => item.read(|value| some(read_file(value)?, "the file is empty")),
        (None, None, Some(item)) => {
            item.reader.note_inline_secret(&item.path);
            item.read(|value| match value.as_str() {
                Some(text) => some(text.to_owned(), "is empty"),
                None => Err(Problem::new(format!("expected text, found {}", kind(value)))),
            })
        }
        _ => {
            table.fault(Problem::new("a secret has exactly one source").hint("write one of env, file and value"));
            None
        }
    }
}

fn some(secret: String, otherwise: &str) -> Result<Secret, Problem> {
    if secret.is_empty() { Err(Problem::new(otherwise)) } else { Ok(Secret::new(secret)) }
}

/// A file's text without the newline that editors leave at its end.
fn read_file(value: &figment::value::Value) -> Result<String, Problem> {
    let path = path(value)?;
    let named = quote(&path.display().to_string());
    let unreadable = |error: std::io::Error| Problem::new(format!("cannot read {named}: {error}"));
    let mut text = String::new();
    let file = File::open(&path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Problem::new(format!("{named} is larger than {FILE_BYTES_MAX} bytes")));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}
