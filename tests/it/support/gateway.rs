//! The real binary, started on free ports in a directory of its own, and ended with the guard.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running gateway.
pub struct Gateway {
    child: Child,
    /// The first ingest address.
    pub ingest: SocketAddr,
    /// The admin address.
    pub admin: SocketAddr,
    home: Home,
}

/// A directory with a config: what a restart finds again.
#[derive(Clone)]
pub struct Home {
    dir: std::sync::Arc<TempDir>,
}

impl Home {
    /// A fresh directory with this config; `{dir}` in it stands for the directory.
    pub fn new(config: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let text = config.replace("{dir}", dir.path().to_str().unwrap());
        fs::write(dir.path().join("onceward.toml"), text).unwrap();
        Self { dir: std::sync::Arc::new(dir) }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// All that gateways here logged so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.path().join("stderr.log")
    }

    fn spawn_with(&self, environment: &[(&str, &str)]) -> Child {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        Command::new(env!("CARGO_BIN_EXE_onceward"))
            .args(["serve", "--config", "onceward.toml"])
            .current_dir(self.path())
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Starts a gateway that must refuse to serve, and gives what it says of that.
    pub fn refuses(&self) -> String {
        self.refuses_with(&[])
    }

    /// As [`Home::refuses`], with further environment variables.
    pub fn refuses_with(&self, environment: &[(&str, &str)]) -> String {
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gateway =
            Gateway { child: self.spawn_with(environment), ingest: unknown, admin: unknown, home: self.clone() };
        assert!(!gateway.wait(Duration::from_secs(60)).success(), "it should have refused: {}", gateway.log());
        gateway.log()
    }

    /// Starts a gateway here and waits for its banner.
    pub fn start(&self) -> Gateway {
        self.start_with(&[])
    }

    /// As [`Home::start`], with further environment variables.
    pub fn start_with(&self, environment: &[(&str, &str)]) -> Gateway {
        let mut child = self.spawn_with(environment);
        let mut banner = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |prefix: &str, suffix: &str| -> SocketAddr {
            loop {
                let line =
                    banner.next().unwrap_or_else(|| panic!("no banner: {}", fs::read_to_string(self.log()).unwrap()));
                let line = line.unwrap();
                if let Some(rest) = line.trim().strip_prefix(prefix) {
                    return rest.trim().strip_suffix(suffix).unwrap().strip_prefix("http://").unwrap().parse().unwrap();
                }
            }
        };
        let ingest = address("Onceward listens on", "");
        let admin = address("health", "/readyz");
        Gateway { child, ingest, admin, home: self.clone() }
    }
}

impl Gateway {
    /// A gateway in a fresh directory.
    pub fn start(config: &str) -> Self {
        Home::new(config).start()
    }

    /// kill -9: nothing is finished, nothing is said.
    pub fn kill(mut self) -> Home {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.home.clone()
    }

    /// Waits until it was killed by a fail point.
    pub fn killed(mut self) -> Home {
        let status = self.wait(Duration::from_secs(20));
        assert_eq!(status.signal(), Some(9), "{status}: {}", self.log());
        self.home.clone()
    }

    /// Whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    /// SIGTERM, then waits for the end.
    pub fn stop(mut self) -> (Home, ExitStatus) {
        self.signal(Signal::TERM);
        let status = self.wait(Duration::from_secs(30));
        (self.home.clone(), status)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let end = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the gateway does not end: {}", self.log());
            #[expect(clippy::disallowed_methods, reason = "for tests in which nothing else runs meanwhile")]
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it uses now: resident memory in KiB, open files, threads.
    pub fn uses(&self) -> (u64, u64, u64) {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(process.join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
        };
        let files = fs::read_dir(process.join("fd")).unwrap().count();
        (field("VmRSS"), u64::try_from(files).unwrap(), field("Threads"))
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// The directory that it runs in.
    pub fn home(&self) -> Home {
        self.home.clone()
    }

    /// All that it logged so far, one JSON object a line; also what earlier runs in its directory logged.
    pub fn log(&self) -> String {
        self.home.said()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            #[expect(clippy::disallowed_macros, reason = "the test's own output shows it beside the failure")]
            {
                eprintln!("--- the gateway's log ---\n{}", self.log());
            }
        }
    }
}
