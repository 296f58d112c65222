//! The pipeline: graph → order → live ranges → problem → packing → plan.

mod assemble;
mod explain;
mod memories;
mod no_room;
mod overlap;
mod pack;
mod place;
mod schedule;
mod search;
mod settle;
mod together;

use crate::boundary::{InputMemory, OutputMemory};
use crate::error::{Error, Result, quoted};
use crate::graph::{Graph, ValueKind};
use crate::index::NodeId;
use crate::liveness::Liveness;
use crate::packing::Packing;
use crate::placement::Memories;
use crate::plan::{
    Effort, MoveCost, OrderSearch, Plan, PlanOptions, PlanStep, Search, WorkspacePolicy,
};
use crate::solve::Budget;
use crate::target::{Granularity, Provider, Target};
use crate::technique::{Technique, Techniques};
pub use explain::Explanation;
use schedule::Schedule;
use search::{Attempt, MOST_NODES_TO_SHARE_LESS};

/// Buffers with their spaces and offsets.
#[derive(Clone, Debug)]
struct Placed {
    liveness: Liveness,
    packing: Packing,
    /// Cost of moving bytes, where the planner chose the spaces.
    move_cost: Option<MoveCost>,
}

/// Largest number of schedules that are packed, besides the given one.
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
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    target: &'a Target,
    options: PlanOptions,
    /// Options that the caller has set; the others are the target's.
    is_set: IsSet,
    /// Techniques that the caller has left out, in any case.
    left_out: Techniques,
    memories: Option<&'a Memories>,
    budget: Budget<'a>,
    room: u64,
    overlapping: Option<&'a [NodeId]>,
}

/// Options whose defaults are the target's.
#[derive(Clone, Copy, Debug, Default)]
struct IsSet {
    alignment: bool,
    optimize: bool,
    workspace: bool,
}

static DEFAULT_TARGET: Target = Target::NODES;

impl Default for Planner<'_> {
    fn default() -> Self {
        Self {
            target: &DEFAULT_TARGET,
            options: PlanOptions::default(),
            is_set: IsSet::default(),
            left_out: Techniques::NONE,
            memories: None,
            budget: Budget::default(),
            room: 0,
            overlapping: None,
        }
    }
}

impl<'a> Planner<'a> {
    /// Returns a planner for [`Target::NODES`] with the target's defaults: 64-byte alignment,
    /// every technique that code honors which runs each node by itself, workspaces as nodes
    /// declare them, inputs reusable after their last reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the runner that the plan is for.
    ///
    /// Alignment, techniques and workspaces are the target's unless they are set.
    #[must_use]
    pub fn target(mut self, target: &'a Target) -> Self {
        self.target = target;
        self
    }

    /// Makes every offset a multiple of `bytes`.
    #[must_use]
    pub fn alignment(mut self, bytes: u64) -> Self {
        self.options.alignment = bytes;
        self.is_set.alignment = true;
        self
    }

    /// Sets the techniques, all of which the target must honor.
    #[must_use]
    pub fn optimize(mut self, techniques: Techniques) -> Self {
        self.options.optimize = techniques;
        self.is_set.optimize = true;
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
        if allowed {
            self.left_out = self.left_out.without(Technique::InPlace);
            self.options.optimize = self.options.optimize.with(Technique::InPlace);
        } else {
            self.left_out = self.left_out.with(Technique::InPlace);
        }
        self
    }

    /// Sets whether nodes keep the graph's order, with any other techniques.
    #[must_use]
    pub fn keep_order(mut self, kept: bool) -> Self {
        self.left_out = if kept {
            self.left_out.with(Technique::Order)
        } else {
            self.left_out.without(Technique::Order)
        };
        self
    }

    /// Sets whether graph inputs keep their bytes until the end of a run.
    #[must_use]
    pub fn preserve_inputs(mut self, preserved: bool) -> Self {
        self.options.preserve_inputs = preserved;
        self
    }

    /// Sets the memory of graph inputs.
    #[must_use]
    pub fn inputs(mut self, memory: InputMemory) -> Self {
        self.options.inputs = memory;
        self
    }

    /// Sets the memory of graph outputs.
    ///
    /// Such values take no bytes of the arena: each is in a [space](Plan::caller_buffers) of its
    /// own.
    #[must_use]
    pub fn outputs(mut self, memory: OutputMemory) -> Self {
        self.options.outputs = memory;
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
        self.is_set.workspace = true;
        self
    }

    /// Limits the default space to `bytes`.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.options.capacity = Some(bytes);
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

    /// Lets workspaces raise the peak up to `bytes`, so that steps take less time.
    ///
    /// By default each workspace has the cheapest size that does not raise the peak.
    ///
    /// ```
    /// use arenaplan::{
    ///     Alignment, Choice, DType, Effects, Graph, Node, Planner, Value, ValueKind, Workspace,
    ///     WorkspacePolicy,
    /// };
    ///
    /// let mut builder = Graph::builder("conv");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [128])?);
    /// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [128])?);
    /// let choices = vec![Choice { bytes: 64, cost: 3.0 }, Choice { bytes: 256, cost: 1.0 }];
    /// let scratch = Workspace { choices, alignment: Alignment::BYTE };
    /// let effects = Effects { workspaces: vec![scratch], ..Effects::default() };
    /// builder.add_node(Node::new("conv", "Conv").reads([x]).writes([y]).with_effects(effects));
    /// builder.add_output(y);
    /// let graph = builder.build()?;
    ///
    /// let planner = Planner::new().workspace(WorkspacePolicy::Auto);
    /// assert_eq!(planner.plan(&graph)?.arena_bytes(), 320);
    /// assert_eq!(planner.room(512).plan(&graph)?.arena_bytes(), 512);
    /// assert_eq!(planner.room(511).plan(&graph)?.arena_bytes(), 320);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn room(mut self, bytes: u64) -> Self {
        self.room = bytes;
        self
    }

    /// Lets only the outputs of `nodes` overlap inputs at a distance; of nodes that run as one,
    /// the last one counts. By default the output of every node may.
    #[must_use]
    pub fn overlapping(mut self, nodes: &'a [NodeId]) -> Self {
        self.overlapping = Some(nodes);
        self
    }

    /// Records how slow the plan may be: in thousandths of the time of the fastest plan.
    ///
    /// The planner knows no times. A caller that estimates them compares several plans and
    /// [notes](Plan::with_estimate) the estimate.
    #[must_use]
    pub fn max_slowdown(mut self, thousandths: Option<u64>) -> Self {
        self.options.max_slowdown = thousandths;
        self
    }

    /// Limits the work of the solvers.
    #[must_use]
    pub fn budget(mut self, budget: Budget<'a>) -> Self {
        self.budget = budget;
        self
    }

    /// Returns the options, with the target's defaults where none were set.
    pub fn options(&self) -> PlanOptions {
        let Self { target, is_set, mut options, .. } = *self;
        if !is_set.alignment {
            options.alignment = target.alignment();
        }
        if !is_set.optimize {
            options.optimize = target.techniques();
        }
        options.optimize = options.optimize.minus(self.left_out);
        if !is_set.workspace {
            options.workspace = match target.scratch() {
                Provider::Graph => WorkspacePolicy::Auto,
                Provider::Nobody | Provider::Runner => WorkspacePolicy::None,
            };
        }
        options
    }

    /// Returns the planner with every option set, which refuses those that the target cannot
    /// honor.
    fn resolved(&self) -> Result<Self> {
        let options = self.options();
        let target = self.target;
        let refuse = |option, reason: String| {
            let reason = format!("target {} {reason}", quoted(target.name()));
            Err(Error::InvalidOption { option, reason })
        };
        let others = options.optimize.minus(target.techniques());
        if others != Techniques::NONE {
            let honored = target.techniques();
            return refuse("optimize", format!("does not honor {others}; it honors {honored}"));
        }
        if !options.alignment.is_multiple_of(target.offset_unit()) {
            let (unit, given) = (target.offset_unit(), options.alignment);
            return refuse(
                "alignment",
                format!("counts in {unit} bytes, which {given} is no multiple of"),
            );
        }
        if options.workspace == WorkspacePolicy::Auto && target.scratch() == Provider::Runner {
            return refuse("workspace", "places scratch memory by itself".into());
        }
        let callers = [
            ("inputs", options.inputs == InputMemory::Caller),
            ("outputs", options.outputs == OutputMemory::Caller),
        ];
        let brought = callers.into_iter().find(|&(_, asked)| asked && !target.caller_memory());
        if let Some((option, _)) = brought {
            return refuse(option, "has them in its arena".into());
        }
        let spaces = self.memories.map_or(1, |memories| memories.spaces().len());
        if spaces > 1 && !target.several_spaces() {
            return refuse("spaces", "has one arena".into());
        }
        let is_set = IsSet { alignment: true, optimize: true, workspace: true };
        Ok(Self { options, is_set, left_out: Techniques::NONE, ..*self })
    }

    /// Returns a plan of `graph`, already checked.
    ///
    /// If a space is too small the best plan is returned all the same: its
    /// [`status`](Plan::status) tells, and [`Plan::fits`] says why.
    ///
    /// # Errors
    ///
    /// - [`InvalidAlignment`](crate::Error::InvalidAlignment) if the alignment is not a power of two.
    /// - [`SizeOverflow`](crate::Error::SizeOverflow) if the bytes live at one step exceed the
    ///   address space of a machine.
    /// - [`PinConflict`](crate::Error::PinConflict) if pinned values contradict each other.
    /// - [`SpacesExceeded`](crate::Error::SpacesExceeded) if the [`memories`](Self::memories)
    ///   cannot hold the values: it says which ones, and when.
    /// - [`InvalidOption`](crate::Error::InvalidOption) if options contradict each other, the
    ///   graph or the target: inputs cannot be preserved and reused, values of the caller have no
    ///   pin and no other memory, and the target must honor every technique.
    pub fn plan(&self, graph: &Graph) -> Result<Plan> {
        let planner = self.resolved()?;
        let (mut plan, attempts) = planner.best_plan(graph)?;
        let floor = planner.floor(&attempts)?;
        plan.search = Some(Search {
            floor: floor.min(plan.lower_bound()),
            ..plan.search.unwrap_or_default()
        });
        plan.check(graph)?;
        Ok(plan)
    }

    /// Returns the best plan, and the schedules that were tried.
    fn best_plan<'g>(&self, graph: &'g Graph) -> Result<(Plan, Vec<Attempt<'g>>)> {
        self.check_boundary(graph)?;
        let attempts = self.candidates(graph)?;
        let (attempt, placed) = self.best_of(&attempts)?;
        let mut plan = self.assemble(graph, &attempt.schedule, &placed);
        plan.search = Some(self.search(&attempts, attempt, &placed.liveness));
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
            let is_small = attempt.schedule.order.len() <= MOST_NODES_TO_SHARE_LESS;
            let is_tried = is_small || index < MOST_PACKED || attempt.schedule.is_given();
            if attempt.load >= least || !is_tried {
                continue;
            }
            let Attempt { schedule, elision, .. } = attempt;
            let (liveness, packing) =
                self.sharing_as(attempt).pack(&schedule.graph, &schedule.order, *elision, &[])?;
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
    /// - [`InvalidOption`](crate::Error::InvalidOption) if the steps do not run every node once,
    ///   after its dependencies.
    pub fn plan_steps(&self, graph: &Graph, steps: &[Vec<NodeId>]) -> Result<Plan> {
        self.with_steps(graph, steps).map(|(plan, _)| plan)
    }

    /// Returns a plan that runs `steps`, and whether overlaps that it could have were skipped.
    fn with_steps(&self, graph: &Graph, steps: &[Vec<NodeId>]) -> Result<(Plan, bool)> {
        let planner = self.resolved()?;
        planner.check_boundary(graph)?;
        let is_grouped = steps.iter().any(|step| step.len() > 1);
        if is_grouped && planner.target.granularity() == Granularity::Node {
            let name = quoted(planner.target.name());
            let reason = format!("target {name} runs one node at a time");
            return Err(Error::InvalidOption { option: "steps", reason });
        }
        let attempts = planner.measured(Schedule::of(graph, steps)?)?;
        let (attempt, placed) = planner.best_of(&attempts)?;
        let plan = planner.assemble(graph, &attempt.schedule, &placed);
        plan.check(graph)?;
        Ok((plan, planner.skips_overlaps(&attempts)))
    }

    /// Returns a plan of `graph` that runs the steps of another plan of it, already checked.
    ///
    /// For plans with workspaces, which depend on the fused groups. The scope of the choice of the
    /// steps is copied, as far as it holds for this plan.
    ///
    /// # Errors
    ///
    /// As [`plan_steps`](Self::plan_steps).
    pub fn plan_steps_of(&self, graph: &Graph, other: &Plan) -> Result<Plan> {
        let nodes = |step: &PlanStep| -> Vec<NodeId> {
            step.fused.iter().chain([&step.node]).map(|&node| node.into()).collect()
        };
        let steps: Vec<_> = other.steps().iter().map(nodes).collect();
        self.plan_steps_after(graph, &steps, other)
    }

    /// Returns a plan of `graph` that runs `steps`, which were derived from those of another
    /// plan of it, already checked.
    ///
    /// The scope of the choice of the other plan's steps is copied, as far as it holds for these.
    ///
    /// # Errors
    ///
    /// As [`plan_steps`](Self::plan_steps).
    pub fn plan_steps_after(
        &self,
        graph: &Graph,
        steps: &[Vec<NodeId>],
        other: &Plan,
    ) -> Result<Plan> {
        let (mut plan, skips_overlaps) = self.with_steps(graph, steps)?;
        let same = plan.steps.len() == other.steps.len()
            && plan
                .steps
                .iter()
                .zip(&other.steps)
                .all(|(a, b)| (a.node, &a.fused) == (b.node, &b.fused));
        plan.search = other.search().map(|Search { order, floor, skipped, .. }| Search {
            skipped: if skips_overlaps && self.options.optimize.contains(Technique::Overlap) {
                skipped.with(Technique::Overlap)
            } else {
                skipped
            },
            order: match order {
                // Another order might have fewer bytes at the step with a costly workspace.
                OrderSearch::Complete if !same || plan.lower_bound() > other.lower_bound() => {
                    OrderSearch::Beam
                }
                order => order,
            },
            floor: floor.min(plan.lower_bound()),
            estimate: None,
        });
        Ok(plan)
    }

    /// Refuses inputs and outputs that cannot be in the memory that the options ask for.
    fn check_boundary(&self, graph: &Graph) -> Result<()> {
        let refuse = |option, reason: String| Err(Error::InvalidOption { option, reason });
        if self.options.inputs == InputMemory::Reuse && self.options.preserve_inputs {
            return refuse("inputs", "they cannot be both reused and preserved".into());
        }
        let inputs = graph.values().iter().filter(|value| value.kind() == ValueKind::Input);
        let outputs = graph.outputs().iter().map(|&output| graph.value(output));
        let inputs = inputs.filter(|_| self.options.inputs == InputMemory::Caller);
        let outputs = outputs.filter(|_| self.options.outputs == OutputMemory::Caller);
        let mut brought = inputs.map(|it| ("inputs", it)).chain(outputs.map(|it| ("outputs", it)));
        let Some((option, _)) = brought.clone().next() else { return Ok(()) };
        if self.memories.is_some() {
            return refuse(
                option,
                "the spaces are for values that the caller does not bring".into(),
            );
        }
        match brought.find(|(_, it)| it.pin().is_some() || it.space().index() > 0) {
            None => Ok(()),
            Some((option, value)) => {
                let name = quoted(value.name());
                refuse(option, format!("the graph has a place for value {name} in its own spaces"))
            }
        }
    }

    /// Returns the buffers that `graph` needs, without packing them: for reports.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn liveness(&self, graph: &Graph) -> Result<Liveness> {
        let planner = self.resolved()?;
        planner.pack(graph, graph.order(), true, &[]).map(|(liveness, _)| liveness)
    }
}
