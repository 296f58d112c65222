//! The planners of earlier systems, reproduced to the byte: NNVM and `MXNet`, `TensorFlow` Lite.
//!
//! [`coloring`] and [`sharing`] are the planner of NNVM and `MXNet`, [`storage`] executes the
//! answer; [`incremental`] is `TensorFlow` Lite's planner, which plans during a run, and [`arenas`]
//! has that planner's arenas.

#![no_std]

extern crate alloc;

pub mod arenas;
pub mod coloring;
mod error;
pub mod incremental;
pub mod sharing;
pub mod storage;

pub use error::{Error, Result};
