//! `onceward plugin`

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::plugin_remote::RemoteCommand;
use super::{Done, out, plugin_build, plugin_check, plugin_new, plugin_run, plugin_test};

/// Plugins are WebAssembly components; docs/plugins.md shows how to write one.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Make a project: a plugin in Rust that builds and passes its cases at once, with the SDK beside it.
    ///
    /// It holds src/lib.rs to start from (an HMAC in a header, a key and material from JSON), cases/ to test with, and a README with
    /// the commands. The next one is `onceward plugin build`.
    New {
        /// The plugin's name, and the directory's: 1 to 63 of a-z, 0-9, _ and -, a letter first.
        #[arg(value_name = "NAME")]
        name: String,
        /// The language to write it in.
        #[arg(long, value_enum, default_value_t = Lang::Rust)]
        lang: Lang,
    },
    /// Build a cargo crate into a plugin: needs cargo and its Wasm target, nothing else.
    Build {
        /// The crate's Cargo.toml; by default the one in this directory.
        #[arg(long, value_name = "FILE")]
        manifest_path: Option<PathBuf>,
        /// Where the component goes; by default NAME.wasm in this directory.
        #[arg(long, short, value_name = "OUT.wasm")]
        output: Option<PathBuf>,
        /// The cargo to build with.
        #[arg(long, env = "CARGO", default_value = "cargo", value_name = "PROGRAM", hide = true)]
        cargo: PathBuf,
    },
    /// Check a component as an upload would be: what it holds, whether it compiles within limits, what it says of itself.
    Check {
        /// The component.
        #[arg(value_name = "FILE.wasm")]
        file: PathBuf,
    },
    /// Compile a component from standard input to standard output: the limited child of `plugin check`.
    #[command(hide = true)]
    Compile {
        /// Processor time.
        #[arg(long)]
        cpu_seconds: u64,
    },
    /// Run case files through a plugin: a line a case, then `N passed, N failed`.
    Test {
        /// A bundled plugin's name, or a file.
        #[arg(value_name = "NAME|FILE.wasm")]
        plugin: String,
        /// The folder of `NN-name.json` files.
        #[arg(long, value_name = "DIR")]
        cases: PathBuf,
    },
    /// Show what a plugin makes of one request, and how much of each limit it used.
    Run {
        /// A bundled plugin's name, or a file.
        #[arg(value_name = "NAME|FILE.wasm")]
        plugin: String,
        /// The request, as a case file.
        #[arg(long, value_name = "CASE.json")]
        request: PathBuf,
    },
    /// Measure calls with one request: calls a second, p50, p99.
    Bench {
        /// A bundled plugin's name, or a file.
        #[arg(value_name = "NAME|FILE.wasm")]
        plugin: String,
        /// The request, as a case file.
        #[arg(long, value_name = "CASE.json")]
        request: PathBuf,
        /// How long to measure.
        #[arg(long, value_name = "SECONDS", default_value_t = 3)]
        seconds: u64,
    },
    #[command(flatten)]
    Remote(RemoteCommand),
}

/// What `plugin new` has a starter for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    /// A plain cargo crate.
    Rust,
}

impl PluginCommand {
    /// Runs one.
    pub fn run(self) -> anyhow::Result<Done> {
        let mut stdout = io::stdout().lock();
        let code = match self {
            Self::New { name, lang: Lang::Rust } => {
                plugin_new::new(Path::new("."), &name, &mut stdout)?;
                0
            }
            Self::Build { manifest_path, output, cargo } => {
                let report = plugin_build::build(&cargo, manifest_path.as_deref(), output.as_deref())?;
                let plugin_build::Report { component, size, digest } = report;
                out(&format!("{}\n  {size} bytes, sha256 {digest}\n", component.display()))?;
                0
            }
            Self::Check { file } => plugin_check::check(&file, &mut stdout)?,
            Self::Compile { cpu_seconds } => {
                drop(stdout);
                return Ok(Done::Code(crate::plugin::confined::child(cpu_seconds)?));
            }
            Self::Remote(command) => {
                drop(stdout);
                return command.run();
            }
            Self::Test { plugin, cases } => plugin_test::test(&plugin, &cases, &mut stdout)?,
            Self::Run { plugin, request } => plugin_run::run(&plugin, &request, &mut stdout)?,
            Self::Bench { plugin, request, seconds } => {
                plugin_run::bench(&plugin, &request, Duration::from_secs(seconds), &mut stdout)?
            }
        };
        Ok(if code == 0 { Done::Ok } else { Done::Faults })
    }
}
