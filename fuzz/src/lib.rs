//! What the fuzz targets do with bytes, without libFuzzer: the tests of the core include this file
//! and run every target on its seeds.
#![allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::duplicate_mod,
    clippy::items_after_statements,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a target panics when it finds something"
)]

mod edit;
#[path = "../../tests/it/forge.rs"]
mod forge;
mod graphs;
#[path = "../../tests/it/program/interpreter.rs"]
#[allow(clippy::pedantic, reason = "it is a file of the tests")]
mod interpreter;
mod oracle;
mod problems;
pub mod targets;
