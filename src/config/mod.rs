//! Configuration: TOML through figment, every fault at once, each with its key path.
//!
//! Invariant: nobody else reads the environment or the config file.

pub mod model;

pub use model::Config;
