//! Everything that may fail, made to fail: the process at each gap of the journey, the way to the store and to the upstream, and
//! all of it at random, with a check over what was logged.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod across;
mod across_tests;
mod census;
mod chaos;
mod checker;
mod checker_tests;
mod clocks;
mod driver;
mod framing;
mod kills;
mod log;
mod network;
mod stops;
pub mod stores;
mod strike;
