//! The command line: one file a command. Results go to stdout, everything else to stderr.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

mod ask;
mod banner;
mod bench;
mod check;
mod events;
mod explain;
mod explanation;
#[cfg(feature = "failpoints")]
pub mod failpoints;
mod healthcheck;
mod plugin;
pub mod plugin_build;
mod plugin_check;
mod plugin_compared;
mod plugin_new;
mod plugin_remote;
pub mod plugin_run;
pub mod plugin_test;
mod serve;
mod token;

/// Onceward forwards each business event once, and answers every redelivery with the first answer.
#[derive(Debug, Parser)]
#[command(name = "onceward", version, about, long_about = None, after_help = TRY)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What is logged to stderr: a level, or `info,onceward::event=off`.
    #[arg(long, global = true, env = "ONCEWARD_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
}

const TRY: &str = "Try it, with nothing else installed:\n  onceward serve --config config/quickstart.toml\n\n\
                   Exit codes: 0 ok, 1 the check found faults, 2 usage or unreadable input.";

const EXPLAIN: &str = "\
Example:
  onceward explain --config onceward.toml acme/orders ord_1

Exit codes: 0 something is stored, 1 nothing is, 2 usage or unreadable input.";

const EVENTS: &str = "\
Examples:
  export ONCEWARD_TOKEN=…                                    a token of [admin] tokens
  onceward events list acme --state unknown --since 1h       what waits for a person
  onceward events show acme/orders ord_1                     what `explain` prints
  onceward events release acme/orders ord_1                  the next delivery is forwarded
  onceward events succeed acme/orders ord_1 --status 201     redeliveries get this answer
  onceward events redeliver acme/orders ord_1                the kept request is sent again

Exit codes: 0 done, 1 refused or not there, 2 usage, no token or no answer.";

const PLUGIN: &str = "\
To a running gateway:
  export ONCEWARD_TOKEN=…                                       a token of [admin] tokens
  onceward plugin push acme/orders orders.wasm --cases cases    a new version, which passes its cases
  onceward plugin list acme                                     versions, and which of them serve
  onceward plugin activate acme/orders 5d41402abc4b             every gateway serves it within two seconds
  onceward plugin rollback acme/orders                          the version before serves again

Exit codes: 0 ok, 1 refused or failed, 2 usage, unreadable input, no token or no answer.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway until SIGTERM or SIGINT; a second signal ends it at once.
    Serve(ConfigArgs),
    /// Validate everything without serving: all faults at once, each with its key path.
    Check {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// What is stored for a key, and why the next delivery would be decided as it would. Works beside a running gateway.
    #[command(after_help = EXPLAIN)]
    Explain {
        #[command(flatten)]
        config: ConfigArgs,
        /// The route, as TENANT/ROUTE.
        route: String,
        /// As it stands in Idempotency-Key after `tenant:scope:`: parts joined by `|`, or `sha256-…`.
        key: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// List and resolve events of a running gateway, through its admin API.
    #[command(subcommand, after_help = EVENTS)]
    Events(events::EventsCommand),
    /// Build, test and measure plugins, and bring them to a running gateway.
    #[command(subcommand, after_help = PLUGIN)]
    Plugin(plugin::PluginCommand),
    /// Make an admin token, or the SHA-256 of one for the config.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Exit 0 when a gateway is ready: for containers and scripts.
    Healthcheck {
        /// The admin listener's readiness.
        #[arg(long, default_value = "http://127.0.0.1:8081/readyz")]
        url: String,
    },
}

#[derive(Debug, Args)]
struct ConfigArgs {
    /// The TOML file; without one, the embedded defaults and the environment count.
    #[arg(long, short, env = "ONCEWARD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How a command ends when it does not fail.
pub enum Done {
    /// 0.
    Ok,
    /// 1: the check found faults.
    Faults,
    /// Another one, between this program and its own child.
    Code(u8),
}

impl Cli {
    /// Runs the command to its exit code.
    pub fn run(self) -> ExitCode {
        let result = crate::telemetry::init(&self.log).map_err(Into::into).and_then(|()| self.command.run());
        match result {
            Ok(Done::Ok) => ExitCode::SUCCESS,
            Ok(Done::Faults) => ExitCode::from(1),
            Ok(Done::Code(code)) => ExitCode::from(code),
            Err(error) => {
                let _ = writeln!(io::stderr(), "onceward: {}", causes(&error));
                ExitCode::from(2)
            }
        }
    }
}

impl Command {
    fn run(self) -> anyhow::Result<Done> {
        match self {
            Self::Serve(config) => serve::run(config.config.as_deref()),
            Self::Check { config, json } => check::run(config.config.as_deref(), json),
            Self::Explain { config, route, key, json } => explain::run(config.config.as_deref(), &route, &key, json),
            Self::Events(command) => command.run(),
            Self::Plugin(command) => command.run(),
            Self::Token(command) => command.run(),
            Self::Healthcheck { url } => healthcheck::run(&url),
        }
    }
}

/// An error with its causes, each said once: some errors name their cause themselves.
fn causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        _ if said.contains(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

/// Writes a result. A reader that went away is no fault of ours.
fn out(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A runtime for what does not serve: the control plane and short commands.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::causes;

    #[test]
    fn a_cause_is_said_once() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let named = anyhow::Error::from(crate::app::AppError::Server(missing()));
        assert_eq!(causes(&named), format!("the server cannot run: {}", missing()));
        let unnamed = Err::<(), _>(missing()).context("cannot look").unwrap_err();
        assert_eq!(causes(&unnamed), format!("cannot look: {}", missing()));
    }
}
