//! The portfolio: the order of methods, their turns, and the best packing so far.

mod blocked;
mod critical;
mod disjunctions;
mod grown;
pub(super) mod incumbent;
mod methods;
pub(super) mod ruled;
pub(super) mod run;
mod searches;
