//! Model shapes: bytes, graph, plan and program of each shape.

use alloc::sync::Arc;
use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt::Write as _;

use once_cell::race::OnceBox;

use super::Model;
use crate::base::{Error, Result, quoted};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::run::program::Program;

/// One shape in a model.
#[derive(Clone, Debug)]
pub(super) struct ModelRow {
    /// By dimension.
    pub(super) sizes: Vec<u64>,
    /// The graph template's index.
    pub(super) graph: usize,
    /// The plan template's index.
    pub(super) plan: usize,
    /// Position among the shapes with the same graph template.
    pub(super) at_graph: usize,
    /// Position among the shapes with the same plan template.
    pub(super) at_plan: usize,
    /// Graph digest.
    pub(super) digest: String,
    /// Total arena bytes.
    pub(super) arena_bytes: u64,
    /// Dimensions of all inputs, one input after the other.
    pub(super) input_dims: Vec<u64>,
    prepared: OnceBox<Prepared>,
}

/// A graph with its program.
#[derive(Clone, Debug)]
struct Prepared {
    graph: Graph,
    program: Arc<Program>,
}

impl ModelRow {
    /// Returns a row whose other fields [`Model::with_rows`] derives.
    pub(super) fn new(sizes: Vec<u64>, graph: usize, plan: usize, digest: String) -> Self {
        Self {
            sizes,
            graph,
            plan,
            at_graph: 0,
            at_plan: 0,
            digest,
            arena_bytes: 0,
            input_dims: Vec::new(),
            prepared: OnceBox::new(),
        }
    }
}

/// A shape of a [`Model`].
///
/// Graph, plan and program are made at the first request, and kept.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'m> {
    pub(super) model: &'m Model,
    pub(super) index: usize,
}

impl<'m> Shape<'m> {
    fn row(self) -> &'m ModelRow {
        &self.model.rows[self.index]
    }

    /// Returns the position of the shape in the model's ascending order.
    pub const fn index(self) -> usize {
        self.index
    }

    /// Iterates over the model's dimensions with the shape's sizes.
    pub fn sizes(self) -> impl ExactSizeIterator<Item = (&'m str, u64)> {
        let sizes = self.row().sizes.iter().copied();
        self.model.dims.iter().zip(sizes).map(|(dim, size)| (dim.name(), size))
    }

    /// Returns the bytes of all arenas for the shape. No memory is taken, and nothing is made.
    pub fn required_bytes(self) -> u64 {
        self.row().arena_bytes
    }

    /// Returns the graph digest.
    pub fn digest(self) -> &'m str {
        &self.row().digest
    }

    /// Returns the graph: [`inputs`](Graph::inputs) and [`outputs`](Graph::outputs) have the names,
    /// types and shapes that a request must have.
    ///
    /// # Errors
    ///
    /// Only an error of a check that passed when the model was read.
    pub fn graph(self) -> Result<&'m Graph> {
        Ok(&self.prepared()?.graph)
    }

    /// Returns the plan.
    ///
    /// # Errors
    ///
    /// As [`graph`](Self::graph).
    pub fn plan(self) -> Result<&'m Plan> {
        Ok(self.prepared()?.program.plan())
    }

    /// Returns the program: the plan, ready to run, and to be given to an
    /// [`ArenaPool`](crate::ArenaPool).
    ///
    /// # Errors
    ///
    /// As [`graph`](Self::graph).
    pub fn program(self) -> Result<&'m Arc<Program>> {
        Ok(&self.prepared()?.program)
    }

    fn prepared(self) -> Result<&'m Prepared> {
        let row = self.row();
        if let Some(prepared) = row.prepared.get() {
            return Ok(prepared);
        }
        let (graph, plan) = self.model.make(row)?;
        let program = Arc::new(plan.program(&graph)?);
        Ok(row.prepared.get_or_init(|| Box::new(Prepared { graph, program })))
    }
}

impl core::fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.model.text(&self.row().sizes))
    }
}

/// Returns sizes for people, such as `batch=8 seq=16`.
pub(super) fn text_of<S: AsRef<str>>(dims: &[S], sizes: &[u64]) -> String {
    if dims.is_empty() {
        return "its only shape".into();
    }
    let mut text = String::new();
    for (dim, size) in dims.iter().zip(sizes) {
        let separator = if text.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{}={size}", shown(dim.as_ref()));
    }
    text
}

/// Returns an error that names its shape, if there are several shapes.
pub(super) fn at_shape<S: AsRef<str>>(dims: &[S], sizes: &[u64], source: Error) -> Error {
    if dims.is_empty() {
        return source;
    }
    Error::AtShape { shape: text_of(dims, sizes), source: Box::new(source) }
}

/// Returns the dimension name in the spelling that people use, quoted if need be.
pub(super) fn shown(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
    if !name.is_empty() && name.len() <= 80 && name.chars().all(is_plain) {
        name.into()
    } else {
        quoted(name)
    }
}
