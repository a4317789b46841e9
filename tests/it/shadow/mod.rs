//! A new version of a plugin, tried before it serves: beside live traffic, and on requests that were kept.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod beside;
mod captures;
mod live;
mod replays;
mod rig;
mod told;
