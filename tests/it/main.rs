//! Integration tests: one binary, one module per subject.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod csv;
mod oracle;
mod solve;
