//! The offsets of a plan, used for a graph with the same nodes and values of other sizes.
//!
//! A model with a symbolic dimension is one graph per number bound to it. Those graphs mostly
//! differ in sizes alone, and then what does not overlap at the largest sizes does not overlap
//! at smaller ones. That is not taken on trust: which values may share bytes can depend on
//! their sizes, too, so the checker has the last word.

use crate::error::{Error, Result, quoted};
use crate::graph::{Graph, Node};
use crate::index::{NodeId, SpaceId, ValueId};
use crate::packing::Status;
use crate::plan::{Plan, WorkspacePlacement};
use crate::units::Alignment;

impl Plan {
    /// Returns a plan of `graph` that has the offsets of this one.
    ///
    /// The graph has the nodes and values of the one that was planned, with sizes of its
    /// own. Each workspace gets the cheapest size that fits into the bytes it had. The
    /// result is checked; its lower bound is the bytes that its values hold at one step.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Node, Planner, Result, Value, ValueKind};
    ///
    /// fn layer(batch: u64) -> Result<Graph> {
    ///     let mut builder = Graph::builder("layer");
    ///     let mut array = |name, kind| Value::new(name, kind, DType::FLOAT32, [batch, 64]);
    ///     let x = builder.add_value(array("x", ValueKind::Input)?);
    ///     let y = builder.add_value(array("y", ValueKind::Activation)?);
    ///     builder.add_node(Node::new("conv", "Conv").reads([x]).writes([y]));
    ///     builder.add_output(y);
    ///     builder.build()
    /// }
    ///
    /// let largest = Planner::new().plan(&layer(8)?)?;
    /// let smaller = largest.resized(&layer(3)?)?;
    /// assert_eq!((largest.arena_bytes(), smaller.arena_bytes()), (4096, 2048 + 768));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`PlanMismatch`](Error::PlanMismatch) if the graph has other nodes or values, or a
    ///   workspace has no size that fits.
    /// - As [`check`](Self::check), if the offsets do not serve these sizes.
    pub fn resized(&self, graph: &Graph) -> Result<Self> {
        if self.value_count() != graph.values().len() || self.steps.len() != graph.nodes().len() {
            return mismatch("the graph has other nodes or values".into());
        }
        let alignment = Alignment::new(self.options.alignment)?;
        let mut plan = Self { digest: graph.digest(), workspaces: Vec::new(), ..self.clone() };
        for placement in &mut plan.placements {
            placement.bytes = graph.value(ValueId::from(placement.value)).bytes();
        }
        // Larger workspaces are a choice; what the values need is not.
        let bounds: Vec<u64> =
            (0..self.spaces.len()).map(|space| plan.peak(SpaceId::new(space)).live_bytes).collect();
        plan.workspaces = self
            .workspaces
            .iter()
            .map(|&workspace| fitted(workspace, graph.node(NodeId::from(workspace.node))))
            .collect::<Result<_>>()?;
        plan.naive_bytes = plan.placements.iter().try_fold(0_u64, |sum, placement| {
            sum.checked_add(alignment.round_up(placement.bytes)?)
        });
        let ends = plan.ends(alignment)?;
        for ((space, end), bound) in plan.spaces.iter_mut().zip(ends).zip(bounds) {
            space.arena_bytes = end;
            space.lower_bound = bound.min(end);
            space.status = Status::of(end, space.lower_bound, space.capacity);
        }
        plan.check(graph)?;
        Ok(plan)
    }

    /// Returns, per space, the byte after the last that is used.
    fn ends(&self, alignment: Alignment) -> Result<Vec<u64>> {
        let mut ends = vec![0; self.spaces.len()];
        let values = self.placements.iter().map(|value| (value.space, value.offset, value.bytes));
        let scratch = self.workspaces.iter().map(|work| (work.space, work.offset, work.bytes));
        for (space, offset, bytes) in values.chain(scratch).filter(|&(_, _, bytes)| bytes > 0) {
            let end = alignment.round_up(bytes).and_then(|size| offset.checked_add(size));
            let end = end.ok_or_else(|| Error::SizeOverflow { what: quoted(&self.model) })?;
            let known = &mut ends[SpaceId::from(space).index()];
            *known = end.max(*known);
        }
        Ok(ends)
    }
}

/// Returns a workspace of `node` in the cheapest size that fits into its bytes.
fn fitted(workspace: WorkspacePlacement, node: &Node) -> Result<WorkspacePlacement> {
    let slot = usize::try_from(workspace.slot).ok();
    let declared = slot.and_then(|slot| node.effects().workspaces.get(slot));
    let choices = (0_u32..).zip(declared.iter().flat_map(|declared| &declared.choices));
    let cheapest = choices
        .filter(|(_, choice)| choice.bytes <= workspace.bytes)
        .min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost).then(a.bytes.cmp(&b.bytes)));
    match cheapest {
        Some((choice, size)) => Ok(WorkspacePlacement { choice, bytes: size.bytes, ..workspace }),
        None => {
            mismatch(format!("a workspace of node {} has no size that fits", quoted(node.name())))
        }
    }
}

fn mismatch<T>(reason: String) -> Result<T> {
    Err(Error::PlanMismatch { reason })
}
