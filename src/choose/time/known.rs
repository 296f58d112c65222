//! Costs of steps, each queried once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{rc::Rc, vec, vec::Vec};
use core::cell::RefCell;

use hashbrown::HashMap;

use super::{Costs, StepCost, StepForm};
use crate::base::{Alignment, NodeId, Result};
use crate::choose::Way;
use crate::graph::{Graph, Workspace};
use crate::plan::{Plan, Strips};

/// A step's nodes, whether the output is staged, and the strips.
type Key = (Vec<NodeId>, bool, Option<Strips>);

/// A runner's costs, with the answers so far.
#[derive(Debug)]
pub(crate) struct KnownCosts<'a> {
    pub(crate) runner: &'a dyn Costs,
    steps: RefCell<HashMap<Key, Option<Rc<StepCost>>>>,
}

impl<'a> KnownCosts<'a> {
    pub(crate) fn new(runner: &'a dyn Costs) -> Self {
        Self { runner, steps: RefCell::default() }
    }

    /// Returns the cost of a step that continues no other step.
    pub(crate) fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<Rc<StepCost>> {
        let strips = if let StepForm::Strips(strips) = form { Some(strips.clone()) } else { None };
        let key = (nodes.to_vec(), matches!(form, StepForm::Staged), strips);
        if let Some(known) = self.steps.borrow().get(&key) {
            return known.clone();
        }
        let found = self.runner.step(nodes, form).map(Rc::new);
        self.steps.borrow_mut().insert(key, found.clone());
        found
    }

    /// Returns the least time of one call in which each node continues the node before, within `room`
    /// bytes of scratch memory; `None` if the runner has no kernel for that.
    pub(crate) fn continued_within(&self, nodes: &[NodeId], room: u64) -> Option<u64> {
        let cost = self.runner.step(nodes, StepForm::Continued)?;
        cost.ways.iter().filter(|way| way.bytes <= room).map(|way| way.time).min()
    }

    /// Returns the ways to run a step, scratch memory rounded up to the alignment. A step without
    /// kernels takes no time.
    pub(super) fn ways(
        &self,
        nodes: &[NodeId],
        form: StepForm<'_>,
        alignment: Alignment,
    ) -> Vec<Way> {
        let round = |way: &Way| Way { bytes: padded(way.bytes, alignment), time: way.time };
        let cost = self.step(nodes, form);
        let ways: Vec<Way> = cost.iter().flat_map(|cost| &cost.ways).map(round).collect();
        if ways.is_empty() { vec![Way { bytes: 0, time: 0 }] } else { ways }
    }

    /// Returns `graph` with the steps' scratch memory. The steps that end with a node in `staged`
    /// may have an output over an input at a distance.
    pub(crate) fn declared(
        &self,
        graph: &Graph,
        steps: &[Vec<NodeId>],
        staged: &[NodeId],
        strips: &[(NodeId, Strips)],
    ) -> Result<Graph> {
        let strips: BTreeMap<NodeId, &Strips> =
            strips.iter().map(|(last, strips)| (*last, strips)).collect();
        let staged: BTreeSet<NodeId> = staged.iter().copied().collect();
        let mut workspaces: Vec<(NodeId, Vec<Workspace>)> = Vec::new();
        let mut staging = Vec::new();
        for nodes in steps {
            let Some(&last) = nodes.last() else { continue };
            if nodes.iter().any(|node| node.index() >= graph.nodes().len()) {
                continue; // The graph refuses the step.
            }
            let form = strips.get(&last).map_or(StepForm::Whole, |strips| StepForm::Strips(strips));
            let own = self.step(nodes, form);
            let own = own.map_or_else(Vec::new, |cost| cost.workspaces.clone());
            if !own.is_empty() {
                workspaces.push((last, own));
            }
            if staged.contains(&last)
                && let Some(cost) = self.step(nodes, StepForm::Staged)
            {
                staging.push((last, cost.workspaces.clone()));
            }
        }
        graph.with_scratch_of(workspaces, staging)
    }

    /// Returns the graph for checking `plan`, whose steps are those of `graph`.
    pub(crate) fn declared_for(&self, graph: &Graph, plan: &Plan) -> Result<Graph> {
        let steps: Vec<Vec<NodeId>> =
            plan.steps().iter().map(|step| step.nodes().collect()).collect();
        self.declared(graph, &steps, &plan.overlapped(), &plan.strips())
    }
}

/// Returns `graph` with the scratch memory that a runner declares for `steps`: the graph for
/// [checking](Plan::check) a plan with these steps.
///
/// `staged` has the last nodes of steps whose output may be over an input at a distance, and
/// `strips` the strips of steps, by last node.
///
/// # Errors
///
/// [`InvalidEffect`](crate::Error::InvalidEffect) if a step has a scratch buffer without sizes.
pub fn declared(
    graph: &Graph,
    costs: &dyn Costs,
    steps: &[Vec<NodeId>],
    staged: &[NodeId],
    strips: &[(NodeId, Strips)],
) -> Result<Graph> {
    KnownCosts::new(costs).declared(graph, steps, staged, strips)
}

/// Returns a size rounded up to a multiple of the alignment.
pub(super) fn padded(bytes: u64, alignment: Alignment) -> u64 {
    alignment.round_up(bytes).unwrap_or(u64::MAX)
}
