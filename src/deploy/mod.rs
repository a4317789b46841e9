//! Which version of a tenant's plugin serves.
//!
//! Invariants: code serves only after the gate has taken it and this process has prepared it whole, for every route that names it.
//! When that fails, the last version that worked serves on. A key's namespace is the one that the plugin declares, never its
//! code's digest: an upgrade makes no old event new.

pub mod case;
pub mod deployer;
pub mod desk;
pub mod evidence;
pub mod gate;
pub mod place;
mod quota;
mod refused;
pub mod runner;
pub mod trial;

pub use deployer::Deployer;
pub use desk::Desk;
pub use quota::{NotNow, Turn};
pub use refused::Refused;
