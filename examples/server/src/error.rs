//! The error type of the server.

use std::path::PathBuf;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model was not loaded, or a request was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "every message names its fields")]
pub enum Error {
    /// A plan, a graph, a shape or a lease was refused.
    #[error(transparent)]
    Plan(#[from] arenaplan::Error),
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    /// Tensors of a file or a request are damaged.
    #[error("{what}: {source}")]
    Tensors { what: String, source: safetensors::SafeTensorError },
    /// A weight is not in the weights file, or is another one than the graph names.
    #[error("weight {name:?}: {reason}")]
    Weight { name: String, reason: String },
    /// No kernel runs a node.
    #[error("node {node:?} ({op}): {reason}")]
    Unsupported { node: String, op: String, reason: String },
    /// A tensor of a request is not what the model reads.
    #[error("input {name:?}: {reason}")]
    Input { name: String, reason: String },
    /// The server has no model of a name.
    #[error("there is no model {name:?}; there are {known}")]
    UnknownModel { name: String, known: String },
    /// A request has too many bytes.
    #[error("a request has at most {limit} bytes")]
    TooLarge { limit: usize },
    /// A client sends a request too slowly.
    #[error("the request did not arrive within {seconds} seconds")]
    Late { seconds: u64 },
    /// Other requests have the memory for bodies.
    #[error("no memory for the request is free")]
    Busy,
    /// A client broke off.
    #[error("the request ends early")]
    Broken,
    /// A kernel panicked.
    #[error("the model {name:?} failed")]
    Failed { name: String },
}
