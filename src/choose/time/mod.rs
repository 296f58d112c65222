//! Time beside bytes: the costs that a runner declares for steps.
//!
//! Only the runner knows kernels, not the planner. So a runner declares the costs of steps as data
//! ([`StepCost`]): the scratch buffers, and the ways to run the step, each with bytes and time. The
//! planner queries a step when considering a plan with that step.

mod estimate;
mod known;
mod ways;

use alloc::{vec, vec::Vec};
use core::fmt;

use crate::base::NodeId;
use crate::choose::{RowKernel, RowMoveCost, Way};
use crate::graph::Workspace;
use crate::plan::Strips;
pub use estimate::step_times;
pub(crate) use estimate::times_of;
pub(crate) use known::KnownCosts;
pub use known::declared;
pub(crate) use ways::{StepWays, step_ways};

/// The form in which fused nodes run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StepForm<'a> {
    /// Piece by piece, with the output in separate bytes or exactly over an input.
    Whole,
    /// Piece by piece, with the output over an input at a distance: each piece waits in scratch
    /// memory.
    Staged,
    /// Piece by piece, each result in the bytes of the result before. The first node may take over an
    /// input as if alone, and all nodes work in the first scratch buffer of the first node.
    Continued,
    /// Strip by strip. The first scratch buffer holds the line buffers.
    Strips(&'a Strips),
}

/// A step's scratch memory and time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepCost {
    /// Scratch buffers, each with the sizes to choose from.
    pub workspaces: Vec<Workspace>,
    /// The ways to run the step: total scratch bytes, and nanoseconds. At least one way, ascending
    /// bytes.
    pub ways: Vec<Way>,
}

impl StepCost {
    /// Returns the cost of a step without scratch memory that takes `nanoseconds`.
    #[must_use]
    pub fn of_time(nanoseconds: u64) -> Self {
        Self { workspaces: Vec::new(), ways: vec![Way { bytes: 0, time: nanoseconds }] }
    }
}

/// The costs that a runner declares for the steps of a graph.
///
/// Equal queries must have equal answers, or plans are not deterministic. Only [`step`](Self::step)
/// is required; a runner without row kernels omits the rest.
///
/// # Examples
///
/// A runner whose kernels take one nanosecond for each byte that a node writes:
///
/// ```
/// use arenaplan::choose::{Costs, StepCost, StepForm};
/// use arenaplan::{DType, Graph, Node, NodeId, Planner, Target, Value, ValueKind};
///
/// #[derive(Debug)]
/// struct Bytes<'g>(&'g Graph);
///
/// impl Costs for Bytes<'_> {
///     fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
///         let StepForm::Whole = form else { return None };
///         let written = |&node: &NodeId| -> u64 {
///             let values = self.0.node(node).produces();
///             values.map(|(_, value)| self.0.value(value).bytes()).sum()
///         };
///         Some(StepCost::of_time(nodes.iter().map(written).sum()))
///     }
/// }
///
/// let mut builder = Graph::builder("chain");
/// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
/// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [64])?);
/// builder.add_node(Node::new("relu", "Relu").reads([x]).writes([y]).in_place(0, 0));
/// builder.add_output(y);
/// let graph = builder.build()?;
///
/// let costs = Bytes(&graph);
/// let planner = Planner::new().target(&Target::NUMPY).costs(&costs).max_slowdown(Some(1100));
/// let plan = planner.plan(&graph)?;
/// let estimate = plan.search().and_then(|search| search.estimate).expect("steps have costs");
/// assert_eq!((plan.arena_bytes(), estimate.nanoseconds), (128, 64));
/// # Ok::<(), arenaplan::Error>(())
/// ```
pub trait Costs: fmt::Debug {
    /// Returns the cost of running `nodes` as a step, in this order; `None` if the runner has no
    /// kernel for the nodes in this form. Rows at an edge of strips may need another kernel than the
    /// rows between.
    ///
    /// A step without a kernel counts as a step without scratch memory that takes no time; the
    /// runner refuses the plan.
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost>;

    /// Returns whole sequences of steps, by nodes, for the planner to compare with its own steps.
    fn groupings(&self) -> Vec<Vec<Vec<NodeId>>> {
        Vec::new()
    }

    /// Returns the time of moving rows inside a line buffer; `None` if no step of the graph runs
    /// strip by strip.
    fn row_moves(&self) -> Option<RowMoveCost> {
        None
    }

    /// Returns the kernels that perform `nodes` on some rows; nodes without such a kernel are left
    /// out.
    fn row_kernels(&self, nodes: &[NodeId]) -> Vec<RowKernel> {
        let _ = nodes;
        Vec::new()
    }
}
