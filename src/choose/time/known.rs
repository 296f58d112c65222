//! Costs of steps, each queried once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{rc::Rc, vec, vec::Vec};
use core::cell::RefCell;

use super::{Costs, StepCost, StepForm};
use crate::base::{Alignment, NodeId, Result};
use crate::choose::Way;
use crate::graph::{Graph, Workspace};
use crate::plan::{Plan, Strips};

/// A step's nodes, how they run strip by strip, and the cost.
type CostInStrips = (Vec<NodeId>, Strips, Option<Rc<StepCost>>);
/// A step's nodes, and whether the output is staged.
type Key = (Vec<NodeId>, bool);

/// A runner's costs, with the answers so far.
#[derive(Debug)]
pub(crate) struct KnownCosts<'a> {
    pub(crate) runner: &'a dyn Costs,
    steps: RefCell<BTreeMap<Key, Option<Rc<StepCost>>>>,
    in_strips: RefCell<Vec<CostInStrips>>,
}

impl<'a> KnownCosts<'a> {
    pub(crate) const fn new(runner: &'a dyn Costs) -> Self {
        let in_strips = RefCell::new(Vec::new());
        Self { runner, steps: RefCell::new(BTreeMap::new()), in_strips }
    }

    /// Returns the cost of a step that runs piece by piece.
    pub(super) fn step(&self, nodes: &[NodeId], staged: bool) -> Option<Rc<StepCost>> {
        let key = (nodes.to_vec(), staged);
        if let Some(known) = self.steps.borrow().get(&key) {
            return known.clone();
        }
        let form = if staged { StepForm::Staged } else { StepForm::Whole };
        let found = self.runner.step(nodes, form).map(Rc::new);
        self.steps.borrow_mut().insert(key, found.clone());
        found
    }

    /// Returns the cost of a step that runs strip by strip.
    fn strips(&self, nodes: &[NodeId], strips: &Strips) -> Option<Rc<StepCost>> {
        let is_known = |row: &&CostInStrips| row.0 == nodes && row.1 == *strips;
        if let Some((_, _, known)) = self.in_strips.borrow().iter().find(is_known) {
            return known.clone();
        }
        let found = self.runner.step(nodes, StepForm::Strips(strips)).map(Rc::new);
        self.in_strips.borrow_mut().push((nodes.to_vec(), strips.clone(), found.clone()));
        found
    }

    /// Returns whether the runner has kernels for a step that runs strip by strip.
    pub(crate) fn run_in_strips(&self, nodes: &[NodeId], strips: &Strips) -> bool {
        self.strips(nodes, strips).is_some()
    }

    /// Returns the least time of one call in which each node continues the node before, within `room`
    /// bytes of scratch memory; `None` if the runner has no kernel for that.
    pub(crate) fn continued_within(&self, nodes: &[NodeId], room: u64) -> Option<u64> {
        let cost = self.runner.step(nodes, StepForm::Continued)?;
        cost.ways.iter().filter(|way| way.bytes <= room).map(|way| way.time).min()
    }

    /// Returns the ways to run a step piece by piece, scratch memory rounded up to the alignment.
    pub(super) fn ways(&self, nodes: &[NodeId], staged: bool, alignment: Alignment) -> Vec<Way> {
        rounded(self.step(nodes, staged).as_deref(), alignment)
    }

    /// Returns the ways to run a step strip by strip, likewise.
    pub(super) fn ways_in_strips(
        &self,
        nodes: &[NodeId],
        strips: &Strips,
        alignment: Alignment,
    ) -> Vec<Way> {
        rounded(self.strips(nodes, strips).as_deref(), alignment)
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
            let own = match strips.get(&last) {
                Some(strips) => self.strips(nodes, strips),
                None => self.step(nodes, false),
            };
            let own = own.map_or_else(Vec::new, |cost| cost.workspaces.clone());
            if !own.is_empty() {
                workspaces.push((last, own));
            }
            if staged.contains(&last)
                && let Some(cost) = self.step(nodes, true)
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

/// Returns a step's ways with rounded scratch memory; a step without kernels takes no time.
fn rounded(cost: Option<&StepCost>, alignment: Alignment) -> Vec<Way> {
    let round = |way: &Way| Way { bytes: padded(way.bytes, alignment), time: way.time };
    let ways: Vec<Way> = cost.map_or_else(Vec::new, |cost| cost.ways.iter().map(round).collect());
    if ways.is_empty() { vec![Way { bytes: 0, time: 0 }] } else { ways }
}

/// Returns a size rounded up to a multiple of the alignment.
pub(super) fn padded(bytes: u64, alignment: Alignment) -> u64 {
    alignment.round_up(bytes).unwrap_or(u64::MAX)
}
