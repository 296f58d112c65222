//! Tests of the server: its outputs, its allocations, and the process.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod outputs;
mod process;
