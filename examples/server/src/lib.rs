//! A server that runs models in the arenas of one pool.
//!
//! - [`model`] loads a model: plans from a model file, weights from a safetensors file, a kernel for
//!   each node. All that can be refused is refused there.
//! - [`kernels`] are the operators. They work on the memory of a step, and allocate no tensor.
//! - [`service`] answers requests: a lease from the pool, inputs into the arena, all steps on a
//!   blocking thread, outputs out of the arena.
//! - [`serving`] accepts connections: none holds memory or the process for long.
//! - [`metrics`] is the state of the pool and the times of requests, for Prometheus.

pub mod error;
pub mod kernels;
pub mod metrics;
pub mod model;
pub mod service;
pub mod serving;
pub mod tensors;

pub use error::{Error, Result};
