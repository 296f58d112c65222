//! Python bindings of `arenaplan`: convert, detach from the interpreter, call, map the error.

mod arena;
mod error;
mod graph;
mod plan;

/// The Rust core of arenaplan.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::arena::{Arena, Lease};
    #[pymodule_export]
    use crate::graph::Graph;
    #[pymodule_export]
    use crate::plan::{Plan, plan, plan_schema};

    /// Version of the Rust core.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
