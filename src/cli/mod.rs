//! Not written yet.

pub mod plugin_build;
