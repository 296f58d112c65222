//! The header, and programs in C and C++ that are compiled and run.
#![allow(
    clippy::many_single_char_names,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test may panic"
)]

mod header;
mod programs;
mod toolchain;
