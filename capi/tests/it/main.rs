//! The header, and programs in C and C++ that are compiled and run.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod header;
mod programs;
mod toolchain;
