//! The admin listener and the commands for people, through the real binary.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod api;
mod cli;
mod explain;
mod metrics;
mod redeliver;
pub mod rig;
mod verbs;
mod watch;
