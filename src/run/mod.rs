//! Memory at run time: committed arenas, the programs that run in them, and which steps must wait.

pub mod arena;
pub(crate) mod dependencies;
pub mod program;
