//! The rules of the tree that no compiler knows: which room may use which, and how long a file may be.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

/// One room's rule. What is not listed as usable is not usable.
struct Room {
    name: &'static str,
    /// Rooms of this crate that it may name.
    uses: &'static [&'static str],
    /// Libraries it must never name.
    never: &'static [&'static str],
}

const DRIVERS: [&str; 2] = ["redis", "sqlx"];

const ROOMS: &[Room] = &[
    Room { name: "event", uses: &[], never: &["tokio", "redis", "sqlx", "wasmtime", "hyper", "tracing", "figment"] },
    Room { name: "number", uses: &[], never: &["tokio", "redis", "sqlx", "wasmtime", "hyper", "tracing", "figment"] },
    Room {
        name: "idempotency",
        uses: &["event"],
        never: &["tokio", "redis", "sqlx", "wasmtime", "hyper", "tracing", "figment", "futures"],
    },
    Room { name: "store", uses: &["event", "idempotency"], never: &["hyper", "wasmtime", "figment", "axum"] },
    Room { name: "plugin", uses: &["event", "number"], never: &["hyper", "redis", "sqlx", "figment", "axum"] },
    Room {
        name: "config",
        uses: &["event", "idempotency"],
        never: &["tokio", "hyper", "wasmtime", "redis", "sqlx", "axum"],
    },
    Room {
        name: "gateway",
        uses: &["event", "number", "idempotency", "store", "plugin", "config"],
        never: &["figment", "redis", "sqlx", "wasmtime", "axum"],
    },
    Room { name: "server", uses: &["gateway", "config"], never: &["figment", "redis", "sqlx", "wasmtime", "axum"] },
    Room {
        name: "deploy",
        uses: &["event", "plugin", "config", "gateway"],
        never: &["figment", "redis", "sqlx", "wasmtime", "hyper", "axum", "object_store"],
    },
    Room {
        name: "admin",
        uses: &["config", "deploy", "event", "gateway", "idempotency", "store", "plugin", "telemetry"],
        never: &["figment", "redis", "sqlx", "wasmtime"],
    },
    Room { name: "telemetry", uses: &[], never: &["tokio", "redis", "sqlx", "wasmtime", "hyper", "figment"] },
    Room {
        name: "app",
        uses: &[
            "admin",
            "config",
            "deploy",
            "event",
            "gateway",
            "idempotency",
            "number",
            "plugin",
            "server",
            "store",
            "telemetry",
        ],
        never: &DRIVERS,
    },
    Room {
        name: "cli",
        uses: &["app", "config", "deploy", "event", "gateway", "number", "plugin", "server", "telemetry"],
        never: &DRIVERS,
    },
];

/// Lines a file may have. A longer one holds two things.
const LINES_MAX: usize = 400;

fn files(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The code of a file without its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// The words that stand before `::` in a text, each with what follows.
fn paths(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.match_indices("::").map(|(at, _)| {
        let before = &code[..at];
        let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |end| end + 1);
        let is_inner = before[..start].ends_with("::");
        let after = &code[at + 2..];
        let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(after.len());
        (if is_inner { "" } else { &before[start..] }, &after[..end])
    })
}

#[test]
fn every_room_uses_only_what_lies_below_it() {
    let mut broken = Vec::new();
    let src = root().join("src");
    for path in files(&src) {
        let inside = path.strip_prefix(&src).unwrap().to_owned();
        let name = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
            assert!(["lib", "main"].contains(&name), "src/{name} has no rule in tests/tidy.rs");
            continue;
        };
        let code = code(&path);
        for (first, second) in paths(&code) {
            if first == "crate" && second != name && !room.uses.contains(&second) {
                broken.push(format!("src/{}: {name} may not use {second}", inside.display()));
            }
            if room.never.contains(&first) {
                broken.push(format!("src/{}: {name} may not use the library {first}", inside.display()));
            }
        }
    }
    broken.dedup();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_file_outgrows_its_room() {
    let root = root();
    let all = ["src", "tests", "plugins", "benches"].iter().map(|dir| root.join(dir)).filter(|dir| dir.exists());
    let long: Vec<_> = all
        .flat_map(|dir| files(&dir))
        .map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{}: {lines} lines", path.strip_prefix(&root).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The check itself: it must find what it is there for.
#[test]
fn paths_are_found_where_they_stand() {
    let found: Vec<_> = paths("use crate::store::Store; let x = redis::cmd(a::b);").collect();
    assert!(found.contains(&("crate", "store")));
    assert!(found.contains(&("redis", "cmd")));
    assert!(!found.contains(&("store", "Store")), "an inner step is no library");
}
