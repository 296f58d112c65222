//! The C interface of [`arenaplan`]: packing, plan files, and the addresses of a plan's memory.
//!
//! `include/arenaplan.h` is generated from this crate and documents every function. `exports` has
//! the functions that C programs call, and all `unsafe` code; all other modules are safe Rust.

pub mod arena;
pub mod cancel;
pub mod costs;
pub mod error;
pub mod exports;
pub mod hazard_tables;
pub mod model;
pub mod plan;
pub mod pool;
pub mod problem;
mod table;
pub mod types;
pub mod watch;
