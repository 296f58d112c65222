//! The pipeline: graph → order → live ranges → problem → packing → plan.
//!
//! [`Planner`] collects options. [`Planner::plan`] is the pipeline: each line is a stage, a
//! function of a `Context` and the results of earlier stages. Each stage has a file.

mod accepted;
mod assemble;
mod attempt;
mod context;
mod executions;
mod explain;
mod given_steps;
mod goal;
mod joint_choice;
mod least;
mod lines;
mod memory_choice;
mod no_room;
mod options;
mod other_orders;
mod overlap_search;
mod pack;
mod place;
mod recomputation;
mod resize;
mod scope;
mod settle;
mod stages;
mod step_schedule;
mod steps;
mod strip_overlaps;
mod strip_plans;
mod strip_search;
mod timed;
mod together;
mod workers;

use crate::base::{NodeId, Result};
use crate::choose::{Costs, Memories};
use crate::graph::Graph;
use crate::liveness::{Liveness, LivenessOptions};
use crate::pack::{Budget, Space};
use crate::plan::{
    Effort, InputMemory, OutputMemory, Plan, PlanOptions, Provider, Strips, Target, Technique,
    Techniques, WorkspacePolicy,
};
use accepted::accepted_plan;
use context::Context;
pub use explain::Explanation;
pub use goal::{Curve, CurvePoint, Goal};
use pack::pack;
use step_schedule::StepSchedule;
pub use strip_search::StripSearch;
pub use timed::{Chosen, Point};

/// Makes a [`Plan`] for a [`Graph`].
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
    /// Options that the caller has set. The target decides all other options.
    is_set: IsSet,
    /// Techniques that the caller excludes.
    left_out: Techniques,
    memories: Option<&'a Memories>,
    budget: Budget<'a>,
    room: u64,
    overlapping: Option<&'a [NodeId]>,
    node_times: Option<&'a [u64]>,
    costs: Option<&'a dyn Costs>,
    strips: &'a [(NodeId, Strips)],
    paging: Option<&'a Space>,
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
            node_times: None,
            costs: None,
            strips: &[],
            paging: None,
        }
    }
}

impl<'a> Planner<'a> {
    /// Returns a planner for [`Target::NODES`] with the defaults of that target: 64-byte alignment, every
    /// technique that is safe in code without fusion, workspaces as nodes declare, and inputs that may be
    /// reused after the last reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the runner that the plan is for.
    ///
    /// The target decides alignment, techniques and workspaces unless the caller sets these options.
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

    /// Sets the techniques. The target must honor each technique.
    #[must_use]
    pub fn optimize(mut self, techniques: Techniques) -> Self {
        self.options.optimize = techniques;
        self.is_set.optimize = true;
        self
    }

    /// Sets the effort to spend on choosing groups and orders.
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

    /// Sets whether graph inputs keep their bytes until the run ends.
    #[must_use]
    pub fn preserve_inputs(mut self, preserved: bool) -> Self {
        self.options.preserve_inputs = preserved;
        self
    }

    /// Sets the memory for graph inputs.
    #[must_use]
    pub fn inputs(mut self, memory: InputMemory) -> Self {
        self.options.inputs = memory;
        self
    }

    /// Sets the memory for graph outputs.
    ///
    /// Such values take no bytes of the arena. Each value has a separate
    /// [space](Plan::caller_buffers).
    #[must_use]
    pub fn outputs(mut self, memory: OutputMemory) -> Self {
        self.options.outputs = memory;
        self
    }

    /// Sets whether the plan must be safe in every order that the graph permits, so that independent
    /// nodes may run at the same time.
    ///
    /// The planner refuses a graph in which a state change and another use of the state have no
    /// fixed order: [`Node::after`](crate::Node::after) orders two nodes.
    #[must_use]
    pub fn parallel_safe(mut self, safe: bool) -> Self {
        self.options.parallel_safe = safe;
        self
    }

    /// Plans for several workers that run steps at the same time.
    ///
    /// The planner looks for a [timetable](Plan::timetable): an order in which the workers take steps, so
    /// that the run is nearly as short as possible, with few bytes. Values that the timetable needs at the
    /// same time share no byte; other values may. The [hazards](Plan::hazards) of the plan keep every run
    /// right, however long steps take. The lower bound is for the timetable.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// // Two branches of two nodes each, and their sum.
    /// let mut builder = Graph::builder("branches");
    /// let array = |name: &str, kind| Value::new(name, kind, DType::UINT8, [64]);
    /// let x = builder.add_value(array("x", ValueKind::Input)?);
    /// let mut ends = Vec::new();
    /// for branch in ["left", "right"] {
    ///     let inner = builder.add_value(array(&format!("{branch}1"), ValueKind::Activation)?);
    ///     let end = builder.add_value(array(&format!("{branch}2"), ValueKind::Activation)?);
    ///     builder.add_node(Node::new(format!("{branch}1"), "Conv").reads([x]).writes([inner]));
    ///     builder.add_node(Node::new(format!("{branch}2"), "Conv").reads([inner]).writes([end]));
    ///     ends.push(end);
    /// }
    /// let sum = builder.add_value(array("sum", ValueKind::Activation)?);
    /// builder.add_node(Node::new("sum", "Add").reads(ends).writes([sum]));
    /// builder.add_output(sum);
    /// let graph = builder.build()?;
    ///
    /// let serial = Planner::new().plan(&graph)?;
    /// let two = Planner::new().workers(2).plan(&graph)?;
    /// assert_eq!((serial.arena_bytes(), two.arena_bytes()), (192, 256));
    /// let table = two.timetable().expect("it is for two workers");
    /// assert_eq!((table.work(), table.span()), (704, 448)); // bytes that the nodes touch
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn workers(mut self, workers: u32) -> Self {
        self.options.workers = workers;
        self
    }

    /// Sets the time of each node, in any unit, for the timetable of several workers. By default,
    /// the time is proportional to the bytes that the node touches. The time of a fused group is
    /// the sum over the nodes.
    #[must_use]
    pub fn node_times(mut self, times: &'a [u64]) -> Self {
        self.node_times = Some(times);
        self
    }

    /// Sets the runner's step costs: scratch memory and time.
    ///
    /// The plan then places the scratch memory of the step kernels. Among the plans that take at most
    /// [`max_slowdown`](Self::max_slowdown) times as long as the fastest plan, the planner returns the plan
    /// with the fewest bytes. [`Costs`] has an example.
    #[must_use]
    pub fn costs(mut self, costs: &'a dyn Costs) -> Self {
        self.costs = Some(costs);
        self
    }

    /// Sets how workspace sizes are chosen.
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

    /// Places values in several memories in place of the graph's spaces. Each value goes to the memory
    /// with the lowest move cost, as far as there is room.
    ///
    /// A value outside the default space stays in the memory with the name of the value's space. So
    /// do values in the default space, if the default space has another name than `arena`, or the
    /// graph has several spaces and a memory has the name of the default space. Workspaces then
    /// have the smallest sizes.
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
    /// use arenaplan::base::Alignment;
    /// use arenaplan::graph::{Choice, Workspace};
    /// use arenaplan::plan::WorkspacePolicy;
    /// use arenaplan::{DType, Effects, Graph, Node, Planner, Value, ValueKind};
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

    /// Lets only the outputs of `nodes` overlap inputs at a distance. For nodes that run as one, the last
    /// node counts. By default, every output may overlap an input.
    #[must_use]
    pub fn overlapping(mut self, nodes: &'a [NodeId]) -> Self {
        self.overlapping = Some(nodes);
        self
    }

    /// Lets given steps run strip by strip: the steps that end with these nodes, in the strips given with
    /// each node.
    ///
    /// The planner knows no kernels. The caller knows kernels, and chooses the rows per strip and
    /// the places of line buffers in the first workspace of the node. The checker proves both
    /// choices.
    ///
    /// ```
    /// use arenaplan::graph::Window;
    /// use arenaplan::plan::{LineBuffer, Strips};
    /// use arenaplan::{DType, Graph, Node, Planner, Target, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("two convolutions");
    /// let mut image = |name, kind| Value::new(name, kind, DType::UINT8, [1, 8, 32, 32]);
    /// let x = builder.add_value(image("x", ValueKind::Input)?);
    /// let a = builder.add_value(image("a", ValueKind::Activation)?);
    /// let b = builder.add_value(image("b", ValueKind::Activation)?);
    /// let rows = Window { input: 0, output: 0, axis: 2, extent: 3, stride: 1, before: 1, scale: 1 };
    /// let first = Node::new("first", "Conv").reads([x]).writes([a]).window(rows);
    /// let first = builder.add_node(first);
    /// let second = Node::new("second", "Conv").reads([a]).writes([b]).window(rows);
    /// let second = builder.add_node(second);
    /// builder.add_output(b);
    /// let graph = builder.build()?;
    ///
    /// // Four rows of the output need six of *a*, of which two are kept for the next strip.
    /// let held = |rows| Strips {
    ///     rows: 4,
    ///     buffers: vec![LineBuffer { value: 1, offset: 0, rows }],
    ///     in_place: Vec::new(),
    /// };
    /// let steps = [vec![first, second]];
    /// let planned = |rows| {
    ///     let strips = [(second, held(rows))];
    ///     Planner::new().target(&Target::IDEAL).strips(&strips).plan_steps(&graph, &steps)
    /// };
    /// assert_eq!(planned(6)?.placements().len(), 2); // *a* has no place
    /// assert!(planned(5).is_err());
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn strips(mut self, strips: &'a [(NodeId, Strips)]) -> Self {
        self.strips = strips;
        self
    }

    /// Sets how slow the plan may be, in thousandths of the fastest plan's time.
    ///
    /// For several [workers](Self::workers) the value limits the span of the timetable, 1100 by
    /// default: of all timetables that are short enough, a timetable with few bytes is taken. With
    /// a [capacity](Self::capacity), the shortest timetable that fits is taken, even if slower.
    ///
    /// For one worker the value limits the time by the runner's [costs](Self::costs); by default
    /// bytes alone count. Without costs the value is only recorded.
    #[must_use]
    pub fn max_slowdown(mut self, thousandths: Option<u64>) -> Self {
        self.options.max_slowdown = thousandths;
        self
    }

    /// Lets values leave for the memory `slow` and come back, in plans by
    /// [`recompute`](Self::recompute): another way to meet a budget. The memory states the cost to
    /// copy a byte in one direction, in the unit of node costs.
    ///
    /// ```
    /// use arenaplan::pack::Space;
    /// use arenaplan::planner::Goal;
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// // `a` is read again at the end, and nothing may run twice.
    /// let mut builder = Graph::builder("skip");
    /// let array = |name, kind| Value::new(name, kind, DType::UINT8, [1024]);
    /// let x = builder.add_value(array("x", ValueKind::Input)?);
    /// let [a, b, c, d, y] = ["a", "b", "c", "d", "y"].map(|name| array(name, ValueKind::Activation));
    /// let [a, b, c, d, y] = [a?, b?, c?, d?, y?].map(|value| builder.add_value(value));
    /// for (name, read, written) in [("a", x, a), ("b", a, b), ("c", b, c), ("d", c, d)] {
    ///     builder.add_node(Node::new(name, "Conv").reads([read]).writes([written]).with_cost(1 << 20));
    /// }
    /// builder.add_node(Node::new("y", "Add").reads([d, a]).writes([y]).in_place(0, 0));
    /// builder.add_output(y);
    /// let graph = builder.build()?;
    ///
    /// let host = Space::new("host").with_cost(16);
    /// let plan = Planner::new().paging_to(&host).recompute(&graph, Goal::Bytes(2048))?;
    /// assert_eq!(plan.spaces()[0].arena_bytes, 2048);
    /// assert_eq!(plan.spaces()[1].arena_bytes, 1024);
    /// let recomputed = plan.recomputed().expect("a value leaves");
    /// assert_eq!(recomputed.extra_cost, 2 * 16 * 1024);
    /// assert!(Planner::new().recompute(&graph, Goal::Bytes(2048)).is_err());
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn paging_to(mut self, slow: &'a Space) -> Self {
        self.paging = Some(slow);
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

    /// Returns a checked plan of `graph`.
    ///
    /// If a space is too small, the best plan is returned all the same: see the plan's
    /// [`status`](Plan::status) and [`Plan::fits`].
    ///
    /// # Errors
    ///
    /// - [`InvalidAlignment`](crate::Error::InvalidAlignment) if the alignment is not a power of two.
    /// - [`SizeOverflow`](crate::Error::SizeOverflow) if the bytes live at one step exceed the
    ///   address space of a machine.
    /// - [`PinConflict`](crate::Error::PinConflict) if pinned values contradict each other.
    /// - [`SpacesExceeded`](crate::Error::SpacesExceeded) if the [`memories`](Self::memories)
    ///   cannot hold the values: the error names the values and the step.
    /// - [`InvalidOption`](crate::Error::InvalidOption) if options contradict each other, the graph
    ///   or the target. Inputs cannot be both preserved and reused. Values in the caller's memory
    ///   have no pin and no other memory. The target must honor every technique. For a plan that is
    ///   right in every order, the graph must order the uses of each state.
    pub fn plan(&self, graph: &Graph) -> Result<Plan> {
        planned(&self.context(graph)?, graph)
    }

    /// Returns a plan of `graph` as [`plan`](Self::plan) does, and the bytes and times of the
    /// compared plans.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn choose(&self, graph: &Graph) -> Result<Chosen> {
        let context = self.context(graph)?;
        if let Some(costs) = context.costs {
            return timed::chosen(&context, graph, costs);
        }
        let plan = planned(&context, graph)?;
        let points = alloc::vec![Point::of(&plan)];
        Ok(Chosen { plan, points })
    }

    /// Returns the rules by which values in `graph` share bytes.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn liveness_options(&self, graph: &Graph) -> Result<LivenessOptions> {
        self.context(graph)?.liveness_options(false, true)
    }

    /// Returns the buffers that `graph` needs, unpacked: for reports.
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn liveness(&self, graph: &Graph) -> Result<Liveness> {
        let context = self.context(graph)?;
        pack(&context, &StepSchedule::given(graph), true, &[]).map(|placed| placed.liveness)
    }
}

/// Returns a checked plan of `graph`.
fn planned(context: &Context<'_>, graph: &Graph) -> Result<Plan> {
    if let Some(costs) = context.costs {
        return timed::chosen(context, graph, costs).map(|chosen| chosen.plan);
    }
    accepted_plan(context, graph, |context| stages::unchecked(context, graph))
}
