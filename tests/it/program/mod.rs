//! Programs: what is lent for each step, and what comes of it.

mod cases;
pub mod interpreter;
mod laws;
