//! Files: problems as CSV.

mod csv;

pub use csv::CsvProblem;
