//! Rewriting a graph so that it needs fewer bytes.

mod fuse;

pub(crate) use fuse::fuse_within;
pub use fuse::{Fusion, fuse};
