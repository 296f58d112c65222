//! The planners of earlier systems, reproduced to the byte: NNVM and `MXNet`, `TensorFlow` Lite.
//!
//! [`coloring`] and [`sharing`] are the planner of NNVM and `MXNet`, [`storage`] executes its
//! answer; [`incremental`] is the planner of `TensorFlow` Lite, which plans during a run, and
//! [`arenas`] has its arenas.

pub mod arenas;
pub mod coloring;
pub mod incremental;
pub mod sharing;
pub mod storage;
