//! The committed components are what the committed sources make. `scripts/build-plugins --check` proves it by building; this test
//! notices a forgotten build without the Wasm target.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use onceward::plugin::bundled;
use sha2::{Digest, Sha256};

const AGAIN: &str = "plugins/dist is stale: run scripts/build-plugins and commit what it writes";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

pub fn files_below(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, all) } else { all.push(path) }
    }
}

/// The same digest that `scripts/build-plugins` takes: of the list that `sha256sum` prints for the sorted files.
fn sources(name: &str) -> String {
    let mut files = Vec::new();
    for directory in [&format!("plugins/{name}/src"), "plugins/sdk/src", "wit/onceward-plugin-0.1"] {
        files_below(&root().join(directory), &mut files);
    }
    let manifests = [&format!("plugins/{name}/Cargo.toml"), "plugins/sdk/Cargo.toml", "plugins/Cargo.toml"];
    files.extend(manifests.into_iter().chain(["plugins/Cargo.lock"]).map(|file| root().join(file)));
    let mut names: Vec<_> = files.iter().map(|file| file.strip_prefix(root()).unwrap().to_str().unwrap()).collect();
    names.sort_unstable();
    let lines = names.into_iter().map(|name| format!("{}  {name}\n", digest(&fs::read(root().join(name)).unwrap())));
    digest(lines.collect::<String>().as_bytes())
}

/// What the build wrote down: by plugin, the digests of its sources and of its component.
fn recorded() -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(root().join("plugins/dist/sources.sha256")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [sources, component, name] = words[..] else { panic!("not a line of three: {line}") };
            (name.to_owned(), (sources.to_owned(), component.to_owned()))
        })
        .collect()
}

#[test]
fn bundled_plugins_are_built_from_these_sources() {
    let recorded = recorded();
    assert_eq!(recorded.keys().map(String::as_str).collect::<Vec<_>>(), bundled::NAMES);
    for (name, (sources_then, component_then)) in &recorded {
        assert_eq!(&sources(name), sources_then, "{name}: {AGAIN}");
        let component = bundled::bundled(name).unwrap();
        assert_eq!(&digest(component), component_then, "{name}: {AGAIN}");
    }
}

/// The plugin that docs/plugins.md shows whole is the one that compiles with the SDK's tests.
#[test]
fn the_documented_plugin_is_the_one_that_compiles() {
    let page = fs::read_to_string(root().join("docs/plugins.md")).unwrap();
    let example = fs::read_to_string(root().join("plugins/sdk/examples/orders.rs")).unwrap();
    assert!(page.contains(example.trim_end()), "copy plugins/sdk/examples/orders.rs into docs/plugins.md");
}

/// A component must be the same wherever it is built, and must not tell where.
#[test]
fn bundled_plugins_name_no_path_of_the_building_machine() {
    for name in bundled::NAMES {
        let component = bundled::bundled(name).unwrap();
        for trace in ["/home/", "/root/", "/Users/", "/tmp/", ".cargo", "registry"] {
            let found = component.windows(trace.len()).any(|window| window == trace.as_bytes());
            assert!(!found, "{name} contains {trace}");
        }
    }
    assert!(bundled::bundled("no-such-plugin").is_none());
}
