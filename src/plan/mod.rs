//! A plan: a place for every value, the steps and options, the target, and the proofs.

mod boundary;
mod hazards;
mod offsets;
mod profile;
mod recomputed;
mod shared;
mod strips;
mod target;
mod technique;
mod timetable;

use alloc::{string::String, vec, vec::Vec};
use core::fmt;
use core::str::FromStr;

pub use boundary::{InputMemory, OutputMemory};
pub use hazards::{CriticalPath, Hazard, HazardKind, Hazards};
pub use offsets::Offsets;
pub use profile::Peak;
pub use recomputed::{Paging, Recomputed};
pub use shared::{SharedMember, SharedPlan, Together};
pub use strips::{LineBuffer, RowsInPlace, Strips};
pub use target::{Granularity, Provider, Target};
pub use technique::{Technique, Techniques};
pub use timetable::Timetable;

use crate::base::{Error, Fingerprint, NodeId, Result, SpaceId, ValueId, quoted};
use crate::graph::Covers;
use crate::pack::Status;

/// The rule for workspace sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum WorkspacePolicy {
    /// The plan has no workspaces and counts activations only.
    #[default]
    None,
    /// Each workspace gets the cheapest size that does not raise the peak.
    Auto,
}

impl WorkspacePolicy {
    /// Returns the name used in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for WorkspacePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WorkspacePolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            _ => Err(Error::unknown_name("workspace policy", text, "none,auto")),
        }
    }
}

/// Effort spent on choosing groups and orders, and on packing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Effort {
    /// A few milliseconds for a network with hundreds of nodes.
    Fast,
    /// Up to a second or two.
    #[default]
    Default,
    /// Up to a minute or two.
    Max,
}

impl Effort {
    /// Returns the name used in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Default => "default",
            Self::Max => "max",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

impl FromStr for Effort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = [Self::Fast, Self::Default, Self::Max].into_iter();
        let mut known = known.filter(|effort| effort.name() == text);
        known.next().ok_or_else(|| Error::unknown_name("effort", text, "fast,default,max"))
    }
}

/// Order search scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum OrderSearch {
    /// The graph's order, without a search.
    #[default]
    Given,
    /// No other order of the same steps has fewer live bytes at the highest step, scratch memory
    /// included, as long as no output overlaps an input at a distance.
    Complete,
    /// The best order among all orders that were tried.
    Beam,
}

impl OrderSearch {
    /// Returns the name used in plan files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Complete => "complete",
            Self::Beam => "beam",
        }
    }
}

/// The options that a plan was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct PlanOptions {
    /// Offset alignment in bytes.
    pub alignment: u64,
    /// Techniques that may be used.
    pub optimize: Techniques,
    /// Effort spent on the choice.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Effort::is_default"))]
    pub effort: Effort,
    /// Whether graph inputs keep their bytes until the run ends.
    pub preserve_inputs: bool,
    /// The memory for graph inputs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "InputMemory::is_default"))]
    pub inputs: InputMemory,
    /// The memory for graph outputs.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "OutputMemory::is_default")
    )]
    pub outputs: OutputMemory,
    /// Whether the plan is safe in every order that the graph permits.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub parallel_safe: bool,
    /// Number of workers that run steps at the same time. Several workers follow the
    /// [timetable](Plan::timetable).
    #[cfg_attr(feature = "serde", serde(default = "one", skip_serializing_if = "is_one"))]
    pub workers: u32,
    /// The rule for workspace sizes.
    pub workspace: WorkspacePolicy,
    /// Longest estimated time, in thousandths of the fastest tried plan's time; `None` if time was
    /// not weighed against bytes, or by the timetable default.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub max_slowdown: Option<u64>,
    /// Bytes of the default space, if the option replaces the limit in the graph.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub capacity: Option<u64>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            alignment: 64,
            optimize: Techniques::ALL,
            effort: Effort::Default,
            preserve_inputs: false,
            inputs: InputMemory::Inside,
            outputs: OutputMemory::Inside,
            parallel_safe: false,
            workers: 1,
            workspace: WorkspacePolicy::None,
            max_slowdown: None,
            capacity: None,
        }
    }
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

/// Offset and live range of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Placement {
    /// Value index in the graph.
    pub value: u32,
    /// Value name.
    pub name: String,
    /// Space index in the plan.
    pub space: u32,
    /// First byte in the space.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Steps that need the bytes: first, and first after the last.
    pub live: [u32; 2],
}

/// Offset of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct WorkspacePlacement {
    /// Node index in the graph.
    pub node: u32,
    /// Position among the node's workspaces.
    pub slot: u32,
    /// Size index among the workspace's choices.
    pub choice: u32,
    /// Space index in the plan.
    pub space: u32,
    /// First byte in the space.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// The reason why two operands of a node share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ShareRule {
    /// The smaller operand shows unchanged bytes of the larger, so the node need not write these bytes.
    View,
    /// The output takes over a dying input's bytes.
    InPlace,
    /// The output begins at some distance before an input that dies, and overlaps that input. The node
    /// makes the output in order, and writes each piece after the last read of the bytes below.
    Overlap,
}

/// Two operands of a node that share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Share {
    /// Position among the node's inputs.
    pub input: u32,
    /// Position among the node's outputs.
    pub output: u32,
    /// The rule that permits the share.
    pub rule: ShareRule,
}

/// A node, or several nodes that run as one, with the values read and written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct PlanStep {
    /// Node index in the graph.
    pub node: u32,
    /// Node name.
    pub name: String,
    /// Indices of the nodes in a fused group before the last node, in order; empty for a single
    /// node. Values inside a group are passed on piece by piece and have no place.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub fused: Vec<u32>,
    /// Values read, by position; null for an operand that is left out or whose bytes are never
    /// read. A fused group lists each value from outside once.
    pub inputs: Vec<Option<u32>>,
    /// Values written, by position; null for a result that is left out.
    pub outputs: Vec<Option<u32>>,
    /// Operands that share bytes.
    pub shares: Vec<Share>,
    /// The strips of a fused group; `None` if the group runs piece by piece.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub strips: Option<Strips>,
    /// Whether a runner performs the node in one call with the step before: the result replaces the
    /// only value that the step before made, and every value keeps its place.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub continues: bool,
}

impl PlanStep {
    /// Iterates over the nodes that run, in order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.fused.iter().chain([&self.node]).map(|&node| NodeId::from(node))
    }

    /// Returns whether an output overlaps an input at a distance.
    pub fn is_overlapped(&self) -> bool {
        self.shares.iter().any(|share| share.rule == ShareRule::Overlap)
    }
}

/// The plan of one space: an arena, or a buffer that the caller brings for an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SpacePlan {
    /// Name of the space, or of the value for which the caller brings the buffer.
    pub name: String,
    /// Bytes that the arena must have, or the caller's buffer.
    pub arena_bytes: u64,
    /// Proven bytes that any offsets need, for this order and sharing.
    pub lower_bound: u64,
    /// Status of `arena_bytes`.
    pub status: Status,
    /// Alignment of the arena's first address.
    pub alignment: u64,
    /// Space capacity in bytes, if limited.
    pub capacity: Option<u64>,
    /// Cost to read or write one byte in the space.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub cost: u64,
    /// Position of the value that the caller brings this buffer for; `None` for an arena.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub caller: Option<u32>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Move cost per run, if the plan chose the space of each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct MoveCost {
    /// Bytes that nodes read and write, times the space's cost per byte.
    pub cost: u64,
    /// Lower bound of the cost for any choice of spaces, proven for this order, these steps and
    /// this sharing.
    pub lower_bound: u64,
}

/// Search scope for steps and orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Search {
    /// Order search scope.
    pub order: OrderSearch,
    /// Bytes that some step needs by itself. No order needs fewer, for all tried fusions.
    pub floor: u64,
    /// Requested techniques that were not tried: because the graph is large, nodes may run in any
    /// order, overlap workspaces are not known, or time was up.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Techniques::is_none"))]
    pub skipped: Techniques,
    /// Estimated time of one run by the target's cost model; `None` without an estimate.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub estimate: Option<TimeEstimate>,
}

/// The estimated time per run: a claim by the cost model, which no check verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TimeEstimate {
    /// Nanoseconds per run with this plan.
    pub nanoseconds: u64,
    /// Nanoseconds per run in the fastest known way.
    pub fastest_nanoseconds: u64,
}

/// A plan: an offset for every value of a graph, in one arena per space.
///
/// A plan is self-contained: the plan has value names and the graph's [`digest`](Self::digest). A
/// plan from a file is trusted only after [`check`](Self::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(crate) model: String,
    pub(crate) digest: String,
    pub(crate) covers: Covers,
    pub(crate) target: Target,
    pub(crate) options: PlanOptions,
    pub(crate) search: Option<Search>,
    pub(crate) steps: Vec<PlanStep>,
    pub(crate) spaces: Vec<SpacePlan>,
    pub(crate) move_cost: Option<MoveCost>,
    pub(crate) timetable: Option<Timetable>,
    pub(crate) recomputed: Option<Recomputed>,
    pub(crate) naive_bytes: Option<u64>,
    pub(crate) value_count: u32,
    /// For each node: the position in `steps` of the step that puts the output into memory, else of
    /// the first step that runs the node.
    pub(crate) step_of: Vec<u32>,
    /// By value, ascending.
    pub(crate) placements: Vec<Placement>,
    /// By node, then slot, ascending.
    pub(crate) workspaces: Vec<WorkspacePlacement>,
    /// Tells this layout from other layouts. Each [`Arena`](crate::Arena) remembers the number.
    pub(crate) fingerprint: Fingerprint,
}

impl Plan {
    /// Returns the schedule with repeated nodes, if any node runs again as a step of its own.
    pub const fn recomputed(&self) -> Option<&Recomputed> {
        self.recomputed.as_ref()
    }

    /// Returns the model name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the [digest](crate::Graph::digest) of the planned graph.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the part of the model that was planned, as stated by the graph.
    pub const fn covers(&self) -> &Covers {
        &self.covers
    }

    /// Returns the runner that the plan is for. A plan file without a target is for
    /// [`Target::IDEAL`].
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the options that the plan was made with.
    pub const fn options(&self) -> PlanOptions {
        self.options
    }

    /// Returns the scope of the search for steps and orders; `None` if the caller chose the steps.
    pub const fn search(&self) -> Option<Search> {
        self.search
    }

    /// Returns the same plan with a time estimate in [`search`](Self::search).
    ///
    /// A plan with the caller's steps has no search and stays unchanged.
    ///
    /// ```
    /// use arenaplan::plan::TimeEstimate;
    /// use arenaplan::{DType, Graph, Node, Planner, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("g");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
    /// let y = builder.add_value(Value::new("y", ValueKind::Activation, DType::UINT8, [64])?);
    /// builder.add_node(Node::new("n", "Op").reads([x]).writes([y]));
    /// builder.add_output(y);
    /// let graph = builder.build()?;
    ///
    /// let plan = Planner::new().max_slowdown(Some(1100)).plan(&graph)?;
    /// let estimate = TimeEstimate { nanoseconds: 1_050, fastest_nanoseconds: 1_000 };
    /// let plan = plan.with_estimate(estimate);
    /// plan.check(&graph)?;
    /// assert_eq!(plan.search().and_then(|search| search.estimate), Some(estimate));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn with_estimate(mut self, estimate: TimeEstimate) -> Self {
        if let Some(search) = &mut self.search {
            search.estimate = Some(estimate);
        }
        self
    }

    /// Returns the steps in order: nodes and fused groups.
    pub fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// Returns the step that runs `node`, or `None` if there is no such node. If several steps run the
    /// node, returns the step that puts the output into memory, else the first step.
    pub fn step_of(&self, node: NodeId) -> Option<&PlanStep> {
        let step = *self.step_of.get(node.index())?;
        self.steps.get(usize::try_from(step).ok()?)
    }

    /// Iterates over the nodes by first run. Nodes in a group are neighbors.
    pub fn order(&self) -> impl Iterator<Item = NodeId> + '_ {
        let mut seen = vec![false; self.step_of.len()];
        let nodes = self.steps.iter().flat_map(PlanStep::nodes);
        nodes.filter(move |node| {
            seen.get_mut(node.index()).is_some_and(|seen| !core::mem::replace(seen, true))
        })
    }

    /// Returns the last node of each step whose output overlaps an input at a distance.
    pub fn overlapped(&self) -> Vec<NodeId> {
        let steps = self.steps.iter().filter(|step| step.is_overlapped());
        steps.map(|step| NodeId::from(step.node)).collect()
    }

    /// Returns the node of each step that [continues](PlanStep::continues) the step before.
    pub fn continued(&self) -> Vec<NodeId> {
        let steps = self.steps.iter().filter(|step| step.continues);
        steps.map(|step| NodeId::from(step.node)).collect()
    }

    /// Returns the steps that run strip by strip, by last node.
    pub fn strips(&self) -> Vec<(NodeId, Strips)> {
        let own = |step: &PlanStep| Some((NodeId::from(step.node), step.strips.clone()?));
        self.steps.iter().filter_map(own).collect()
    }

    /// Returns the nodes that run in several steps, ascending, with the step counts.
    ///
    /// Such a node is cheap and makes a large output from small inputs: memory keeps the inputs in place
    /// of the output. See [`Technique::Duplicate`].
    pub fn repeated(&self) -> Vec<(NodeId, usize)> {
        let mut runs = vec![0_usize; self.step_of.len()];
        for node in self.steps.iter().flat_map(PlanStep::nodes) {
            runs[node.index()] += 1;
        }
        let runs = runs.into_iter().enumerate().filter(|&(_, runs)| runs > 1);
        runs.map(|(node, runs)| (NodeId::new(node), runs)).collect()
    }

    /// Returns the plan of each space: the arenas, then the buffers that the caller brings,
    /// ascending by value.
    pub fn spaces(&self) -> &[SpacePlan] {
        &self.spaces
    }

    /// Returns the move cost if the plan chose the space of each value; `None` if the graph did.
    pub const fn move_cost(&self) -> Option<MoveCost> {
        self.move_cost
    }

    /// Returns the timetable for several workers; `None` for a plan for one worker.
    pub const fn timetable(&self) -> Option<&Timetable> {
        self.timetable.as_ref()
    }

    /// Returns for each value the bytes that nodes read and write per run, in the order of
    /// [`placements`](Self::placements).
    ///
    /// A shared view is not moved. The caller's accesses are not counted.
    pub fn bytes_moved(&self) -> Vec<u64> {
        let mut sizes = vec![0; self.value_count()];
        for placement in &self.placements {
            if let Some(size) = sizes.get_mut(ValueId::from(placement.value).index()) {
                *size = placement.bytes;
            }
        }
        let moved = bytes_moved(&self.steps, &sizes);
        let ids = self.placements.iter().map(|placement| ValueId::from(placement.value).index());
        ids.map(|value| moved.get(value).copied().unwrap_or(0)).collect()
    }

    /// Returns the number of values in the graph, constants among them.
    #[allow(clippy::as_conversions, reason = "pointers have at least 32 bits")]
    pub const fn value_count(&self) -> usize {
        self.value_count as usize
    }

    /// Returns the place of each value, ascending by value. Constants have no place.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Returns the place of `value`, or `None` if the value is not in the arena.
    pub fn placement(&self, value: ValueId) -> Option<&Placement> {
        let id = u32::try_from(value.index()).ok()?;
        let found = self.placements.binary_search_by_key(&id, |placement| placement.value).ok()?;
        Some(&self.placements[found])
    }

    /// Returns the place of each workspace, ascending by node and slot.
    pub fn workspaces(&self) -> &[WorkspacePlacement] {
        &self.workspaces
    }

    /// Iterates over the workspaces that the nodes in a step use. If several steps run a node, only
    /// the step that [`step_of`](Self::step_of) returns has the workspaces.
    pub fn workspaces_in<'a>(
        &'a self,
        step: &'a PlanStep,
    ) -> impl Iterator<Item = &'a WorkspacePlacement> {
        let is_home =
            |node: &NodeId| self.step_of(*node).is_some_and(|home| home.node == step.node);
        step.nodes().filter(is_home).flat_map(|node| self.workspaces_of(node))
    }

    /// Returns the workspace places of `node`, by slot.
    pub fn workspaces_of(&self, node: NodeId) -> &[WorkspacePlacement] {
        let Ok(id) = u32::try_from(node.index()) else { return &[] };
        let start = self.workspaces.partition_point(|workspace| workspace.node < id);
        let count = self.workspaces[start..].partition_point(|workspace| workspace.node == id);
        &self.workspaces[start..start + count]
    }

    /// Returns the spaces that are arenas. The caller's buffers are not listed.
    pub fn arenas(&self) -> &[SpacePlan] {
        &self.spaces[..self.spaces.partition_point(|space| space.caller.is_none())]
    }

    /// Returns the buffers that the caller brings, ascending by value.
    pub fn caller_buffers(&self) -> &[SpacePlan] {
        &self.spaces[self.arenas().len()..]
    }

    /// Returns the total arena bytes.
    pub fn arena_bytes(&self) -> u64 {
        self.arenas().iter().fold(0, |sum, space| sum.saturating_add(space.arena_bytes))
    }

    /// Returns the sum of all value sizes, or `None` if no machine can address as many bytes.
    pub const fn naive_bytes(&self) -> Option<u64> {
        self.naive_bytes
    }

    /// Returns the proven least bytes of all plans with this order and this sharing.
    pub fn lower_bound(&self) -> u64 {
        self.arenas().iter().fold(0, |sum, space| sum.saturating_add(space.lower_bound))
    }

    /// Returns the distance from the lower bound: `arena_bytes / lower_bound - 1`.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn gap(&self) -> f64 {
        match self.lower_bound() {
            0 => 0.0,
            bound => self.arena_bytes() as f64 / bound as f64 - 1.0,
        }
    }

    /// Returns whether every space holds its planned bytes.
    ///
    /// # Errors
    ///
    /// - [`Error::CapacityExceeded`] for the first space that is too small.
    /// - [`Error::PartOfModel`] if a space is limited and the plan covers only a part of the model.
    pub fn fits(&self) -> Result<()> {
        for space in self.arenas() {
            if let Some(capacity) = space.capacity.filter(|&capacity| capacity < space.arena_bytes)
            {
                return Err(Error::CapacityExceeded {
                    space: quoted(&space.name),
                    capacity,
                    needed: space.arena_bytes,
                    lower_bound: space.lower_bound,
                });
            }
        }
        if self.arenas().iter().any(|space| space.capacity.is_some()) {
            self.covers.require_whole(&self.model)?;
        }
        Ok(())
    }

    /// Returns the status of the plan's size.
    ///
    /// A plan for a part of the model is at most [`Unknown`](Status::Unknown).
    /// [`Infeasible`](Status::Infeasible) is a claim about all orders of the steps if the planner searched
    /// for an order, and about the order of the plan otherwise.
    pub fn status(&self) -> Status {
        let spaces = self.arenas().iter();
        let status = spaces.fold(Status::Optimal, |status, space| status.and(space.status));
        let status = match status {
            Status::Infeasible if !self.exceeds_in_any_order() => Status::Unknown,
            status => status,
        };
        if self.covers.is_whole() { status } else { status.and(Status::Unknown) }
    }

    /// Returns true if, for a space that is too small, no searched order fits.
    fn exceeds_in_any_order(&self) -> bool {
        let Some(search) = self.search.filter(|search| search.order != OrderSearch::Given) else {
            return true;
        };
        let arenas = self.arenas().iter().enumerate();
        let limited = arenas.filter_map(|(index, space)| Some((index, space.capacity?)));
        let sum = limited.clone().fold(0_u64, |sum, (_, capacity)| sum.saturating_add(capacity));
        let is_all = limited.clone().count() == self.arenas().len();
        let live = |index| self.peak(SpaceId::new(index)).live_bytes;
        (is_all && search.floor > sum)
            || (search.order == OrderSearch::Complete
                && limited.into_iter().any(|(index, capacity)| live(index) > capacity))
    }
}

/// Returns the bytes of each value that `steps` read and write, given the value sizes.
pub(crate) fn bytes_moved(steps: &[PlanStep], sizes: &[u64]) -> Vec<u64> {
    let mut moved = vec![0_u64; sizes.len()];
    let at = |value: u32| ValueId::from(value).index();
    let size =
        |operand: Option<u32>| operand.and_then(|value| sizes.get(at(value)).copied()).unwrap_or(0);
    let operand = |operands: &[Option<u32>], position: u32| {
        operands.get(usize::try_from(position).ok()?).copied().flatten()
    };
    for step in steps {
        let views = || step.shares.iter().filter(|share| share.rule == ShareRule::View);
        for (position, &input) in (0_u32..).zip(&step.inputs) {
            if views().all(|share| share.input != position)
                && let Some(moved) = input.and_then(|value| moved.get_mut(at(value)))
            {
                *moved = moved.saturating_add(size(input));
            }
        }
        for (position, &output) in (0_u32..).zip(&step.outputs) {
            let shown = views().filter(|share| share.output == position);
            let shown = shown.map(|share| size(operand(&step.inputs, share.input)));
            let written = shown.fold(size(output), u64::saturating_sub);
            if let Some(moved) = output.and_then(|value| moved.get_mut(at(value))) {
                *moved = moved.saturating_add(written);
            }
        }
    }
    moved
}

/// Returns the position of every node among `steps`: the step that ends with the node, else the first
/// step that runs the node. `None` if the nodes are not numbered from 0 without gaps, or two steps end
/// with the same node.
pub(crate) fn index_steps(steps: &[PlanStep]) -> Option<Vec<u32>> {
    let most: usize = steps.iter().map(|step| 1 + step.fused.len()).sum();
    let last = steps.iter().flat_map(PlanStep::nodes).map(NodeId::index).max();
    let nodes = last.map_or(0, |last| last.saturating_add(1));
    if nodes > most {
        return None;
    }
    let mut step_of = vec![u32::MAX; nodes];
    for (position, step) in (0_u32..).zip(steps) {
        let known = &mut step_of[NodeId::from(step.node).index()];
        if core::mem::replace(known, position) != u32::MAX {
            return None;
        }
    }
    for (position, step) in (0_u32..).zip(steps) {
        for &node in &step.fused {
            let known = &mut step_of[NodeId::from(node).index()];
            *known = if *known == u32::MAX { position } else { *known };
        }
    }
    step_of.iter().all(|&step| step != u32::MAX).then_some(step_of)
}
