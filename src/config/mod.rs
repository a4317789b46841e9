//! Configuration: TOML through figment, every fault at once, each with its key path.
//!
//! [`load()`] lays the embedded defaults under the file and the file under the environment, then reads the merged tree once, key by
//! key, into [`model`]. A key that nobody asked for is a fault, so the checks are also the list of known keys.
//!
//! Invariant: nobody else reads the environment or the config file.

mod check;
mod environment;
mod fault;
pub mod inactive;
pub mod lint;
mod load;
pub mod model;
mod raw;
pub mod report;
pub mod senders;
mod values;

pub use check::refused_address;
pub use environment::Environment;
pub use fault::{ConfigError, Fault, Notice};
pub use inactive::inactive;
pub use lint::lint;
pub use load::load;
pub use model::Config;
pub use report::{Report, render_json, render_text};
pub use values::is_name;
