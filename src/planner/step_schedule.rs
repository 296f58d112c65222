//! Schedules: the node or fused group of each step.

use alloc::rc::Rc;
use alloc::{borrow::ToOwned as _, vec, vec::Vec};
use core::ops::Deref;

use super::strip_overlaps::strip_overlaps;
use crate::base::{Error, NodeId, Result, Step};
use crate::graph::Graph;
use crate::liveness::{Lifetimes, Liveness, LivenessOptions};
use crate::plan::Strips;

/// The graph of a schedule: the caller's graph, or a shared derived graph.
#[derive(Clone, Debug)]
pub(super) enum ScheduleGraph<'g> {
    /// The caller's.
    Given(&'g Graph),
    /// A derived graph in which groups are single nodes, or values are in other spaces.
    Made(Rc<Graph>),
}

impl ScheduleGraph<'_> {
    /// Returns a graph that was made for schedules.
    pub(super) fn made(graph: Graph) -> Self {
        Self::Made(Rc::new(graph))
    }
}

impl Deref for ScheduleGraph<'_> {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        match self {
            Self::Given(graph) => graph,
            Self::Made(graph) => graph,
        }
    }
}

/// A graph with fused groups and an order.
#[derive(Clone, Debug)]
pub(super) struct StepSchedule<'g> {
    /// The graph, with groups as single nodes.
    pub(super) graph: ScheduleGraph<'g>,
    /// The node order.
    pub(super) order: Vec<NodeId>,
    /// For each node: the nodes that the node stands for; `None` if each node stands for itself.
    members: Option<Rc<Vec<Vec<NodeId>>>>,
    /// Whether the order is the graph's own.
    is_given: bool,
    /// The times at which several workers run the steps, if there are several workers.
    table: Option<Rc<WorkerTimes>>,
}

/// The times at which several workers run the steps of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkerTimes {
    /// Time by step.
    pub(super) costs: Vec<u64>,
    /// Start time by step; ascending.
    pub(super) starts: Vec<u64>,
    /// For each step: the first step that starts after the step has ended.
    pub(super) until: Vec<Step>,
}

impl WorkerTimes {
    /// Returns the time table for steps in start order.
    pub(super) fn new(costs: Vec<u64>, starts: Vec<u64>) -> Self {
        let end = |(&start, &cost): (&u64, &u64)| start.saturating_add(cost);
        let until = starts.iter().zip(&costs).map(end);
        let until = until.map(|end| Step::at(starts.partition_point(|&start| start < end)));
        let until = until.collect();
        Self { costs, starts, until }
    }

    /// Returns the time at which the last step ends.
    pub(super) fn span(&self) -> u64 {
        let ends = self.starts.iter().zip(&self.costs);
        ends.map(|(&start, &cost)| start.saturating_add(cost)).max().unwrap_or(0)
    }
}

impl<'g> StepSchedule<'g> {
    /// Returns the unchanged graph, in its own order.
    pub(super) fn given(graph: &'g Graph) -> Self {
        Self {
            graph: ScheduleGraph::Given(graph),
            order: graph.order().to_vec(),
            members: None,
            is_given: true,
            table: None,
        }
    }

    /// Returns the schedule that runs `steps`.
    pub(super) fn of(graph: &'g Graph, steps: &[Vec<NodeId>]) -> Result<Self> {
        Self::in_strips(graph, steps, &[], false)
    }

    /// Returns the schedule that runs `steps`, those that end with a node in `strips` strip by
    /// strip. If outputs of such steps may `overlap` inputs, all workspaces are line buffers.
    pub(super) fn in_strips(
        graph: &'g Graph,
        steps: &[Vec<NodeId>],
        strips: &[(NodeId, Strips)],
        overlap: bool,
    ) -> Result<Self> {
        let refuse =
            |reason: &str| Err(Error::InvalidOption { option: "steps", reason: reason.to_owned() });
        let mut order: Vec<NodeId> = steps.iter().filter_map(|step| step.last().copied()).collect();
        if order.len() != steps.len() {
            return refuse("a step names no node");
        }
        let mut members = None;
        let mut scheduled = ScheduleGraph::Given(graph);
        if steps.iter().any(|step| step.len() > 1) {
            let ends: Vec<NodeId> = strips.iter().map(|&(node, _)| node).collect();
            let mut grouped = graph.grouped_in_strips(steps, &ends)?;
            for (last, strips) in strips.iter().filter(|_| overlap) {
                let is_last = |nodes: &Vec<NodeId>| nodes.last() == Some(last);
                let Some(index) = grouped.members.iter().position(is_last) else { continue };
                let (node, members) = (NodeId::new(index), &grouped.members[index]);
                let inputs: Vec<_> = grouped.graph.node(node).bytes_read().collect();
                let overlaps = strip_overlaps(graph, members, strips, &inputs);
                grouped.graph.let_overlap(node, overlaps);
            }
            let mut new_id = vec![None; graph.nodes().len()];
            for (index, nodes) in grouped.members.iter().enumerate() {
                let last = nodes.last().expect("a node stands for at least one");
                new_id[last.index()] = Some(NodeId::new(index));
            }
            for id in &mut order {
                match new_id.get(id.index()).copied().flatten() {
                    Some(new) => *id = new,
                    None => return refuse("a node is in two steps"),
                }
            }
            members = Some(Rc::new(grouped.members));
            scheduled = ScheduleGraph::made(grouped.graph);
        }
        if !scheduled.is_topological(&order) {
            return refuse("they do not run every node once, after what it depends on");
        }
        Ok(Self { graph: scheduled, order, members, is_given: false, table: None })
    }

    /// Returns the schedule in which `groups` run as one each, in the graph's own order.
    pub(super) fn grouped(graph: &'g Graph, groups: &[Vec<NodeId>]) -> Result<Self> {
        if groups.is_empty() {
            return Ok(Self::given(graph));
        }
        let grouped = graph.grouped(groups)?;
        let order = grouped.graph.order().to_vec();
        Ok(Self {
            graph: ScheduleGraph::made(grouped.graph),
            order,
            members: Some(Rc::new(grouped.members)),
            is_given: false,
            table: None,
        })
    }

    /// Returns the same steps in another order.
    pub(super) fn reordered(&self, order: Vec<NodeId>) -> Self {
        let (graph, members) = (self.graph.clone(), self.members.clone());
        Self { graph, order, members, is_given: false, table: None }
    }

    /// Returns the same steps with the times of several workers. Steps in the order of the schedule
    /// remain given steps.
    pub(super) fn timed(&self, order: Vec<NodeId>, table: WorkerTimes) -> Self {
        let is_given = self.is_given && order == self.order;
        Self { is_given, table: Some(Rc::new(table)), ..self.reordered(order) }
    }

    /// Returns the times at which several workers run the steps, if there are several workers.
    pub(super) fn table(&self) -> Option<&WorkerTimes> {
        self.table.as_deref()
    }

    /// Returns the schedule's buffers, without overlaps and workspaces.
    pub(super) fn liveness(&self, options: LivenessOptions) -> Result<Liveness> {
        self.liveness_of(&self.graph, options, &[])
    }

    /// Returns the buffers for a graph with the schedule's steps, without workspaces. Outputs of
    /// the nodes `overlapped` overlap an input where possible.
    pub(super) fn liveness_of(
        &self,
        graph: &Graph,
        options: LivenessOptions,
        overlapped: &[NodeId],
    ) -> Result<Liveness> {
        let (order, keeps_inputs) = (&self.order, options.keeps_inputs());
        let lifetimes = match &self.table {
            Some(table) => Lifetimes::in_timetable(graph, order, &table.until, keeps_inputs),
            None => Lifetimes::new(graph, order, keeps_inputs),
        };
        Liveness::with_lifetimes(graph, order, lifetimes, options, overlapped)
    }

    /// Returns whether this is the unchanged graph, in its own order.
    pub(super) const fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns the nodes that `node` stands for, in order.
    pub(super) fn members<'a>(&'a self, node: &'a NodeId) -> &'a [NodeId] {
        match &self.members {
            Some(members) => &members[node.index()],
            None => core::slice::from_ref(node),
        }
    }
}
