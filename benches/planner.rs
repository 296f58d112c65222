//! Placeholder until the planner is there.
fn main() {}
