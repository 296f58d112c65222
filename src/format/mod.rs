//! Files: plans as JSON, alone or several in one arena, their hazards, problems as CSV; and their writer.

mod csv;
mod file;
mod hazards;
mod json;
mod names;
mod shared;

pub use csv::CsvProblem;
pub use file::{WriteError, write_file, write_files};
pub use hazards::hazards_schema;
pub use json::{PLAN_VERSION, plan_schema};
pub use names::Names;
