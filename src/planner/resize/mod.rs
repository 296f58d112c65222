//! Uses the offsets of a plan for a graph with the same nodes and values of other sizes.
//!
//! A model with a symbolic dimension has one graph per bound number. Most such graphs differ in
//! sizes alone; then values that are apart at the largest sizes are apart at smaller sizes. The
//! sharing rules can depend on sizes, too, so nothing is assumed: the checker decides.

mod workspaces;

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::{string::String, vec, vec::Vec};

use crate::base::{Alignment, Error, NodeId, Result, SpaceId, ValueId, quoted};
use crate::graph::{Graph, Whole};
use crate::pack::Status;
use crate::plan::{Plan, PlanStep, Share, ShareRule, SpacePlan};

impl Plan {
    /// Returns a plan of `graph` that has the offsets of this plan.
    ///
    /// The graph has the nodes and values of the planned graph, with other sizes. Each workspace
    /// gets the cheapest size that fits into the planned bytes, or moves to where its step leaves
    /// room. The result is checked. The lower bound is the bytes that the values hold at one step.
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
    /// - [`PlanMismatch`](Error::PlanMismatch) if the graph has other nodes or values.
    /// - As [`check`](Self::check), if the offsets do not fit these sizes.
    pub fn resized(&self, graph: &Graph) -> Result<Self> {
        let same = self.value_count() == graph.values().len()
            && self.step_of.len() == graph.nodes().len()
            && self.arenas().len() == graph.spaces().len();
        if !same {
            return mismatch("the graph has other nodes, values or spaces".into());
        }
        let alignment = Alignment::new(self.options.alignment)?;
        // No order was searched for these sizes.
        let mut plan = Self { digest: graph.digest(), search: None, ..self.clone() };
        plan.naive_bytes = graph.naive_bytes(alignment);
        for placement in &mut plan.placements {
            placement.bytes = graph.value(ValueId::from(placement.value)).bytes();
        }
        plan.follow_views(graph)?;
        plan.refit_workspaces(graph)?;
        let ends = plan.ends(alignment)?;
        for (space, end) in plan.spaces.iter_mut().zip(ends) {
            match space.caller {
                None => space.arena_bytes = end,
                Some(caller) => space.arena_bytes = graph.value(ValueId::from(caller)).bytes(),
            }
            space.claim(if space.caller.is_none() { 0 } else { space.arena_bytes });
        }
        plan.check(graph)?;
        plan.claim_live_bytes();
        Ok(plan)
    }

    /// Lowers the claims of a plan to the bytes that are live at once, which the plan proves.
    ///
    /// Workspaces count nothing, for their sizes are a choice.
    fn claim_live_bytes(&mut self) {
        let workspaces = core::mem::take(&mut self.workspaces);
        for space in 0..self.arenas().len() {
            let live = self.peak(SpaceId::new(space)).live_bytes;
            self.spaces[space].claim(live);
        }
        self.workspaces = workspaces;
    }

    /// Moves the values that share bytes to the start of views at the new sizes.
    ///
    /// Of the values that share bytes, the lowest value stays. The others keep the distance from
    /// the lowest value, except views, whose distance the view gives.
    fn follow_views(&mut self, graph: &Graph) -> Result<()> {
        let mut neighbors: BTreeMap<u32, Vec<(u32, i128)>> = BTreeMap::new();
        for step in &self.steps {
            for share in &step.shares {
                let ends =
                    operand(&step.inputs, share.input).zip(operand(&step.outputs, share.output));
                let Some((input, output)) = ends else { continue };
                let Some(distance) = self.distance(graph, step, share, input, output) else {
                    continue;
                };
                neighbors.entry(input).or_default().push((output, distance));
                neighbors.entry(output).or_default().push((input, -distance));
            }
        }
        let mut lowest: Vec<(u64, u32)> = neighbors
            .keys()
            .filter_map(|&value| Some((self.placement(ValueId::from(value))?.offset, value)))
            .collect();
        lowest.sort_unstable();
        let mut moved: BTreeMap<u32, i128> = BTreeMap::new();
        for (offset, value) in lowest {
            if moved.contains_key(&value) {
                continue;
            }
            moved.insert(value, offset.into());
            let mut pending = vec![value];
            while let Some(value) = pending.pop() {
                let from = moved[&value];
                for &(next, distance) in neighbors.get(&value).into_iter().flatten() {
                    if let Entry::Vacant(free) = moved.entry(next) {
                        free.insert(from + distance);
                        pending.push(next);
                    }
                }
            }
        }
        for placement in &mut self.placements {
            if let Some(&offset) = moved.get(&placement.value) {
                placement.offset = u64::try_from(offset)
                    .map_err(|_| Error::SizeOverflow { what: quoted(&placement.name) })?;
            }
        }
        Ok(())
    }

    /// Returns the distance from the start of the input to the start of the output in a share.
    fn distance(
        &self,
        graph: &Graph,
        step: &PlanStep,
        share: &Share,
        input: u32,
        output: u32,
    ) -> Option<i128> {
        // Fused nodes have operands of their own, and no views.
        let views = match (share.rule, step.fused.is_empty()) {
            (ShareRule::View, true) => &*graph.node(NodeId::from(step.node)).effects().views,
            _ => &[],
        };
        let is_at = |position: u32, expected| usize::try_from(position) == Ok(expected);
        let view = views
            .iter()
            .find(|view| is_at(share.input, view.input) && is_at(share.output, view.output));
        if let Some(view) = view {
            return Some(match view.whole {
                Whole::Input => view.offset.into(),
                Whole::Output => -i128::from(view.offset),
            });
        }
        let offset = |value| Some(self.placement(ValueId::from(value))?.offset);
        Some(i128::from(offset(output)?) - i128::from(offset(input)?))
    }

    /// Returns, per space, the byte after the last that is used.
    fn ends(&self, alignment: Alignment) -> Result<Vec<u64>> {
        let mut ends = vec![0; self.spaces.len()];
        let values = self.placements.iter().map(|value| (value.space, value.offset, value.bytes));
        let scratch = self.workspaces.iter().map(|work| (work.space, work.offset, work.bytes));
        for (space, offset, bytes) in values.chain(scratch).filter(|&(_, _, bytes)| bytes > 0) {
            let end = offset.checked_add(bytes).and_then(|end| alignment.round_up(end));
            let end = end.ok_or_else(|| Error::SizeOverflow { what: quoted(&self.model) })?;
            match ends.get_mut(SpaceId::from(space).index()) {
                Some(known) => *known = end.max(*known),
                None => return mismatch("it uses a space that it does not have".into()),
            }
        }
        Ok(ends)
    }
}

impl SpacePlan {
    /// Records a lower bound, and the consequence for the arena bytes.
    fn claim(&mut self, lower_bound: u64) {
        self.lower_bound = lower_bound.min(self.arena_bytes);
        self.status = Status::of(self.arena_bytes, self.lower_bound, self.capacity);
    }
}

/// Returns the operand at a position, if any.
fn operand(operands: &[Option<u32>], position: u32) -> Option<u32> {
    operands.get(usize::try_from(position).ok()?).copied().flatten()
}

fn mismatch<T>(reason: String) -> Result<T> {
    Err(Error::PlanMismatch { reason })
}
