//! Uploaded plugins, from the upload to live, through the real binary.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod bucket;
mod cli;
mod life;
mod refusals;
mod replicas;
mod rig;
mod standby;
