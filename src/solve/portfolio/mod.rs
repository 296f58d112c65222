//! Portfolio.

mod critical;
pub(super) mod incumbent;
mod methods;
pub(super) mod run;
mod searches;
mod threads;
