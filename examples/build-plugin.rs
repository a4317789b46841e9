//! Builds one plugin crate: `build-plugin MANIFEST OUT`.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [manifest, out] = arguments.as_slice() else { anyhow::bail!("usage: build-plugin MANIFEST OUT") };
    let report =
        onceward::cli::plugin_build::build(Path::new("cargo"), Some(Path::new(manifest)), Some(Path::new(out)))?;
    tracing::info!(component = %report.component.display(), size = report.size, digest = report.digest, "built");
    Ok(())
}
