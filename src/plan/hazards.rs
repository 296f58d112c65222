//! The dependencies between the steps of a plan, without implied dependencies.

use alloc::collections::BinaryHeap;
use alloc::{string::String, vec, vec::Vec};
use core::cmp::Reverse;
use core::fmt;

use crate::plan::Timetable;

/// The reason why a step must wait for another step.
///
/// A pair of steps may have several reasons. The kind is then the first in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum HazardKind {
    /// The later step reads a value, or bytes, that the earlier step writes.
    Data,
    /// The later step writes bytes that the earlier step reads.
    WriteAfterRead,
    /// The later step writes bytes that the earlier step writes, and no step reads them between.
    WriteAfterWrite,
    /// The graph demands the order, and no byte does: a control dependency, or an operand of
    /// which only the shape is used.
    Control,
}

impl HazardKind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::Data, Self::WriteAfterRead, Self::WriteAfterWrite, Self::Control];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::WriteAfterRead => "write-after-read",
            Self::WriteAfterWrite => "write-after-write",
            Self::Control => "control",
        }
    }
}

impl fmt::Display for HazardKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One step that must wait for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Hazard {
    /// The waiting step's index.
    pub after: u32,
    /// The required earlier step's index.
    pub before: u32,
    /// The reason.
    pub kind: HazardKind,
}

/// The dependencies between a plan's steps, transitively reduced. A runner that respects them may
/// run the steps in any order, and at the same time.
///
/// [`Plan::hazards`](crate::Plan::hazards) computes hazards,
/// [`Plan::check_hazards`](crate::Plan::check_hazards) proves them. Hazards from a file are trusted
/// only after that proof.
///
/// ```
/// use arenaplan::plan::HazardKind;
/// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
///
/// // Two branches of x: in one arena, the second may have to wait for bytes of the first.
/// let mut builder = Graph::builder("branches");
/// let array = |name, kind| Value::new(name, kind, DType::UINT8, [64]);
/// let x = builder.add_value(array("x", ValueKind::Input)?);
/// let a = builder.add_value(array("a", ValueKind::Activation)?);
/// let b = builder.add_value(array("b", ValueKind::Activation)?);
/// builder.add_node(Node::new("left", "Op").reads([x]).writes([a]));
/// builder.add_node(Node::new("right", "Op").reads([a]).writes([b]));
/// builder.add_output(b);
/// let graph = builder.build()?;
///
/// let hazards = Planner::new().plan(&graph)?.hazards(&graph)?;
/// assert_eq!(hazards.steps(), 2);
/// assert_eq!(hazards.edges()[0].kind, HazardKind::Data);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazards {
    pub(crate) model: String,
    pub(crate) digest: String,
    /// Ascending by later step, then by earlier step.
    edges: Vec<Hazard>,
    /// By step, and once more behind the last step: the index of the first edge.
    starts: Vec<usize>,
}

impl Hazards {
    /// Returns edges as hazards for `steps` steps, sorted; `None` if an edge does not lead to a
    /// later step, or is there twice.
    pub(crate) fn new(
        model: String,
        digest: String,
        steps: usize,
        mut edges: Vec<Hazard>,
    ) -> Option<Self> {
        edges.sort_unstable();
        let is_forward = |edge: &Hazard| edge.before < edge.after && position(edge.after) < steps;
        let is_double =
            |pair: &[Hazard]| (pair[0].after, pair[0].before) == (pair[1].after, pair[1].before);
        if !edges.iter().all(is_forward) || edges.windows(2).any(is_double) {
            return None;
        }
        let mut starts = Vec::with_capacity(steps + 1);
        let mut at = 0;
        for step in 0..=steps {
            while edges.get(at).is_some_and(|edge| position(edge.after) < step) {
                at += 1;
            }
            starts.push(at);
        }
        Some(Self { model, digest, edges, starts })
    }

    /// Returns the model name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the [digest](crate::Graph::digest) of the planned graph.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the step count.
    pub fn steps(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the edges, ascending by later step, then by earlier step.
    pub fn edges(&self) -> &[Hazard] {
        &self.edges
    }

    /// Returns the edges to a step: the steps that must end before. Empty if no such step exists.
    pub fn of(&self, step: usize) -> &[Hazard] {
        match (self.starts.get(step), self.starts.get(step + 1)) {
            (Some(&start), Some(&end)) => &self.edges[start..end],
            _ => &[],
        }
    }

    /// Returns for each step the dependent steps, ascending.
    pub fn dependents(&self) -> Vec<Vec<u32>> {
        let mut dependents = vec![Vec::new(); self.steps()];
        for edge in &self.edges {
            dependents[position(edge.before)].push(edge.after);
        }
        dependents
    }

    /// Returns the start times if `workers` run the steps: each free worker takes the first step in
    /// order whose hazards have ended.
    ///
    /// `costs` has the time per step; a step without a cost takes no time.
    pub fn timetable(&self, costs: &[u64], workers: u32) -> Timetable {
        let steps = self.steps();
        let costs: Vec<u64> =
            (0..steps).map(|step| costs.get(step).copied().unwrap_or(0)).collect();
        let dependents = self.dependents();
        let mut waits: Vec<usize> = (0..steps).map(|step| self.of(step).len()).collect();
        let free = (0..steps).filter(|&step| waits[step] == 0).map(Reverse);
        let mut ready: BinaryHeap<Reverse<usize>> = free.collect();
        let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut starts = vec![0; steps];
        let mut now = 0_u64;
        loop {
            while running.len() < position(workers.max(1))
                && let Some(Reverse(step)) = ready.pop()
            {
                starts[step] = now;
                running.push(Reverse((now.saturating_add(costs[step]), step)));
            }
            let Some(&Reverse((end, _))) = running.peek() else { break };
            now = end;
            // All steps that end now end before another one starts.
            while let Some(&Reverse((end, step))) = running.peek()
                && end == now
            {
                running.pop();
                for next in dependents[step].iter().map(|&next| position(next)) {
                    waits[next] -= 1;
                    if waits[next] == 0 {
                        ready.push(Reverse(next));
                    }
                }
            }
        }
        Timetable { workers, costs, starts }
    }

    /// Returns the serial time, and the time if each step starts as soon as its hazards have ended,
    /// with unlimited workers.
    ///
    /// `costs` has the time per step; a step without a cost takes no time.
    ///
    /// ```
    /// # use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    /// # let mut builder = Graph::builder("two");
    /// # let array = |name, kind| Value::new(name, kind, DType::UINT8, [64]);
    /// # let x = builder.add_value(array("x", ValueKind::Input)?);
    /// # let a = builder.add_value(array("a", ValueKind::Activation)?);
    /// # let b = builder.add_value(array("b", ValueKind::Activation)?);
    /// # builder.add_node(Node::new("left", "Op").reads([x]).writes([a]));
    /// # builder.add_node(Node::new("right", "Op").reads([x]).writes([b]));
    /// # builder.add_output(a);
    /// # builder.add_output(b);
    /// # let graph = builder.build()?;
    /// // Both nodes read the same input, and their outputs are in bytes of their own.
    /// let hazards = Planner::new().plan(&graph)?.hazards(&graph)?;
    /// let path = hazards.critical_path(&[30, 40]);
    /// assert_eq!((path.work, path.span), (70, 40));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    pub fn critical_path(&self, costs: &[u64]) -> CriticalPath {
        let mut ends: Vec<u64> = Vec::with_capacity(self.steps());
        for step in 0..self.steps() {
            let before = self.of(step).iter().map(|edge| ends[position(edge.before)]);
            let start = before.max().unwrap_or(0);
            ends.push(start.saturating_add(costs.get(step).copied().unwrap_or(0)));
        }
        let work =
            costs.iter().take(self.steps()).fold(0_u64, |sum, &cost| sum.saturating_add(cost));
        CriticalPath { work, span: ends.into_iter().max().unwrap_or(0) }
    }
}

/// The total time of all steps, and the time of the longest chain with dependent steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CriticalPath {
    /// Total step time.
    pub work: u64,
    /// Longest chain time.
    pub span: u64,
}

impl CriticalPath {
    /// Returns the parallelism: the mean number of busy workers if there are enough workers.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn parallelism(&self) -> f64 {
        if self.span == 0 { 1.0 } else { self.work as f64 / self.span as f64 }
    }
}

fn position(step: u32) -> usize {
    usize::try_from(step).unwrap_or(usize::MAX)
}
