//! What a sender and an upstream see, through the real binary: written from the contract and the failure scenarios (`sNN_…`).

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod aliases;
mod basic;
mod batches;
mod certificates;
mod claims;
mod crash;
mod drain;
mod front;
mod identity;
mod journal;
mod kept;
mod limits;
mod plugins;
mod policies;
mod postgres_faults;
mod providers;
mod quarantine;
mod redis_faults;
mod redis_groups;
mod replays;
mod reviewed;
pub mod rig;
pub mod sealed;
mod senders;
mod signed_batches;
mod upstream_faults;
mod upstream_sees;
