//! Rewriting a graph so that it needs fewer bytes.

mod fuse;

pub use fuse::{Fusion, fuse};
