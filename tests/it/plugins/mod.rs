//! The plugin host over real components: the bundled ones, and guests that misbehave.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod bundled;
mod check;
mod dist;
mod fuzz;
pub mod guest;
mod hostile;
mod loading;
mod new;
mod providers;
pub mod support;
mod versions;
