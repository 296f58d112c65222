//! Packing: buffers with live ranges, their offsets, bounds and the solvers.
//!
//! A [`Problem`] is a list of buffers, each needed during some steps, and of memory spaces.
//! [`solve()`] answers with a [`Packing`]: an offset for every buffer, such that buffers needed at
//! the same time share no byte, and a lower bound for every packing. [`Packing::check`] is the
//! independent definition of a valid packing. [`repack`], [`compact`] and [`infeasible_subset`]
//! answer questions about problems. This crate knows no graph.
//!
//! ```
//! use arenaplan_pack::base::LiveRange;
//! use arenaplan_pack::{Budget, Buffer, Problem, Space, Status, solve};
//!
//! let buffer = |bytes, start, end| Ok(Buffer::new(bytes, LiveRange::new(start, end)?));
//! let buffers = vec![buffer(64, 0, 2)?, buffer(32, 1, 3)?, buffer(64, 2, 4)?];
//! let problem = Problem::new(buffers, vec![Space::new("sram")])?;
//! let packing = solve(&problem, &Budget::default())?;
//! packing.check(&problem)?;
//! # Ok::<(), arenaplan_pack::Error>(())
//! ```

#![no_std]
// Some functions serve one feature alone; with all features, none may be unused.
#![cfg_attr(not(feature = "std"), allow(dead_code))]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod ask;
pub mod base;
mod bound;
mod check;
mod gaps;
mod packing;
mod problem;
mod rectangles;
mod rules;
mod solve;
mod space;

pub use ask::{Repacking, compact, infeasible_subset, repack};
pub use base::{BufferId, Error, Result, SpaceId};
pub use bound::max_load;
pub use gaps::Gap;
pub use packing::{Packing, SpacePacking, Status};
pub use problem::{Buffer, Part, Problem};
pub use rules::Rules;
pub use solve::{
    Allowance, Apart, Budget, Forbidden, Methods, Progress, SolveOptions, Stage, Tries, solve,
};
#[doc(hidden)]
pub use space::Space;
