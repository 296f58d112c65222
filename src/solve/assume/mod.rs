//! Assumptions.

mod fillers;
mod join;
pub(super) mod restrictions;
mod tight_cut;
