//! Integration tests: one binary, so that it links once.

#![allow(missing_docs, clippy::unwrap_used, clippy::as_conversions, clippy::cast_possible_truncation)]

mod arena;
mod check;
mod floors;
mod graph;
mod graphs;
mod liveness;
mod plan_file;
mod planner;
