//! Not written yet.

mod dist;
