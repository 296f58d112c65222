//! Files: plans as JSON, problems as CSV.

mod csv;
mod json;

pub use csv::CsvProblem;
pub use json::{PLAN_VERSION, plan_schema};
