//! Files: plans as JSON.

mod json;

pub use json::{PLAN_VERSION, plan_schema};
