//! The commands, one file each.

mod case;
pub mod plugin_build;
pub mod plugin_run;
pub mod plugin_test;
mod whole;
