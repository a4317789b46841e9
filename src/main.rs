//! The entry: arguments, then the command, then the exit code.

use std::process::ExitCode;

use clap::Parser;
use onceward::cli::Cli;

fn main() -> ExitCode {
    // The one TLS provider of the process, before anything asks for it. A second start cannot happen here.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    #[cfg(feature = "failpoints")]
    onceward::cli::failpoints::arm();
    Cli::parse().run()
}
