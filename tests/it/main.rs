//! Integration tests: one binary, one module per subject.
#![allow(
    clippy::as_conversions,
    clippy::enum_variant_names,
    clippy::items_after_statements,
    clippy::similar_names,
    clippy::too_many_lines,
    clippy::trivially_copy_pass_by_ref,
    clippy::type_complexity,
    clippy::needless_range_loop,
    clippy::single_match_else,
    clippy::mut_mut,
    clippy::useless_vec,
    clippy::format_collect,
    clippy::many_single_char_names,
    clippy::needless_for_each,
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod alignment;
mod arena;
mod arena_simple;
mod boundary;
mod check;
mod choice;
mod coloring;
mod costs;
mod covers;
mod csv;
mod files;
mod forge;
mod forged;
mod fusion;
mod fuzz_seeds;
mod graph;
mod graph_file;
mod graphs;
mod hazards;
mod incremental;
mod inner_sizes;
mod litert;
mod liveness;
#[cfg(all(feature = "shared", target_os = "linux"))]
mod memfd;
mod memories;
mod model_file;
mod near_cuts;
mod nnvm;
mod oracle;
mod overlap;
mod paging;
mod placement;
mod plan_file;
mod planner;
mod planners;
mod pool;
mod problem;
mod program;
mod randwire;
mod recompute;
mod repack;
mod rerun;
mod resize;
mod rules;
mod shared;
mod sharing;
mod solve;
mod solve_laws;
mod strips;
mod target;
mod technique_laws;
mod together;
mod workers;
mod write_back;
