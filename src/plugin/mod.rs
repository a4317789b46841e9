//! Not written yet.

pub mod bundled;
