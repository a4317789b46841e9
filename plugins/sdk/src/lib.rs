//! Write an Onceward plugin.
//!
//! A plugin tells the gateway two things about a request: whether the sender is who it claims to be ([`Plugin::verify`]), and
//! which business event it carries ([`Plugin::extract`]). Implement [`Plugin`] for a type and name it in [`export_plugin!`].
//!
//! Everything a plugin reads comes from a stranger. The helpers here answer hostile input with an error, never with a trap, so
//! that the sender gets a 4xx for its own fault and the plugin's record stays clean.

pub mod bindings;
pub mod config;
pub mod crypto;
pub mod encoding;
mod error;
pub mod form;
#[doc(hidden)]
pub mod glue;
pub mod header;
pub mod json;
pub mod limits;
mod plugin;
pub mod signature;
pub mod standard;
mod tolerance;

pub use bindings::exports::onceward::plugin::meta::{Descriptor, Fault, Needs};
pub use bindings::onceward::plugin::log::{Level, write as log};
pub use bindings::onceward::plugin::types::{
    Disposition, Event, Field, Header, PluginError, Reason, Refusal, Rejection, Reply, Request, Value, Verdict,
};
pub use plugin::Plugin;
pub use tolerance::{Tolerance, unix_seconds};
