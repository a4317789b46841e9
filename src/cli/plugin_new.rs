//! `onceward plugin new`: a project that builds and passes its cases at once. All that it needs is part of this program, but for the
//! crates that the SDK uses.
//!
//! Invariant: nothing that exists is touched; a project that could not be written whole is taken away again.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::config::is_name;

/// What a starter is called until it has a name.
const STARTER: &str = "orders";

/// A file of the new project and its text.
type File = (&'static str, &'static str);

/// Texts of the repository by their place in a project.
macro_rules! files {
    ($($place:literal = $source:literal),* $(,)?) => {
        &[$(($place, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $source)))),*]
    };
}

/// Where the starter's name stands, the project's goes.
const NAMED: &[File] = files![
    "Cargo.toml" = "plugins/template/rust/Cargo.toml",
    "README.md" = "plugins/template/rust/README.md",
    "src/lib.rs" = "plugins/sdk/examples/orders.rs",
];

const AS_THEY_ARE: &[File] = files![
    ".gitignore" = "plugins/template/rust/gitignore",
    // The versions that the bundled plugins are built with. Cargo drops what a project does not use.
    "Cargo.lock" = "plugins/Cargo.lock",
    "cases/01-first.json" = "plugins/template/cases/01-first.json",
    "cases/02-replay.json" = "plugins/template/cases/02-replay.json",
    "cases/03-mismatch.json" = "plugins/template/cases/03-mismatch.json",
    "cases/04-other-order.json" = "plugins/template/cases/04-other-order.json",
    "cases/05-unsigned.json" = "plugins/template/cases/05-unsigned.json",
    "cases/06-no-key.json" = "plugins/template/cases/06-no-key.json",
    "onceward-plugin/Cargo.toml" = "plugins/template/rust/sdk.toml",
    "onceward-plugin/wit/plugin.wit" = "wit/onceward-plugin-0.1/plugin.wit",
    "onceward-plugin/src/bindings.rs" = "plugins/sdk/src/bindings.rs",
    "onceward-plugin/src/config.rs" = "plugins/sdk/src/config.rs",
    "onceward-plugin/src/crypto.rs" = "plugins/sdk/src/crypto.rs",
    "onceward-plugin/src/encoding.rs" = "plugins/sdk/src/encoding.rs",
    "onceward-plugin/src/error.rs" = "plugins/sdk/src/error.rs",
    "onceward-plugin/src/form.rs" = "plugins/sdk/src/form.rs",
    "onceward-plugin/src/glue.rs" = "plugins/sdk/src/glue.rs",
    "onceward-plugin/src/header.rs" = "plugins/sdk/src/header.rs",
    "onceward-plugin/src/json/cursor.rs" = "plugins/sdk/src/json/cursor.rs",
    "onceward-plugin/src/json/fields.rs" = "plugins/sdk/src/json/fields.rs",
    "onceward-plugin/src/json/mod.rs" = "plugins/sdk/src/json/mod.rs",
    "onceward-plugin/src/json/number.rs" = "plugins/sdk/src/json/number.rs",
    "onceward-plugin/src/json/parts.rs" = "plugins/sdk/src/json/parts.rs",
    "onceward-plugin/src/json/pointer.rs" = "plugins/sdk/src/json/pointer.rs",
    "onceward-plugin/src/json/scan.rs" = "plugins/sdk/src/json/scan.rs",
    "onceward-plugin/src/lib.rs" = "plugins/sdk/src/lib.rs",
    "onceward-plugin/src/limits.rs" = "plugins/sdk/src/limits.rs",
    "onceward-plugin/src/plugin.rs" = "plugins/sdk/src/plugin.rs",
    "onceward-plugin/src/signature.rs" = "plugins/sdk/src/signature.rs",
    "onceward-plugin/src/standard/event.rs" = "plugins/sdk/src/standard/event.rs",
    "onceward-plugin/src/standard/message.rs" = "plugins/sdk/src/standard/message.rs",
    "onceward-plugin/src/standard/mod.rs" = "plugins/sdk/src/standard/mod.rs",
    "onceward-plugin/src/tolerance.rs" = "plugins/sdk/src/tolerance.rs",
];

/// Where the SDK finds the interface: in this repository, and in a project.
const WIT_HERE: &str = "../../wit/onceward-plugin-0.1";
const WIT_THERE: &str = "wit";

/// Makes the project `name` below `parent` and says what to type next.
///
/// # Errors
/// When the name is no crate's and plugin's name, when there is something of that name, or when it cannot be written.
pub fn new(parent: &Path, name: &str, out: &mut impl Write) -> anyhow::Result<()> {
    check_name(name)?;
    let root = parent.join(name);
    match fs::create_dir(&root) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} exists; choose another name or remove it", root.display())
        }
        made => made.with_context(|| format!("cannot make {}", root.display()))?,
    }
    if let Err(error) = write_all(&root, name) {
        // Best effort: the first error is what the user needs to see.
        let _ = fs::remove_dir_all(&root);
        return Err(error);
    }
    write!(
        out,
        "{name}/ is a plugin that builds and passes its cases: edit src/lib.rs and cases/. Next:\n  \
         cd {name}\n  \
         onceward plugin build -o {name}.wasm\n  \
         onceward plugin check {name}.wasm\n  \
         onceward plugin test {name}.wasm --cases cases\n  \
         onceward plugin run {name}.wasm --request cases/01-first.json\n"
    )?;
    Ok(())
}

/// The gateway's rule for names, and what cargo adds to it.
fn check_name(name: &str) -> anyhow::Result<()> {
    if !is_name(name) {
        bail!("{name:?} is no plugin's name: it has 1 to 63 of a-z, 0-9, _ and -");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        bail!("{name:?} is no crate's name: it must begin with a letter");
    }
    if name == "onceward-plugin" {
        bail!("{name:?} is the name of the SDK inside the project; choose another");
    }
    Ok(())
}

fn write_all(root: &Path, name: &str) -> anyhow::Result<()> {
    for (place, text) in NAMED {
        // In the code only the plugin's own name is one: `orders` stands in its prose, too.
        let text = match *place {
            "src/lib.rs" => text.replace(&format!("{STARTER:?}"), &format!("{name:?}")),
            _ => text.replace(STARTER, name),
        };
        write(&root.join(place), &text)?;
    }
    for (place, text) in AS_THEY_ARE {
        write(&root.join(place), &text.replace(WIT_HERE, WIT_THERE))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let directory = path.parent().context("a project's file lies in a directory")?;
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}
