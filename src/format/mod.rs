//! Files: plans as JSON, alone or several in one arena, problems as CSV.

mod csv;
mod file;
mod json;
mod names;
mod shared;

pub use csv::CsvProblem;
pub use json::{PLAN_VERSION, plan_schema};
pub use names::Names;
