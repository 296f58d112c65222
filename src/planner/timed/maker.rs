//! Plans with the scratch memory of a runner's kernels.
//!
//! The scratch memory of a fused group is known only once the group and the group's overlaps are
//! known. So a plan without scratch memory, a *draft*, comes first.

use alloc::rc::Rc;
use alloc::vec::Vec;

use super::Point;
use crate::base::{Alignment, NodeId, Result};
use crate::choose::time::{KnownCosts, StepWays, step_ways, times_of};
use crate::graph::Graph;
use crate::plan::{Plan, PlanOptions, Strips, Techniques, WorkspacePolicy};
use crate::planner::context::Context;
use crate::planner::stages;
use crate::planner::steps::{Stepped, plan_after, with_steps};

/// A plan with step times.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) plan: Plan,
    pub(super) times: Vec<u64>,
    /// The plan without scratch memory that `plan` was made from.
    pub(super) draft: Rc<Plan>,
}

impl Timed {
    /// Returns the estimated time per run.
    pub(super) fn time(&self) -> u64 {
        self.times.iter().fold(0, |sum, &time| u64::saturating_add(sum, time))
    }

    pub(super) fn point(&self) -> Point {
        Point { bytes: self.plan.arena_bytes(), nanoseconds: self.time() }
    }
}

/// How a draft becomes a plan with scratch memory.
#[derive(Debug)]
pub(super) struct Finish {
    /// The steps to run; `None` for the draft's steps.
    pub(super) steps: Option<Vec<Vec<NodeId>>>,
    /// The last nodes of the steps whose output may overlap an input; `None` for the draft's
    /// overlaps.
    pub(super) overlapping: Option<Vec<NodeId>>,
    /// Bytes up to which scratch memory may raise the peak.
    pub(super) room: u64,
    pub(super) optimize: Techniques,
    pub(super) strips: Vec<(NodeId, Strips)>,
}

/// Makes plans for one graph.
#[derive(Debug)]
pub(super) struct Maker<'m, 'a> {
    pub(super) context: &'m Context<'a>,
    pub(super) graph: &'m Graph,
    pub(super) costs: &'m KnownCosts<'a>,
    alignment: Alignment,
}

impl<'m, 'a> Maker<'m, 'a> {
    pub(super) fn new(
        context: &'m Context<'a>,
        graph: &'m Graph,
        costs: &'m KnownCosts<'a>,
    ) -> Result<Self> {
        let alignment = Alignment::new(context.options.alignment)?;
        Ok(Self { context, graph, costs, alignment })
    }

    /// Returns how to finish a draft unchanged.
    pub(super) fn unchanged(&self, strips: &[(NodeId, Strips)]) -> Finish {
        let optimize = self.context.options.optimize;
        Finish { steps: None, overlapping: None, room: 0, optimize, strips: strips.to_vec() }
    }

    /// Returns a plan without scratch memory that uses some techniques.
    pub(super) fn draft(
        &self,
        optimize: Techniques,
        steps: Option<&[Vec<NodeId>]>,
        strips: &[(NodeId, Strips)],
    ) -> Result<Rc<Plan>> {
        let given = self.context.options;
        let max_slowdown = given.max_slowdown.filter(|_| given.workers > 1);
        let workspace = WorkspacePolicy::None;
        let options = PlanOptions { optimize, workspace, max_slowdown, ..given };
        let context = Context { options, strips, ..*self.context };
        let plan = match steps {
            None => stages::unchecked(&context, self.graph)?,
            Some(steps) => {
                let Stepped { plan, .. } = with_steps(&context, self.graph, steps)?;
                plan
            }
        };
        Ok(Rc::new(plan))
    }

    /// Returns the draft's plan with scratch memory.
    pub(super) fn finish(&self, draft: &Rc<Plan>, finish: Finish) -> Result<Timed> {
        let Finish { steps, overlapping, room, optimize, strips } = finish;
        let steps = steps.unwrap_or_else(|| steps_of(draft));
        let staged = overlapping.clone().unwrap_or_else(|| draft.overlapped());
        let declared = self.costs.declared(self.graph, &steps, &staged, &strips)?;
        let context = Context {
            room,
            overlapping: overlapping.as_deref(),
            strips: &strips,
            ..self.context.with_techniques(optimize)
        };
        let plan = plan_after(&context, &declared, &steps, draft)?;
        let times = times_of(self.graph, &plan, self.alignment, self.costs);
        Ok(Timed { plan, times, draft: Rc::clone(draft) })
    }

    /// Returns the ways to run each step of a plan.
    pub(super) fn ways(&self, timed: &Timed) -> Vec<StepWays> {
        step_ways(self.graph, &timed.plan, &timed.times, self.alignment, self.costs)
    }
}

/// Returns the nodes by step.
pub(super) fn steps_of(plan: &Plan) -> Vec<Vec<NodeId>> {
    plan.steps().iter().map(|step| step.nodes().collect()).collect()
}
