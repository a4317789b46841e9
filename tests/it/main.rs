//! The integration tests: one binary, since Wasmtime links once. The list below is the table of contents.

mod admin;
mod deploy;
mod faults;
mod journey;
mod plugins;
mod races;
mod server;
mod shadow;
mod store;
mod support;
