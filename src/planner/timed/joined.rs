//! Steps that join the step before, where a plan has put each result over the operand.
//!
//! Such a node, as a function behind a convolution, saves no bytes in a group, so no technique
//! groups the node. A group saves a call, and all nodes then go over memory once.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use super::maker::{Finish, Maker, Timed, steps_of};
use crate::base::{Error, NodeId, Result, ValueId};
use crate::choose::time::scratch_by_node;
use crate::plan::{Plan, PlanStep, Technique};

/// The place of a node that several steps run.
const SEVERAL: usize = usize::MAX;

/// Returns the plan whose steps join the step before wherever that takes no more time and bytes, in
/// at most `limit` nanoseconds; `None` if there is no such plan.
pub(super) fn joined(maker: &Maker<'_, '_>, timed: &Timed, limit: u64) -> Result<Option<Timed>> {
    let plan = &timed.plan;
    let context = maker.context;
    if context.memories.is_some() || !context.options.optimize.contains(Technique::Fusion) {
        return Ok(None);
    }
    let steps = Joiner::new(maker, plan).joined();
    // The time of each part is rounded.
    let rounded = u64::try_from(plan.steps().len() - steps.len()).unwrap_or(u64::MAX);
    if rounded == 0 {
        return Ok(None);
    }
    let finish = Finish {
        steps: Some(steps),
        overlapping: Some(plan.overlapped()),
        room: plan.arena_bytes(),
        ..maker.unchanged(&plan.strips())
    };
    let mut other = match maker.finish(&timed.draft, finish) {
        Ok(other) => other,
        // A runner may state costs of nodes that cannot run as one in this graph.
        Err(Error::InvalidGroup { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_small = other.plan.arena_bytes() <= plan.arena_bytes()
        && other.plan.lower_bound() <= plan.lower_bound();
    // An order of the joined steps is an order of the steps, with no fewer live bytes.
    other.plan.search = plan.search;
    let most = timed.time().saturating_add(rounded).min(limit.max(timed.time()));
    let is_fast = other.time() <= most;
    Ok((is_small && is_fast).then_some(other))
}

/// Joins the steps of a plan.
struct Joiner<'a> {
    maker: &'a Maker<'a, 'a>,
    plan: &'a Plan,
    steps: Vec<Vec<NodeId>>,
    /// The step that runs each node.
    place: Vec<usize>,
    /// The nodes that run before each node.
    before: Vec<Vec<NodeId>>,
    readers: Vec<Vec<NodeId>>,
    scratch: BTreeMap<u32, u64>,
}

impl<'a> Joiner<'a> {
    fn new(maker: &'a Maker<'a, 'a>, plan: &'a Plan) -> Self {
        let graph = maker.graph;
        let steps = steps_of(plan);
        let mut place = vec![SEVERAL; graph.nodes().len()];
        for (at, nodes) in steps.iter().enumerate() {
            for node in nodes {
                place[node.index()] = at;
            }
        }
        plan.repeated().iter().for_each(|(node, _)| place[node.index()] = SEVERAL);
        let ids = (0..graph.nodes().len()).map(NodeId::new);
        let mut before: Vec<Vec<_>> = ids.map(|id| graph.dependencies(id).collect()).collect();
        for (first, second) in graph.state_order() {
            before[second.index()].push(first);
        }
        let mut readers = graph.readers();
        // What the caller reads at the end is made in any case.
        graph.read_at_end().for_each(|value| readers[value.index()].clear());
        let scratch = scratch_by_node(plan, maker.alignment);
        Self { maker, plan, steps, place, before, readers, scratch }
    }

    fn joined(mut self) -> Vec<Vec<NodeId>> {
        for at in 0..self.steps.len() {
            let &[node] = self.steps[at].as_slice() else { continue };
            let Some(home) = self.home_of(at, node) else { continue };
            let mut together = self.steps[home].clone();
            together.push(node);
            if self.is_as_fast(home, node, &together) {
                self.steps[home] = together;
                self.steps[at].clear();
                self.place[node.index()] = home;
            }
        }
        self.steps.retain(|nodes| !nodes.is_empty());
        self.steps
    }

    /// Returns the step that makes the operand which the only node of a step writes over, if that
    /// node may run there.
    fn home_of(&self, at: usize, node: NodeId) -> Option<usize> {
        let is_whole = |step: &PlanStep| step.strips.is_none() && !step.is_overlapped();
        let graph = self.maker.graph;
        let own = graph.node(node);
        let mut made = own.produces();
        let (Some((_, result)), None) = (made.next(), made.next()) else { return None };
        let is_over = |value: &ValueId| {
            let place =
                |value| self.plan.placement(value).map(|it| (it.space, it.offset, it.bytes));
            place(*value).is_some() && place(*value) == place(result)
        };
        let operand = own.inputs().iter().flatten().copied().find(is_over)?;
        let producer = graph.producer(operand)?;
        let home = self.place[producer.index()];
        let is_ready = |&other: &NodeId| other == producer || self.place[other.index()] < home;
        let may_join = home < at
            && self.place[node.index()] == at
            && own.effects().views.is_empty()
            && self.readers[operand.index()] == [node]
            && self.steps[home].last() == Some(&producer)
            && self.before[node.index()].iter().all(is_ready)
            && [home, at].iter().all(|&step| is_whole(&self.plan.steps()[step]));
        may_join.then_some(home)
    }

    /// Returns whether a node takes no more time together with a step, in the same scratch memory.
    fn is_as_fast(&self, home: usize, node: NodeId, together: &[NodeId]) -> bool {
        let room = self.scratch.get(&self.plan.steps()[home].node).copied().unwrap_or(0);
        let time =
            |nodes: &[NodeId]| self.maker.costs.time_within(nodes, room, self.maker.alignment);
        let apart = time(&self.steps[home]).zip(time(&[node]));
        let apart = apart.map(|(first, second)| first.saturating_add(second));
        // Times are rounded.
        time(together)
            .zip(apart)
            .is_some_and(|(together, apart)| together <= apart.saturating_add(1))
    }
}
