//! A PostgreSQL server of the test's own: a fresh cluster on a free port, gone with the value, or with this process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::redis::free_port;

const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The superuser, who needs no password unless a test says so.
const USER: &str = "onceward";

/// A real `postgres` process with a cluster of its own.
pub struct PostgresServer {
    port: u16,
    directory: TempDir,
    options: Vec<String>,
    process: Option<Running>,
}

/// A database of its own on a server that tests share.
pub struct Database {
    server: Arc<PostgresServer>,
    name: String,
}

struct Running {
    child: Child,
    /// Ends the thread that the kernel takes for the parent.
    _parent: mpsc::Sender<()>,
}

impl PostgresServer {
    /// Starts one. Fails loudly where PostgreSQL is not installed.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further settings, `name=value`.
    pub fn start_with(settings: &[&str]) -> Self {
        let mut server = Self::stopped_with(settings);
        server.restart();
        server
    }

    /// One that is not running yet.
    pub fn stopped() -> Self {
        Self::stopped_with(&[])
    }

    fn stopped_with(settings: &[&str]) -> Self {
        let directory = TempDir::new().expect("a directory");
        if root() {
            run(Command::new("chown").arg("postgres").arg(directory.path()));
        }
        let data = directory.path().join("data");
        let arguments = ["--username", USER, "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"];
        run(as_owner(&binary("initdb"), &[]).args(arguments).arg("--pgdata").arg(data));
        let options = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self { port: free_port(), directory, options, process: None }
    }

    /// Where a database of it is.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that the server may read and only it may write.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What the server answers to a statement of its superuser; what it says is wrong, if it does.
    pub fn try_sql(&self, database: &str, statement: &str) -> Result<String, String> {
        let mut psql = Command::new(binary("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-h", "127.0.0.1", "-U", USER, "-v", "ON_ERROR_STOP=1"]);
        let psql = psql.args(["-p", &self.port.to_string(), "-d", database, "-c", statement]);
        let output = psql.output().expect("psql runs: install the PostgreSQL client to run these tests");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// As [`Self::try_sql`], for what must succeed.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        self.try_sql(database, statement).expect("the statement succeeds")
    }

    /// Ends the server at once, as a crash would: kill -9, and its children notice.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.process.take() {
            running.child.kill().expect("the server can be killed");
            running.child.wait().expect("the server ends");
        }
    }

    /// Starts it again on the same port and data.
    pub fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + STARTS_WITHIN;
        // The port may be taken by now, or children of a killed server may not all have gone yet.
        while !self.up() {
            assert!(Instant::now() < deadline, "PostgreSQL does not start: {}", self.log());
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Starts the process and waits until it answers; false if it ended first.
    fn up(&mut self) -> bool {
        let log = std::fs::File::create(self.directory.path().join("log")).expect("a log");
        // Gone with this process, however it ends.
        let mut command = as_owner(&binary("postgres"), &["--pdeathsig", "QUIT"]);
        command.arg("-D").arg(self.directory.path().join("data")).args(["-p", &self.port.to_string()]);
        // A crash of the process loses nothing that was written; only one of the machine would.
        let settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=300"];
        for setting in settings.into_iter().chain(self.options.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut running = spawn(command);
        let deadline = Instant::now() + STARTS_WITHIN;
        loop {
            if running.child.try_wait().expect("the server's state").is_some() {
                return false;
            }
            if self.try_sql("postgres", "SELECT 1").is_ok() {
                self.process = Some(running);
                return true;
            }
            assert!(Instant::now() < deadline, "PostgreSQL does not answer: {}", self.log());
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(mut running) = self.process.take() {
            // Immediate shutdown: the children go with it, and let go of the directory.
            let _ = kill_process(Pid::from_child(&running.child), Signal::QUIT);
            let _ = running.child.wait();
        }
    }
}

impl Database {
    /// A fresh one. The server runs for as long as any test uses it.
    pub fn new() -> Self {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = {
            let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let server = Arc::new(PostgresServer::start());
                *shared = Arc::downgrade(&server);
                server
            })
        };
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        server.sql("postgres", &format!("CREATE DATABASE {name}"));
        Self { server, name }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// See [`PostgresServer::sql`].
    pub fn sql(&self, statement: &str) -> String {
        self.server.sql(&self.name, statement)
    }

    /// Ends every connection to it but the asking one; how many.
    pub fn disconnect_all(&self) -> usize {
        let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.sql(sessions).parse().expect("a number")
    }
}

/// Starts a process whose parent, for the kernel, is a thread that lives as long as the value.
fn spawn(mut command: Command) -> Running {
    let (parent, ended) = mpsc::channel();
    let (started, child) = mpsc::channel();
    std::thread::spawn(move || {
        let child = command.spawn().expect("postgres starts: install PostgreSQL and setpriv(1) to run these tests");
        started.send(child).expect("someone waits");
        // Until the other side is dropped.
        let _: Result<(), _> = ended.recv();
    });
    Running { child: child.recv().expect("it started"), _parent: parent }
}

/// A server program as a user who is not root: it refuses that.
fn as_owner(program: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    if root() {
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
    }
    command.args(more).arg(program);
    // The directory that this process is in may be closed to that user.
    command.current_dir("/");
    command
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(command: &mut Command) {
    let output = command.output().expect("the command runs: install PostgreSQL to run these tests");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program of the newest PostgreSQL that is installed: Debian keeps the server's programs out of the path.
fn binary(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin").join(name)).filter(|program| program.exists());
    programs.max().unwrap_or_else(|| PathBuf::from(name))
}
