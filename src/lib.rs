//! Onceward: a webhook ingestion gateway that forwards each business event once.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod event;
pub mod gateway;
pub mod idempotency;
pub mod number;
pub mod plugin;
pub mod server;
pub mod store;
pub mod telemetry;
