//! Programs: plans that are ready to run. The spans of the operands of each step are settled once.

mod memory;
mod operands;
mod step;

pub use memory::StepMemory;
pub use operands::{Inputs, Operands, OutputAndInputs};
pub use step::{ProgramStep, SpaceSpan, StepOperand, StepWorkspace};

use crate::arena::{StepSpans, settle};
use crate::base::{NodeId, Result, ValueId};
use crate::graph::Graph;
use crate::plan::{Plan, PlanStep};

/// A plan that was checked, and the spans that each of its steps works on.
///
/// A program is made once, by [`Plan::program`]; [`Arena::step`](crate::Arena::step) then lends
/// the
/// memory of a step without allocating. Nodes that run as one are one step, with the operands
/// of the whole group.
///
/// ```
/// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
///
/// let mut builder = Graph::builder("x + 1, doubled");
/// let array = |name, kind| Value::new(name, kind, DType::FLOAT32, [4]);
/// let x = builder.add_value(array("x", ValueKind::Input)?);
/// let y = builder.add_value(array("y", ValueKind::Activation)?);
/// let z = builder.add_value(array("z", ValueKind::Activation)?);
/// builder.add_node(Node::new("raise", "AddOne").reads([x]).writes([y]));
/// builder.add_node(Node::new("scale", "Double").reads([y]).writes([z]).in_place(0, 0));
/// builder.add_output(z);
/// let graph = builder.build()?;
/// let plan = Planner::new().plan(&graph)?;
///
/// let program = plan.program(&graph)?;
/// let mut arena = plan.commit()?;
/// arena.value_as_mut::<f32>(&plan, x)?.fill(20.0);
/// for step in program.steps() {
///     let mut memory = arena.step(&program, step)?;
///     match graph.node(step.node()).op() {
///         "AddOne" => memory.elementwise(|[x]: [f32; 1]| x + 1.0)?,
///         _ => memory.elementwise(|[x]: [f32; 1]| x * 2.0)?, // in place, or not
///     }
/// }
/// assert_eq!(arena.value_as::<f32>(&plan, z)?, [42.0; 4]);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    plan: Plan,
    /// Fingerprint of the plan.
    layout: u64,
    /// By step.
    spans: Vec<StepSpans>,
}

impl Plan {
    /// Checks the plan against its graph, and settles for every step where its operands are.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn program(&self, graph: &Graph) -> Result<Program> {
        self.check(graph)?;
        let settled = |step| settle(self, step, &self.states(graph, step));
        let spans = self.steps().iter().map(settled).collect::<Result<_>>()?;
        Ok(Program { plan: self.clone(), layout: self.layout(), spans })
    }

    /// Returns the states that a step writes, by position among its inputs, except for states
    /// whose bytes are written as a result of the step.
    fn states(&self, graph: &Graph, step: &PlanStep) -> Vec<(usize, ValueId)> {
        let id = NodeId::from(step.node);
        let place = |value| {
            let placement = self.placement(value)?;
            Some((placement.space, placement.offset))
        };
        let assignment = graph.assignment(id);
        let assigned = assignment.filter(|it| place(it.state) == place(it.result));
        let node = graph.node(id);
        let mutates = node.effects().mutates.iter();
        let states = mutates.filter_map(|&position| Some((position, node.input(position)?)));
        states.filter(|(_, value)| assigned.is_none_or(|it| it.state != *value)).collect()
    }
}

impl Program {
    /// Returns the plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Iterates over the steps, in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = ProgramStep<'_>> + DoubleEndedIterator {
        let steps = self.plan.steps().iter().zip(&self.spans);
        steps.enumerate().map(|(index, (row, spans))| ProgramStep {
            program: self,
            index,
            row,
            spans,
        })
    }

    /// Returns the step at a position, or `None` if there are not so many.
    pub fn step(&self, index: usize) -> Option<ProgramStep<'_>> {
        let (row, spans) = (self.plan.steps().get(index)?, self.spans.get(index)?);
        Some(ProgramStep { program: self, index, row, spans })
    }

    /// Returns the number of steps.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there is nothing to run.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}
