//! Packing: buffers with live ranges, their offsets, bounds and the solvers.
//!
//! A [`Problem`] is made by the planner, written by hand or read from CSV
//! ([`CsvProblem`](crate::format::CsvProblem)); [`solve()`] answers with a [`Packing`]. This room
//! knows no graph.

mod bound;
pub(crate) mod check;
mod gaps;
mod packing;
pub(crate) mod problem;
pub(crate) mod rectangles;
mod rules;
pub(crate) mod solve;
pub(crate) mod space;

pub use crate::queries::{Repacking, compact, infeasible_subset, repack};
pub use bound::max_load;
pub use gaps::Gap;
pub use packing::{Packing, SpacePacking, Status};
pub use problem::{Buffer, Part, Problem};
pub use rules::Rules;
pub use solve::{
    Apart, Budget, Forbidden, Methods, Progress, SolveOptions, Stage, Tries, Tuning, TuningValue,
    solve,
};
#[doc(no_inline)]
pub use solve::{
    AssumeTuning, ChainsTuning, CriticalTuning, DisjunctiveTuning, ExactTuning, GreedyTuning,
    LimitsTuning, PortfolioTuning, RestartsTuning, SkylineTuning, WindowedTuning,
};
pub use space::Space;
