//! The C interface of [`arenaplan`]: packing, plan files, and the addresses of a plan's memory.
//!
//! `include/arenaplan.h` is generated from this crate and documents every function. `exports.rs`
//! has the functions that C programs call, and all `unsafe` of the crate; all other modules are
//! safe Rust.

pub mod arena;
pub mod error;
pub mod exports;
pub mod plan;
pub mod problem;
pub mod types;
