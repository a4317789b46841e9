//! Tells the program which Wasmtime it is built with, to the patch: code that another one compiled may have that one's faults.

use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let lock = fs::read_to_string(Path::new(&root).join("Cargo.lock")).expect("Cargo.lock stands beside Cargo.toml");
    let version = lock
        .split("[[package]]")
        .find(|package| package.lines().any(|line| line == "name = \"wasmtime\""))
        .and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"')))
        .expect("Cargo.lock names wasmtime's version");
    println!("cargo::rustc-env=ONCEWARD_WASMTIME={version}");
}
