//! Hazards: the steps that each step in a plan must wait for.

use crate::error::{Failure, Result};
use crate::plan::{Plan, count, no_step};
use crate::types::{Hazard, position};

/// The dependencies between a plan's steps, without implied dependencies.
///
/// Hazards never change; any number of threads may use hazards at the same time.
#[derive(Debug)]
pub struct Hazards {
    /// Ascending by later step, then by earlier step.
    edges: Vec<Hazard>,
    /// For each step, and once more behind the last step: the first edge.
    starts: Vec<usize>,
}

impl Hazards {
    /// Checks a plan against its graph, and finds the hazards. `graph` is the content of a graph
    /// file; if absent, the graph is the graph that the plan was made with.
    pub(crate) fn new(plan: &Plan, graph: Option<&[u8]>) -> Result<Self> {
        let found = match (graph, &plan.inner.graph) {
            (Some(text), _) => plan.inner.plan.hazards(&arenaplan::Graph::from_json(text)?)?,
            (None, Some(graph)) => plan.inner.plan.hazards(graph)?,
            (None, None) => {
                return Err(Failure::argument("graph is null, and the plan was made without one"));
            }
        };
        let mut edges = Vec::with_capacity(found.edges().len());
        for edge in found.edges() {
            let unknown = |()| Failure::argument(format!("hazards of kind {}", edge.kind));
            let kind = edge.kind.try_into().map_err(unknown)?;
            edges.push(Hazard { after: edge.after, before: edge.before, kind });
        }
        let starts = (0..=found.steps())
            .map(|step| edges.partition_point(|edge| position(edge.after) < step));
        Ok(Self { starts: starts.collect(), edges })
    }

    pub(crate) fn edges(&self) -> &[Hazard] {
        &self.edges
    }

    /// Returns the edges to a step.
    pub(crate) fn of(&self, step: u32) -> Result<(&[Hazard], u32)> {
        let at = position(step);
        let (Some(&start), Some(&end)) = (self.starts.get(at), self.starts.get(at + 1)) else {
            return Err(no_step(step));
        };
        Ok((&self.edges[start..end], count(end - start)?))
    }
}
