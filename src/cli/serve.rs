//! `onceward serve`

use std::path::Path;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::{self, AppError};
use crate::config::{Environment, Report, inactive, lint, load};
use crate::server::nofile;

use super::{Done, banner, out, runtime};

/// Serves until a signal; the control plane (signals, admin) runs here, the data plane on threads of its own.
pub fn run(path: Option<&Path>) -> anyhow::Result<Done> {
    let loaded = load(path, &Environment::of_process());
    let config = match loaded {
        Ok(config) => config,
        Err(error) => {
            let report = Report::of(&Err(error));
            anyhow::bail!("the configuration is refused\n{}", crate::config::render_text(&report).trim_end());
        }
    };
    for notice in inactive(&config).iter().chain(&lint(&config)) {
        tracing::warn!(key = notice.path, "{}", notice.text);
    }
    if let Err(error) = nofile::raise() {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
    runtime()?.block_on(async {
        // Listening for signals before anything is bound: a stop that comes early is a stop.
        let mut stop = Stop::new().context("cannot listen for signals")?;
        let mut hang_up = signal(SignalKind::hangup()).context("cannot listen for signals")?;
        tokio::spawn(async move {
            // Unheard it would end the process, as a closed terminal or a reload script sends it.
            while hang_up.recv().await.is_some() {
                tracing::warn!(
                    "SIGHUP: a new configuration is only read at the start in this version; restart to apply it"
                );
            }
        });
        let listeners = app::bind(&config)?;
        let banner = banner::Banner::of(&config);
        let say = |running: &app::Running| {
            // A closed stdout is no reason to stop serving.
            let _ = out(&banner.render(running));
        };
        let shutdown = async {
            stop.signalled().await;
            tokio::spawn(async move {
                stop.signalled().await;
                tracing::warn!("a second signal: ending at once; what is in flight is left to its lease");
                std::process::exit(130);
            });
        };
        match app::run(config, listeners, say, shutdown).await {
            Ok(_) => Ok(Done::Ok),
            // A finding about the store, not about how the program was called.
            Err(AppError::Unfit(why)) => {
                tracing::error!("{why}");
                Ok(Done::Faults)
            }
            Err(error) => Err(error.into()),
        }
    })
}

/// The signals that end the program.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn signalled(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
