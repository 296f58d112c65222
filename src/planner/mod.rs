//! The pipeline: graph → order → live ranges → problem → packing → plan.

mod assemble;
mod explain;
mod overlap;
mod pack;
mod place;
mod schedule;
mod search;
mod settle;
mod together;

use crate::error::Result;
use crate::graph::Graph;
use crate::index::NodeId;
use crate::liveness::Liveness;
use crate::packing::Packing;
use crate::placement::Memories;
use crate::plan::{Effort, MoveCost, Plan, PlanOptions, Search, WorkspacePolicy};
use crate::solve::Budget;
use crate::technique::{Technique, Techniques};
pub use explain::Explanation;
use schedule::Schedule;
use search::Attempt;

/// Buffers with their spaces and offsets.
#[derive(Clone, Debug)]
struct Placed {
    liveness: Liveness,
    packing: Packing,
    /// What moving bytes costs, where the planner chose the spaces.
    move_cost: Option<MoveCost>,
}

/// How many schedules are packed at most, besides the given one.
const MOST_PACKED: usize = 4;

/// Makes a [`Plan`] of a [`Graph`].
///
/// ```
/// use arenaplan::{DType, Graph, Node, Planner, Status, Value, ValueKind};
///
/// let mut builder = Graph::builder("chain");
/// let mut last = builder.add_value(Value::new("x", ValueKind::Input, DType::FLOAT32, [256])?);
/// for layer in 0..3 {
///     let name = format!("y{layer}");
///     let next = builder.add_value(Value::new(&*name, ValueKind::Activation, DType::FLOAT32, [256])?);
///     builder.add_node(Node::new(name, "Conv").reads([last]).writes([next]));
///     last = next;
/// }
/// builder.add_output(last);
///
/// let plan = Planner::new().plan(&builder.build()?)?;
/// assert_eq!(plan.naive_bytes(), Some(4096));
/// assert_eq!(plan.arena_bytes(), 2048); // input and output of a layer, at any one step
/// assert_eq!(plan.status(), Status::Optimal);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Planner<'a> {
    options: PlanOptions,
    capacity: Option<u64>,
    memories: Option<&'a Memories>,
    budget: Budget<'a>,
}

impl<'a> Planner<'a> {
    /// Returns a planner with the default options: 64-byte alignment, every technique,
    /// inputs reusable after their last reader, no workspaces.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every offset a multiple of `bytes`.
    #[must_use]
    pub fn alignment(mut self, bytes: u64) -> Self {
        self.options.alignment = bytes;
        self
    }

    /// Sets what may be done to need fewer bytes.
    #[must_use]
    pub fn optimize(mut self, techniques: Techniques) -> Self {
        self.options.optimize = techniques;
        self
    }

    /// Sets how much work to spend on the choice of groups and orders.
    #[must_use]
    pub fn effort(mut self, effort: Effort) -> Self {
        self.options.effort = effort;
        self
    }

    /// Sets whether outputs may take over the bytes of dying inputs.
    #[must_use]
    pub fn in_place(mut self, allowed: bool) -> Self {
        let techniques = self.options.optimize;
        self.options.optimize = if allowed {
            techniques.with(Technique::InPlace)
        } else {
            techniques.without(Technique::InPlace)
        };
        self
    }

    /// Sets whether graph inputs keep their bytes until the end of a run.
    #[must_use]
    pub fn preserve_inputs(mut self, preserved: bool) -> Self {
        self.options.preserve_inputs = preserved;
        self
    }

    /// Sets whether the plan must be safe in every order that the graph permits, so that
    /// nodes that do not wait for each other may run at the same time.
    #[must_use]
    pub fn parallel_safe(mut self, safe: bool) -> Self {
        self.options.parallel_safe = safe;
        self
    }

    /// Sets how the sizes of workspaces are chosen.
    #[must_use]
    pub fn workspace(mut self, policy: WorkspacePolicy) -> Self {
        self.options.workspace = policy;
        self
    }

    /// Limits the default space to `bytes`.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Places values in several memories, each in the one where moving its bytes costs least
    /// as far as there is room, instead of in the graph's spaces.
    ///
    /// A value that the graph has in another than its default space stays in the memory of
    /// that name. Workspaces have their smallest sizes then.
    #[must_use]
    pub fn memories(mut self, memories: &'a Memories) -> Self {
        self.memories = Some(memories);
        self
    }

    /// Limits the work of the solvers.
    #[must_use]
    pub fn budget(mut self, budget: Budget<'a>) -> Self {
        self.budget = budget;
        self
    }

    /// Returns the options.
    pub const fn options(&self) -> PlanOptions {
        self.options
    }

    /// Returns a plan of `graph`, already checked.
    ///
    /// If a space is too small the best plan is returned all the same: its
    /// [`status`](Plan::status) tells, and [`Plan::fits`] says why.
    ///
    /// # Errors
    ///
    /// - [`InvalidAlignment`](crate::Error::InvalidAlignment) if the alignment is not a power of two.
    /// - [`SizeOverflow`](crate::Error::SizeOverflow) if no machine can address what is live at one step.
    /// - [`PinConflict`](crate::Error::PinConflict) if pinned values contradict each other.
    /// - [`SpacesExceeded`](crate::Error::SpacesExceeded) if the [`memories`](Self::memories)
    ///   cannot hold the values: it says which ones, and when.
    pub fn plan(&self, graph: &Graph) -> Result<Plan> {
        let (mut plan, attempts) = self.best_plan(graph)?;
        let floor = self.floor(&attempts)?;
        plan.search = Some(Search {
            floor: floor.min(plan.lower_bound()),
            ..plan.search.unwrap_or_default()
        });
        plan.check(graph)?;
        Ok(plan)
    }

    /// Returns the best plan, and the schedules that were tried.
    fn best_plan<'g>(&self, graph: &'g Graph) -> Result<(Plan, Vec<Attempt<'g>>)> {
        let attempts = self.attempts(graph)?;
        let (attempt, placed) = self.best_of(&attempts)?;
        let mut plan = self.assemble(graph, &attempt.schedule, &placed);
        plan.search = Some(self.search(graph, attempt, &placed.liveness));
        Ok((plan, attempts))
    }

    /// Returns the schedule whose buffers cost least in the memories, or else the one that
    /// packs into the fewest bytes.
    fn best_of<'t, 'g>(&self, attempts: &'t [Attempt<'g>]) -> Result<(&'t Attempt<'g>, Placed)> {
        if let Some(memories) = self.memories {
            return self.cheapest(attempts, memories);
        }
        let (attempt, liveness, packing) = self.least(attempts)?;
        Ok((attempt, Placed { liveness, packing, move_cost: None }))
    }

    /// Returns the schedule that packs into the fewest bytes; outputs overlap inputs if
    /// only that makes them fewer.
    fn least<'t, 'g>(
        &self,
        attempts: &'t [Attempt<'g>],
    ) -> Result<(&'t Attempt<'g>, Liveness, Packing)> {
        let mut best: Option<(&Attempt<'_>, Liveness, Packing)> = None;
        for (index, attempt) in attempts.iter().enumerate() {
            let least = best.as_ref().map_or(u64::MAX, |(_, _, packing)| packing.peak());
            // Where workspaces or pieces cost more than the load tells, the first few and
            // the simplest are compared.
            let is_tried = index < MOST_PACKED || attempt.schedule.is_given();
            if attempt.load >= least || !is_tried {
                continue;
            }
            let Attempt { schedule, elision, .. } = attempt;
            let (liveness, packing) = self.pack(&schedule.graph, &schedule.order, *elision, &[])?;
            if packing.peak() < least {
                best = Some((attempt, liveness, packing));
            }
        }
        let best = best.expect("the given order is always tried");
        Ok(self.overlapped(attempts, best.2.peak())?.unwrap_or(best))
    }

    /// Returns a plan of `graph` that runs `steps`, already checked.
    ///
    /// Each step names the nodes that [run as one](Graph::grouped), in order; every node is in
    /// one step.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan), and
    ///
    /// - [`InvalidGroup`](crate::Error::InvalidGroup) if nodes of a step cannot run as one.
    /// - [`InvalidOption`](crate::Error::InvalidOption) if the steps do not run every node
    ///   once, after what it depends on.
    pub fn plan_steps(&self, graph: &Graph, steps: &[Vec<NodeId>]) -> Result<Plan> {
        let attempts = self.measured(Schedule::of(graph, steps)?)?;
        let (attempt, placed) = self.best_of(&attempts)?;
        let plan = self.assemble(graph, &attempt.schedule, &placed);
        plan.check(graph)?;
        Ok(plan)
    }

    /// Returns the buffers that `graph` needs, without packing them: for reports.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn liveness(&self, graph: &Graph) -> Result<Liveness> {
        self.pack(graph, graph.order(), true, &[]).map(|(liveness, _)| liveness)
    }
}
