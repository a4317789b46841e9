//! `onceward plugin new`: what a newcomer gets, taken through the whole loop with the program itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::dist::files_below;

fn onceward(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.current_dir(directory).args(words);
    // One target directory for all runs, so that only the first compiles the SDK; the lock file names the crates of the guests.
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-new"));
    command.env("CARGO", env!("CARGO"));
    command.output().unwrap()
}

#[track_caller]
fn said(directory: &Path, words: &[&str]) -> String {
    let output = onceward(directory, words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(directory: &Path, name: &str) -> String {
    let output = onceward(directory, &["plugin", "new", "--", name]);
    assert_eq!(output.status.code(), Some(2), "{name:?}");
    assert!(output.stdout.is_empty(), "{name:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Every command that `plugin new` and its README name works as it stands there, in order.
#[test]
fn a_new_project_builds_and_passes_its_cases() {
    let directory = tempfile::tempdir().unwrap();
    let told = said(directory.path(), &["plugin", "new", "acme-pay"]);
    let project = directory.path().join("acme-pay");
    let readme = fs::read_to_string(project.join("README.md")).unwrap();

    let mut commands = told.lines().filter_map(|line| line.trim().strip_prefix("onceward ")).peekable();
    assert!(commands.peek().is_some(), "{told}");
    let mut printed = Vec::new();
    for command in commands {
        assert!(readme.contains(&format!("onceward {command}")), "README.md lacks: onceward {command}");
        printed.push(said(&project, &command.split(' ').collect::<Vec<_>>()));
    }
    let [built, checked, tested, run] = printed.try_into().unwrap();
    assert!(built.starts_with("acme-pay.wasm"), "{built}");
    assert!(checked.contains("acme-pay 0.1.0"), "{checked}");
    assert_eq!(tested.lines().last(), Some("6 passed, 0 failed"), "{tested}");
    assert!(run.contains("A-1001") && run.contains("total"), "{run}");
    assert!(!readme.contains("orders"), "the starter's name stands in README.md");
}

/// docs/plugins.md takes its reader through the project that `plugin new` makes, with the commands that it names.
#[test]
fn the_page_shows_the_project_as_it_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let told = said(directory.path(), &["plugin", "new", "orders"]);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/plugins.md")).unwrap();
    for file in ["Cargo.toml", "src/lib.rs"] {
        let made = fs::read_to_string(directory.path().join("orders").join(file)).unwrap();
        assert!(page.contains(&made), "docs/plugins.md must show {file} of a new project");
    }
    let commands: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert!(commands.len() > 4, "{told}");
    for command in commands {
        assert!(page.contains(&format!("{command}\n")), "docs/plugins.md lacks: {command}");
    }
}

/// The project's SDK is this repository's, whole: a file that is added there must be added to the list.
#[test]
fn the_sdk_of_a_new_project_is_the_sdk() {
    let directory = tempfile::tempdir().unwrap();
    said(directory.path(), &["plugin", "new", "shop"]);
    let names = |root: &Path| {
        let mut files = Vec::new();
        files_below(root, &mut files);
        files.iter().map(|file| file.strip_prefix(root).unwrap().to_owned()).collect::<BTreeSet<PathBuf>>()
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let vendored = directory.path().join("shop/onceward-plugin");
    assert_eq!(names(&vendored.join("src")), names(&root.join("plugins/sdk/src")));
    assert_eq!(names(&vendored.join("wit")), names(&root.join("wit/onceward-plugin-0.1")));

    let dependencies = |manifest: &Path| {
        let table: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        table.get("dependencies").unwrap().clone()
    };
    let (there, here) = (vendored.join("Cargo.toml"), root.join("plugins/sdk/Cargo.toml"));
    assert_eq!(dependencies(&there), dependencies(&here), "plugins/template/rust/sdk.toml");
}

#[test]
fn what_exists_and_what_is_no_name_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let taken = directory.path().join("taken");
    fs::create_dir(&taken).unwrap();
    assert!(refused(directory.path(), "taken").contains("exists"));
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 0, "it was touched");
    for name in ["", "Shop", "a/b", "..", "-x", "a b", "9lives", "onceward-plugin", &"a".repeat(64)] {
        assert!(refused(directory.path(), name).contains("name"), "{name:?}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only what was there is there");
}
