//! The idempotency engine's pure core: what a record is, what a policy says, and which step follows.
//!
//! Invariant: nothing here waits, reads a clock, logs or knows a store. Time is an argument, effects are values.

pub mod alias;
pub mod history;
pub mod machine;
pub mod operator;
pub mod policy;
pub mod record;

pub use machine::{Claim, Decision, Outcome, Plan, on_outcome, on_request};
pub use policy::Policy;
pub use record::{Draft, Expect, Fence, Lease, Owner, Record, Revision, State, Ttl};

#[cfg(test)]
mod tests;
