//! The house: which file imports which, in every crate, and the names of files and types.
#![allow(clippy::unwrap_used, clippy::unnecessary_debug_formatting, reason = "a test may panic")]

mod floors;
mod names;
mod source;
