//! Memory at run time: committed arenas, programs that run in arenas, and step dependencies.

pub mod arena;
pub(crate) mod dependencies;
pub mod program;
