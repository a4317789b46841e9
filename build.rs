//! Tells the program which Wasmtime it is built with, to the patch: code that another one compiled may have that one's faults.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    let lock = std::fs::read_to_string("Cargo.lock")?;
    let wasmtime = lock.split("[[package]]").find(|package| package.contains("\nname = \"wasmtime\"\n"));
    let line = wasmtime.and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = \"")));
    let version = line.and_then(|line| line.strip_suffix('"'));
    let version = version.ok_or_else(|| io::Error::other("Cargo.lock does not say which wasmtime it is"))?;
    writeln!(io::stdout(), "cargo::rerun-if-changed=Cargo.lock\ncargo::rustc-env=ONCEWARD_WASMTIME={version}")
}
