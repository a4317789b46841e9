//! Compiling code that nobody vouches for: in a child process with limits on its processor time and its memory.
//!
//! How long a compiler takes is not bounded by the size of what it compiles, and Wasmtime promises nothing there. The child is this
//! very program with a hidden command that only compiles. It takes the component on its standard input and gives the native code on
//! its standard output, so it needs no file and no network, and [`sandbox`] leaves it none.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};

use super::caps::{self, CapFault, Contents};
use super::engine::{Engine, Settings};

pub mod sandbox;

/// How much of the machine one compilation may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processor time, in whole seconds.
    pub cpu_seconds: u64,
    /// Resident memory, in bytes. A cap on address space would be none on memory: the engine reserves terabytes of it.
    pub resident_bytes: u64,
    /// Time on the clock: a busy machine may give the child little.
    pub wall: Duration,
    /// Native code, in bytes.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cpu_seconds: 5, resident_bytes: 512 << 20, wall: Duration::from_secs(30), output_bytes: 64 << 20 }
    }
}

/// What came of a compilation.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What the component holds.
    pub contents: Contents,
    /// What to run.
    pub code: NativeCode,
    /// Native code, in bytes.
    pub code_bytes: usize,
    /// How long it took on the clock.
    pub wall: Duration,
    /// The most memory that was seen in use, in bytes.
    pub resident_bytes: u64,
}

/// What the compiler made of a component: Wasmtime's own format, which nothing else may write.
#[derive(Clone)]
pub struct NativeCode(pub(super) Vec<u8>);

impl fmt::Debug for NativeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of native code", self.0.len())
    }
}

/// Why there is no native code.
#[derive(Debug, thiserror::Error)]
pub enum ConfinedError {
    /// Not compiled at all.
    #[error(transparent)]
    Caps(#[from] CapFault),
    /// The compiler refused it.
    #[error("this component does not compile: {0}")]
    Refused(String),
    /// It used more of the machine than a plugin's compilation may.
    #[error("compiling this component took more than {0}; an honest plugin takes a tenth of a second and 100 MiB")]
    TooMuch(String),
    /// The child could not be run.
    #[error("the compiler's process cannot run: {0}")]
    Process(#[from] io::Error),
}

/// How often the child's memory is looked at. It can grow by some tens of MiB in between.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The child's priority, below that of what serves.
const NICE: i32 = 10;

/// The child's exit code when the compiler refused.
const REFUSED: i32 = 3;

/// Checks the caps, then compiles in a child of `program`, which is this program. Blocks.
///
/// # Errors
/// [`ConfinedError`] says what to do about it.
pub fn compile(program: &Path, wasm: &[u8], limits: &Limits) -> Result<Compiled, ConfinedError> {
    let contents = caps::check(wasm)?;
    let started = Instant::now();
    let mut child = Guard(
        Command::new(program)
            .args(["plugin", "compile", "--cpu-seconds", &limits.cpu_seconds.to_string()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?,
    );
    let (mut stdin, stdout, stderr) = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
    std::thread::scope(|scope| {
        // A child that ends early closes its input; what it says of that counts.
        scope.spawn(move || stdin.take().map(|mut stdin| stdin.write_all(wasm)));
        let output = scope.spawn(move || read_at_most(stdout, limits.output_bytes + 1));
        let errors = scope.spawn(move || read_at_most(stderr, 64 << 10));
        let resident_bytes = child.watch(limits, started)?;
        let status = child.0.wait()?;
        let code = output.join().unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors.join().unwrap_or_default()).trim().to_owned();
        // What it says of the closed pipe then does not count.
        if code.len() > limits.output_bytes {
            return Err(ConfinedError::TooMuch(format!("{} MiB of native code", limits.output_bytes >> 20)));
        }
        match status.code() {
            Some(0) => {
                let code_bytes = code.len();
                let code = NativeCode(code);
                Ok(Compiled { contents, code, code_bytes, wall: started.elapsed(), resident_bytes })
            }
            Some(REFUSED) => Err(ConfinedError::Refused(errors)),
            // By the kernel, at the limit that the child has set itself.
            None => Err(ConfinedError::TooMuch(format!("{} s of processor time", limits.cpu_seconds))),
            Some(code) => Err(ConfinedError::Process(io::Error::other(format!("it ended with {code}: {errors}")))),
        }
    })
}

/// A child that does not outlive its parent's interest.
struct Guard(Child);

impl Guard {
    /// Waits for the child's end; the most memory that it was seen to use.
    fn watch(&mut self, limits: &Limits, started: Instant) -> Result<u64, ConfinedError> {
        let mut most = 0;
        while self.0.try_wait()?.is_none() {
            most = most.max(resident(self.0.id()).unwrap_or(most));
            let excess = if most > limits.resident_bytes {
                Some(format!("{} MiB of memory", limits.resident_bytes >> 20))
            } else if started.elapsed() > limits.wall {
                Some(format!("{:?}", limits.wall))
            } else {
                None
            };
            if let Some(excess) = excess {
                self.0.kill()?;
                self.0.wait()?;
                return Err(ConfinedError::TooMuch(excess));
            }
            #[expect(clippy::disallowed_methods, reason = "blocks by contract: its caller gives it a thread")]
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(most)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process's resident memory, from the second field of its `statm`, which counts pages.
fn resident(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn read_at_most(from: Option<impl Read>, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // What was read before a fault is what there is.
        let _ = from.take(most as u64).read_to_end(&mut bytes);
    }
    bytes
}

/// The child's side: reads a component from standard input, and writes its native code to standard output. Returns the exit code.
///
/// # Errors
/// When the limit cannot be set, or the pipes break.
pub fn child(cpu_seconds: u64) -> io::Result<u8> {
    let limit = Rlimit { current: Some(cpu_seconds), maximum: Some(cpu_seconds) };
    setrlimit(Resource::Cpu, limit)?;
    // What serves goes before what compiles.
    setpriority_process(None, NICE)?;
    // A crash of the compiler leaves no image of a tenant's code behind.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // Before the engine starts a thread, which would stay outside.
    sandbox::enter()?;
    let mut wasm = Vec::new();
    io::stdin().take(caps::BYTES_MAX as u64 + 1).read_to_end(&mut wasm)?;
    let engine = Engine::new(Settings::default()).map_err(io::Error::other)?;
    match engine.shared.engine.precompile_component(&wasm) {
        Ok(code) => {
            io::stdout().write_all(&code)?;
            Ok(0)
        }
        Err(error) => {
            io::stderr().write_all(format!("{error:#}").as_bytes())?;
            Ok(u8::try_from(REFUSED).unwrap_or(1))
        }
    }
}
