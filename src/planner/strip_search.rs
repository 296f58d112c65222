//! The search for steps in strips, for runners with kernels.

use alloc::collections::BTreeMap;
use alloc::{format, vec::Vec};

use crate::base::{Error, NodeId, Result, SpaceId, ValueId};
use crate::choose::regions::{Kernels, PlacedPiece, StripRegions, WholeSteps, nodes_in_reach};
use crate::choose::{RowKernel, RowMoveCost, StripChoice, StripLimits, Way};
use crate::graph::Graph;
use crate::pack::Budget;
use crate::plan::{Placement, Plan};

/// A search for the steps of a plan that run strip by strip, for a runner with kernels.
///
/// A *region* is a run of steps that makes its last result some rows at a time: the values between
/// the steps shrink to line buffers. The search chooses between steps as they are and regions, for
/// the fewest bytes within a time limit (msf-CNN, Huang and Baccelli 2025).
///
/// # Examples
///
/// A convolution from one plane to eight and another back to one plane: with line buffers of eight
/// planes, the value between the convolutions does not exist as a whole.
///
/// ```
/// use arenaplan::choose::{RowMoveCost, RowCost, RowKernel, StripLimits, Way};
/// use arenaplan::graph::Window;
/// use arenaplan::planner::StripSearch;
/// use arenaplan::{
///     Budget, DType, Graph, Node, NodeId, Planner, SpaceId, Target, Value, ValueKind,
/// };
///
/// let mut builder = Graph::builder("strips");
/// let value = |name: &str, kind, planes| Value::new(name, kind, DType::UINT8, [planes, 64, 64]);
/// let x = builder.add_value(value("x", ValueKind::Input, 1)?);
/// let y = builder.add_value(value("y", ValueKind::Activation, 8)?);
/// let z = builder.add_value(value("z", ValueKind::Activation, 1)?);
/// let rows = Window { input: 0, output: 0, axis: 1, extent: 3, stride: 1, before: 1, scale: 1 };
/// builder.add_node(Node::new("widen", "Conv").reads([x]).writes([y]).window(rows));
/// builder.add_node(Node::new("narrow", "Conv").reads([y]).writes([z]).window(rows));
/// builder.add_output(z);
/// let graph = builder.build()?;
/// let plan = Planner::new().plan(&graph)?;
/// assert_eq!(plan.arena_bytes(), 9 * 64 * 64);
///
/// // A call on any number of rows takes 100 and 10 for each row.
/// let cost = |rows| RowCost { rows, ways: vec![Way { bytes: 0, time: 100 + 10 * rows }] };
/// let kernel = |node| RowKernel {
///     nodes: vec![NodeId::new(node)],
///     takes: None,
///     costs: vec![cost(1), cost(64)],
/// };
/// let alone = |bytes| vec![Way { bytes, time: 740 }];
/// let ways = plan.live_bytes(SpaceId::new(0)).into_iter().map(alone).collect();
/// let limits = StripLimits { above: 0, below: plan.arena_bytes(), time: 5 * 740 };
/// let (kernels, budget) = (vec![kernel(0), kernel(1)], Budget::default());
/// let mut search =
///     StripSearch::new(&graph, &plan, kernels, RowMoveCost::default(), ways, limits, &budget)?;
/// let choice = search.least(limits, &budget)?.expect("a region");
/// assert_eq!(choice.steps, [[NodeId::new(0), NodeId::new(1)]]);
/// let planner = Planner::new().target(&Target::IDEAL).strips(&choice.strips);
/// let small = planner.plan_steps(&graph, &choice.steps)?;
/// assert!(small.arena_bytes() < 16_000);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Debug)]
pub struct StripSearch {
    regions: StripRegions,
}

impl StripSearch {
    /// Returns the nodes of `graph` that can be in a strip region with one of the `wanted` steps of
    /// `plan`, as far as the plan tells. Kernels of other nodes need not be known, since other
    /// nodes have no effect on the bytes of the wanted steps.
    ///
    /// # Errors
    ///
    /// [`PlanMismatch`](Error::PlanMismatch) if the plan is of another graph.
    pub fn nodes(graph: &Graph, plan: &Plan, wanted: &[usize]) -> Result<Vec<NodeId>> {
        let steps = steps_of(graph, plan)?;
        Ok(nodes_in_reach(graph, &steps, &live_in(plan, &steps), wanted))
    }

    /// Returns a search over the steps of `plan`, a plan of `graph`, for the fewest bytes in the
    /// first space.
    ///
    /// `kernels` say which nodes one call performs, and what calls cost; other nodes never run
    /// strip by strip. `ways` are the ways to run each step without strips: live bytes and time.
    /// Regions that exceed a limit by themselves are left out.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](Error::InvalidOption) if a kernel cannot make its result some rows at a
    /// time, or the ways do not match the plan's steps; [`PlanMismatch`](Error::PlanMismatch) if
    /// the plan is of another graph.
    pub fn new(
        graph: &Graph,
        plan: &Plan,
        kernels: Vec<RowKernel>,
        moves: RowMoveCost,
        ways: Vec<Vec<Way>>,
        limits: StripLimits,
        budget: &Budget<'_>,
    ) -> Result<Self> {
        let steps = steps_of(graph, plan)?;
        if ways.len() != steps.len() {
            let reason = format!("there are {} lists for {} steps", ways.len(), steps.len());
            return Err(Error::InvalidOption { option: "ways", reason });
        }
        let live = live_in(plan, &steps);
        let held = held_in(graph, plan, &steps);
        let whole = WholeSteps { steps, live: &live, held: &held };
        let kernels = Kernels::new(graph, kernels, moves)?;
        let regions = StripRegions::of_kernels(graph, kernels, whole, ways, limits, budget);
        Ok(Self { regions })
    }

    /// Returns the steps with the fewest bytes within the limits; `None` if no step runs strip by
    /// strip.
    ///
    /// Bytes are live bytes: offsets may not be found within these bytes.
    ///
    /// # Errors
    ///
    /// As packing line buffers.
    pub fn least(
        &mut self,
        limits: StripLimits,
        budget: &Budget<'_>,
    ) -> Result<Option<StripChoice>> {
        self.regions.least(limits, budget)
    }

    /// Removes the strip steps at this position of the last returned choice from all later choices,
    /// because kernels cannot run the steps.
    pub fn refuse(&mut self, position: usize) {
        self.regions.refuse_chosen(position);
    }
}

/// Returns the bytes that are live at each step; a plan without any has a step to hold values.
fn live_in(plan: &Plan, steps: &[Vec<NodeId>]) -> Vec<u64> {
    let mut live = plan.live_bytes(SpaceId::new(0));
    live.truncate(steps.len());
    live
}

/// Returns the nodes by step.
fn steps_of(graph: &Graph, plan: &Plan) -> Result<Vec<Vec<NodeId>>> {
    let steps: Vec<Vec<NodeId>> = plan.steps().iter().map(|step| step.nodes().collect()).collect();
    if let Some(node) = steps.iter().flatten().find(|id| id.index() >= graph.nodes().len()) {
        let reason = format!("the graph has no node {node}");
        return Err(Error::PlanMismatch { reason });
    }
    Ok(steps)
}

/// Returns the values that have a place in the arena, grouped by shared bytes.
fn held_in(graph: &Graph, plan: &Plan, steps: &[Vec<NodeId>]) -> Vec<Vec<PlacedPiece>> {
    let mut made: BTreeMap<ValueId, usize> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        // Values between the nodes in a step have no place.
        let last = step.last().map(|&node| graph.node(node));
        made.extend(
            last.into_iter().flat_map(|node| node.produces().map(|(_, value)| (value, at))),
        );
    }
    let position = |step: u32| usize::try_from(step).unwrap_or(usize::MAX);
    let piece = |placement: &&Placement| {
        let [start, end] = placement.live;
        let value = ValueId::from(placement.value);
        PlacedPiece {
            bytes: plan.padded_span(placement),
            live: (position(start), position(end)),
            made: made.get(&value).copied(),
        }
    };
    let groups = plan.sharing_groups(SpaceId::new(0));
    groups.iter().map(|group| group.iter().map(piece).collect()).collect()
}
