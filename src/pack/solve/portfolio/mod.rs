//! The portfolio: the order of methods, their turns, threads, and the best packing so far.

mod critical;
mod disjunctions;
mod grown;
pub(super) mod incumbent;
mod methods;
pub(super) mod ruled;
pub(super) mod run;
mod searches;
#[cfg_attr(not(feature = "std"), path = "alone.rs")]
mod threads;
