//! A Redis server of the test's own: a free port, a directory of its own, gone with the value.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// A real `redis-server` process.
pub struct RedisServer {
    port: u16,
    directory: TempDir,
    options: Vec<String>,
    sentinel: bool,
    clock: bool,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts one that keeps nothing on disk. Fails loudly where there is no `redis-server`.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further options, as they stand on its command line.
    pub fn start_with(options: &[&str]) -> Self {
        let mut server = Self::stopped_with(options);
        // Another program may take the port between its choice and its use.
        while !server.up() {
            server.port = free_port();
        }
        server
    }

    /// One that is not running yet; [`RedisServer::restart`] starts it.
    pub fn stopped() -> Self {
        Self::stopped_with(&[])
    }

    /// Starts one whose clock can be set.
    pub fn start_with_clock() -> Self {
        Self::start_with_clock_and(&[])
    }

    /// As [`RedisServer::start_with_clock`], with further options.
    pub fn start_with_clock_and(options: &[&str]) -> Self {
        let mut server = Self::stopped_with(options);
        server.clock = true;
        server.set_clock("+0");
        while !server.up() {
            server.port = free_port();
        }
        server
    }

    /// Sets the clock off by so many seconds, such as `+3600`.
    pub fn set_clock(&self, offset: &str) {
        // In one step: the server reads the file at any moment.
        let (new, file) = (self.directory.path().join("clock.new"), self.directory.path().join("clock"));
        std::fs::write(&new, offset).and_then(|()| std::fs::rename(new, file)).expect("a file");
    }

    /// Starts a Sentinel with this configuration and further options.
    pub fn start_sentinel(config: &str, options: &[&str]) -> Self {
        let mut server = Self::stopped_with(options);
        let file = server.directory.path().join("sentinel.conf");
        loop {
            std::fs::write(&file, format!("port {}\nbind 127.0.0.1\n{config}", server.port)).expect("a file");
            server.sentinel = true;
            if server.up() {
                return server;
            }
            server.port = free_port();
        }
    }

    /// The value of an option that it was started with.
    pub fn option(&self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|option| option == name)?;
        self.options.get(at + 1).cloned()
    }

    /// Where its clients and its peers come: over TLS, if it has a port for that.
    pub fn client_port(&self) -> String {
        self.option("--tls-port").unwrap_or_else(|| self.port.to_string())
    }

    fn stopped_with(options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self {
            port: free_port(),
            directory: TempDir::new().expect("a directory"),
            options,
            sentinel: false,
            clock: false,
            process: None,
        }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the server can be killed");
            process.wait().expect("the server ends");
        }
    }

    /// Starts it again on the same port: empty, unless its options make it keep a file.
    pub fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + STARTS_WITHIN;
        while !self.up() {
            assert!(Instant::now() < deadline, "port {} did not become free", self.port);
        }
    }

    /// Freezes the process: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// What `redis-cli` prints for a command.
    pub fn cli(&self, args: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(args).output();
        let output = output.expect("redis-cli runs: install the Redis tools to run these tests");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("the server runs");
        kill_process(Pid::from_child(process), signal).expect("the server can be signalled");
    }

    /// Starts the process and waits until it answers; false if it ended first.
    fn up(&mut self) -> bool {
        let mut command = Command::new("redis-server");
        if self.sentinel {
            command.args(["sentinel.conf", "--sentinel"]);
        } else {
            command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        }
        if self.clock {
            command.envs(super::faketime::by_file(&self.directory.path().join("clock")));
        }
        let mut process = command
            .args(&self.options)
            .current_dir(self.directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts: install it to run these tests");
        let deadline = Instant::now() + STARTS_WITHIN;
        let up = loop {
            if process.try_wait().expect("the server's state").is_some() {
                break false;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                break true;
            }
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::yield_now();
        };
        self.process = up.then_some(process);
        // Listening comes before the options are all in force; an answer comes after.
        while up && self.cli(&["PING"]).starts_with("LOADING") {
            assert!(Instant::now() < deadline, "redis-server does not load its file");
        }
        up && self.cli(&["PING"]) == "PONG"
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // SIGKILL also ends a frozen one.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A port that nothing listens on now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}
