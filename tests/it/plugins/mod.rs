//! The plugin host over real components: the bundled ones, and guests that misbehave.

mod bundled;
mod dist;
pub mod guest;
mod hostile;
mod loading;
mod providers;
mod support;
