//! What a compiler's process may ask of the kernel: nothing but memory and its pipes.
//!
//! A compiler that hostile input talks into something finds no file, no network, no other process and no program to start.

use std::collections::BTreeMap;
use std::io;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// The newest rules of Landlock that are asked for; an older kernel keeps those that it knows.
const LANDLOCK: ABI = ABI::V6;

/// Calls that open a way out. Files are Landlock's, so that the kernel's own paths (a shared library's, a clock's) need no list here.
const DENIED: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_mount,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
];

/// Shuts the calling thread in, and every thread that it starts from now on. There is no way back.
///
/// # Errors
/// When the kernel has no seccomp. One without Landlock is told apart by nobody: the calls above are denied all the same.
pub fn enter() -> io::Result<()> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(LANDLOCK)))
        .and_then(|rules| rules.scope(Scope::from_all(LANDLOCK)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    let program = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules: BTreeMap<i64, Vec<_>> = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    // An error rather than a kill: the compiler's own panic text still reaches the parent.
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?.try_into()
}
