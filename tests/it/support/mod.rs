//! What several tests stand on.

// So that clippy knows these helpers for tests.
#![cfg(test)]

pub mod authority;
pub mod client;
pub mod config;
pub mod faketime;
pub mod gateway;
pub mod postgres;
pub mod proxy;
pub mod random;
pub mod redis;
pub mod redis_groups;
pub mod relay;
pub mod s3;
pub mod upstream;

use std::time::{Duration, Instant};

/// Polls until it holds; fails with what was waited for.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
