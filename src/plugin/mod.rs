//! The plugin host: runs a route's WebAssembly component over a delivery, in a fresh instance, within limits.
//!
//! Invariants: nothing outside [`bindings`] sees a type made from the WIT. No guest state outlives its call. A secret's value never
//! enters a guest's memory. Everything that a guest returns is hostile until [`bindings`] has checked it; what leaves this room
//! as an [`Event`](crate::event::Event) or a [`PluginReply`](crate::event::PluginReply) keeps its promises.

pub mod artifacts;
pub mod aside;
mod bindings;
pub mod bundled;
mod call;
pub mod caps;
pub mod certificates;
pub mod confined;
mod crypto;
mod engine;
mod failure;
mod host;
mod load;
pub mod registry;
mod ticker;

pub use call::{Budget, ConfigFault, Grant, Inspected, Inspection, Needs, Reason, Refusal};
pub use engine::{Engine, HostError, Settings};
pub use failure::{Failure, FailureKind, PluginFault, Stage};
pub use host::{Level, LogLine, Usage, Used};
pub use load::{Descriptor, LoadError, Plugin};
