//! Programs: plans that are ready to run. The operand spans of each step are settled once.

mod memory;
mod operands;
mod shared_program;
mod step;

pub use memory::StepMemory;
pub use operands::Operands;
pub use shared_program::{SharedArena, SharedStep};
pub use step::{ProgramStep, SpaceSpan, StepOperand, StepWorkspace};

use alloc::boxed::Box;
use alloc::vec::Vec;

use once_cell::race::OnceBox;

use crate::base::Result;
use crate::graph::Graph;
use crate::plan::{Hazard, Hazards, Plan};
use crate::run::arena::StepSpans;
use crate::run::dependencies::{hazards_of, ordered, settled};

/// A checked plan, and the spans used by each step.
///
/// A program is made once, by [`Plan::program`]; [`Arena::step`](crate::Arena::step) then lends a
/// step's memory without allocating. Fused nodes are a single step, with the operands of the whole
/// group.
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
    /// The plan's fingerprint.
    layout: u64,
    /// By step.
    spans: Vec<StepSpans>,
    /// Dependencies between steps that the graph has.
    ordered: Vec<Hazard>,
    hazards: OnceBox<Hazards>,
}

impl Plan {
    /// Checks the plan against its graph, and settles the places of every step's operands.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn program(&self, graph: &Graph) -> Result<Program> {
        self.check(graph)?;
        let spans = settled(self, graph)?;
        let (plan, ordered) = (self.clone(), ordered(self, graph));
        Ok(Program { plan, layout: self.layout(), spans, ordered, hazards: OnceBox::new() })
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

    /// Returns the dependencies between the steps, computed at the first call: see
    /// [`Plan::hazards`].
    pub fn hazards(&self) -> &Hazards {
        let hazards = || hazards_of(&self.plan, &self.ordered, &self.spans);
        self.hazards.get_or_init(|| Box::new(hazards()))
    }

    /// Returns the step count.
    pub const fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether there is no step.
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}
