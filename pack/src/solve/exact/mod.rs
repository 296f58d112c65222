//! Exact search: packs below a target, or proves that no packing exists.

mod branch;
mod exact_search;
mod kinds;
mod moves;
mod nogoods;
pub(super) mod outcome;
mod phases;
pub(super) mod restarts;
mod state;
mod subset_sums;
mod sum_rule;
pub(super) mod turns;
pub(super) mod windowed;
