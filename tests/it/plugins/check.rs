//! `onceward plugin check`: what an upload would have to pass. Bombs are refused fast and cheap, with a text that says what is too
//! much.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use onceward::plugin::bundled::{NAMES, bundled};
use onceward::plugin::caps::{self, CapFault};
use onceward::plugin::confined::{self, ConfinedError, Limits};

use super::guest::GuestCode;
use crate::support::eventually;

/// The longest that a refusal may take.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_onceward"))
}

fn check(wasm: &[u8]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plugin.wasm");
    std::fs::write(&file, wasm).unwrap();
    Command::new(program()).args(["plugin", "check"]).arg(file).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A component around a core module's text.
fn component(module: &str) -> Vec<u8> {
    wat::parse_str(format!("(component (core module {module}))")).unwrap()
}

/// Compiles within the default limits, or is refused, in bounded time.
#[track_caller]
fn compile(wasm: &[u8]) -> Result<confined::Compiled, ConfinedError> {
    let started = Instant::now();
    let result = confined::compile(program(), wasm, &Limits::default());
    assert!(started.elapsed() < Limits::default().wall + Duration::from_secs(2), "{:?}: {result:?}", started.elapsed());
    result
}

#[track_caller]
fn too_much(wasm: &[u8]) -> &'static str {
    let started = Instant::now();
    let what = match caps::check(wasm) {
        Err(CapFault::TooMuch { what, used, max, .. }) => {
            assert!(used > max, "{what}: {used} of {max}");
            what
        }
        other => panic!("{other:?}"),
    };
    assert!(started.elapsed() < REFUSED_WITHIN, "{:?}", started.elapsed());
    what
}

#[test]
fn every_bundled_plugin_passes() {
    for name in NAMES {
        let output = check(bundled(name).unwrap());
        assert!(output.status.success(), "{name}: {}", text(&output));
        assert!(text(&output).contains("is a plugin for this gateway"), "{}", text(&output));
    }
}

#[test]
fn a_refusal_says_what_is_wrong_and_exits_with_1() {
    let huge = component(&format!("(func (export \"f\") {})", "(drop (i32.const 1))".repeat(100_000)));
    let missing = component("(func)");
    for (wasm, said) in [
        (
            huge.as_slice(),
            "has 300002 bytes in one function (the function number 1 of the file); a plugin may have 262144",
        ),
        (&missing, "does not export onceward:plugin/meta"),
        (b"(component)", "this is not WebAssembly in its binary form"),
        (&wat::parse_str("(module)").unwrap(), "this is a core WebAssembly module"),
    ] {
        let output = check(wasm);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    let absent = Command::new(program()).args(["plugin", "check", "no-such.wasm"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(2));
}

#[test]
fn bombs_are_refused_before_they_are_compiled() {
    let functions = component(&"(func)".repeat(100_000));
    assert_eq!(too_much(&functions), "functions");
    let locals = component(&format!("(func {})", "(local i32)".repeat(50_000)));
    assert_eq!(too_much(&locals), "locals in one function");
    let blocks = format!("(func (local {}) {})", "i64 ".repeat(1_000), "(block)".repeat(20_000));
    assert_eq!(too_much(&component(&blocks)), "blocks times locals in one function");
    let parameters = component(&format!("(func (param {}))", "i32 ".repeat(999)));
    assert_eq!(too_much(&parameters), "parameters or results in one function");
    assert_eq!(too_much(&component("(memory 65536)")), "bytes of initial memory");
    assert_eq!(too_much(&component("(table 10000000 funcref)")), "elements in one table");
    let segments = component(&format!("(memory 1) {}", "(data (i32.const 0) \"a\")".repeat(5_000)));
    assert_eq!(too_much(&segments), "data segments");
    let modules = format!("(component {})", "(core module)".repeat(100));
    assert_eq!(too_much(&wat::parse_str(modules).unwrap()), "core modules");
    assert_eq!(too_much(&component(&format!("(memory 1) (data (i32.const 0) \"{}\")", "a".repeat(3 << 20)))), "bytes");
}

/// A hostile count in a section's head allocates nothing.
#[test]
fn counts_that_lie_are_invalid() {
    let honest = GuestCode::new().build();
    for at in 8..honest.len().min(4_000) {
        let mut wasm = honest.clone();
        wasm[at] = 0xff;
        // Whatever it says of these bytes, it says it, and soon.
        let started = Instant::now();
        let _ = caps::check(&wasm);
        assert!(started.elapsed() < REFUSED_WITHIN, "byte {at}: {:?}", started.elapsed());
    }
}

/// What just passes the caps is compiled within the limits, or ended by them: never longer, never more.
#[test]
fn the_worst_that_passes_the_caps_stays_within_the_limits() {
    let body = format!("(local {}) {}", "i64 ".repeat(2_000), "(block)".repeat(999));
    let wide = component(&format!("(func {body})").repeat(200));
    let many = component(&"(func (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))".repeat(10_000));
    for wasm in [wide, many] {
        caps::check(&wasm).unwrap();
        match compile(&wasm) {
            Ok(compiled) => assert!(compiled.resident_bytes <= Limits::default().resident_bytes, "{compiled:?}"),
            Err(ConfinedError::TooMuch(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// Each limit ends the child by itself.
#[test]
fn each_limit_ends_a_compilation() {
    let work = component(&"(func (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))".repeat(10_000));
    let limits = Limits::default();
    for (limits, said) in [
        (Limits { cpu_seconds: 0, ..limits }, "0 s of processor time"),
        (Limits { resident_bytes: 10 << 20, ..limits }, "10 MiB of memory"),
        (Limits { wall: Duration::from_millis(20), ..limits }, "20ms"),
        (Limits { output_bytes: 1 << 10, ..limits }, "0 MiB of native code"),
    ] {
        match confined::compile(program(), &work, &limits) {
            Err(ConfinedError::TooMuch(what)) => assert_eq!(what, said),
            other => panic!("{said}: {other:?}"),
        }
    }
}

/// The compiler's process has no file, no network, no other process and no program to start.
#[test]
fn the_compilers_process_is_shut_in() {
    // Landlock and seccomp hold for one thread, so the rest of the tests go on outside.
    let inside = std::thread::spawn(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let all_work = || {
            [
                ("a file", std::fs::read("/etc/hostname").map(drop)),
                ("a folder", std::fs::read_dir("/").map(drop)),
                ("a new file", std::fs::write(std::env::temp_dir().join("onceward-way-out"), "x")),
                ("a connection", std::net::TcpStream::connect(address).map(drop)),
                ("a socket", std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
                ("a program", Command::new("/bin/true").output().map(drop)),
            ]
        };
        let before: Vec<_> = all_work().into_iter().filter(|(_, work)| work.is_err()).collect();
        confined::sandbox::enter().unwrap();
        let after: Vec<_> = all_work().into_iter().filter(|(_, work)| work.is_ok()).collect();
        (before.len(), after.len(), format!("before {before:?}, after {after:?}"))
    });
    let (before, after, said) = inside.join().unwrap();
    assert_eq!((before, after), (0, 0), "{said}");
}

/// It shuts itself in before it reads a byte of what it compiles.
#[tokio::test]
async fn the_compilers_process_reads_nothing_outside() {
    let mut compiler = Command::new(program())
        .args(["plugin", "compile", "--cpu-seconds", "5"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", compiler.id());
    eventually("a filter of system calls", || async {
        // It waits for its input all this time.
        std::fs::read_to_string(&status).unwrap().lines().any(|line| line == "Seccomp:\t2")
    })
    .await;
    drop(compiler.stdin.take());
    assert!(!compiler.wait().unwrap().success(), "nothing is no component");
}
