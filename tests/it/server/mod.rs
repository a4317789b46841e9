//! The server alone, over real sockets: which bytes reach a handler, which answers reach a client, and how it stops.

// So that clippy knows these helpers for tests.
#![cfg(test)]

mod bodies;
mod connections;
mod drain;
mod heads;
mod rig;
mod tls;
