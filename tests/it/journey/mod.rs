//! What a sender and an upstream see, through the real binary: written from the contract and the failure scenarios (`sNN_…`).

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod basic;
mod claims;
mod crash;
mod drain;
mod identity;
mod plugins;
mod policies;
mod redis_faults;
mod replays;
mod reviewed;
pub mod rig;
mod senders;
mod upstream_faults;
mod upstream_sees;
