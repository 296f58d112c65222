//! Assignments by ascending cost, until an assignment can be packed.
//!
//! The table of the sweep contains the exact remaining cost of each state, so a best-first search
//! (A*) meets assignments in ascending order of cost. A set of items that cannot be packed is
//! reduced to a few items in conflict, a nogood, and never tried in any assignment again.

use alloc::collections::BinaryHeap;
use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use super::Floor;
use super::packer::{FitVerdict, Packer};
use super::space_model::{Crowd, Picks, SpaceModel};
use super::sweep::SweepTable;
use crate::base::Result;

/// Most buffers in a conflict that is reduced.
const LARGEST_CONFLICT: usize = 48;

/// The search's result.
#[derive(Debug, Default)]
pub(super) struct FoundAssignment {
    pub(super) best: Option<Picks>,
    /// No assignment costs less: proven.
    pub(super) lower_bound: u64,
    /// Whether it is proven that no assignment exists.
    pub(super) exhausted: bool,
    /// Items that no state had room for.
    pub(super) dead: Option<(Floor, Crowd)>,
}

impl FoundAssignment {
    /// Returns an empty result: no state had room for `crowd`.
    pub(super) fn dead(crowd: Crowd) -> Self {
        Self { exhausted: true, dead: Some((Floor::History, crowd)), ..Self::default() }
    }
}

/// An assignment of the first items.
struct SearchNode {
    parent: usize,
    state: u32,
    depth: usize,
    pick: u8,
    cost: u64,
}

/// Items that cannot all be in the same space.
struct SpaceConflict {
    space: usize,
    /// By birth.
    items: Vec<usize>,
}

/// Returns the cheapest assignment for which every space can be packed.
pub(super) fn cheapest(
    model: &SpaceModel<'_>,
    table: &SweepTable,
    packer: &mut Packer<'_>,
) -> Result<FoundAssignment> {
    let count = model.items.len();
    let base = model.cost_of(&Picks::new());
    let mut nodes = vec![SearchNode { parent: 0, state: 0, depth: 0, pick: 0, cost: base }];
    let mut open =
        BinaryHeap::from([(Reverse(base + table.ahead(0, 0)), 0_usize, Reverse(0_usize))]);
    let mut conflicts: Vec<Vec<SpaceConflict>> = (0..count).map(|_| Vec::new()).collect();
    let mut found = FoundAssignment::default();
    // Once an assignment is skipped without proof, higher costs prove nothing.
    let mut proven = true;
    let calls = packer.calls;
    while let Some((Reverse(total), depth, Reverse(id))) = open.pop() {
        if proven {
            found.lower_bound = total;
        }
        let depth_of_search = packer.work.depth;
        packer.work.spend(1 + depth);
        if nodes.len() > depth_of_search.nodes
            || packer.calls - calls > depth_of_search.packings
            || packer.work.is_over()
        {
            return Ok(found);
        }
        if depth < count {
            for pick in 0..model.items[depth].options.len() {
                let pick = u8::try_from(pick).expect("there are at most 64 spaces");
                let Some(state) = table.after(depth, nodes[id].state, pick) else { continue };
                let space = model.picked(depth, pick).space;
                let mut against =
                    conflicts[depth].iter().filter(|conflict| conflict.space == space);
                if against.any(|conflict| meets(model, &nodes, id, conflict)) {
                    continue;
                }
                let cost = nodes[id].cost + model.picked(depth, pick).cost;
                let total = cost + table.ahead(depth + 1, state);
                open.push((Reverse(total), depth + 1, Reverse(nodes.len())));
                nodes.push(SearchNode { parent: id, state, depth: depth + 1, pick, cost });
            }
            continue;
        }
        let picks = path(&nodes, id);
        match first_conflict(model, &picks, packer)? {
            None => {
                found.best = Some(picks);
                return Ok(found);
            }
            Some((conflict, verdict)) => {
                proven &= verdict == FitVerdict::Excluded;
                let last = *conflict.items.last().expect("nothing fits any space");
                conflicts[last].push(conflict);
            }
        }
    }
    found.exhausted = proven;
    Ok(found)
}

/// Returns the picks along the way to a node.
fn path(nodes: &[SearchNode], mut id: usize) -> Picks {
    let mut picks = Picks::with_capacity(nodes[id].depth);
    while nodes[id].depth > 0 {
        picks.push(nodes[id].pick);
        id = nodes[id].parent;
    }
    picks.reverse();
    picks
}

/// Returns whether the path to a node puts all but the last of a conflict's items into the
/// conflict's space.
fn meets(
    model: &SpaceModel<'_>,
    nodes: &[SearchNode],
    mut id: usize,
    conflict: &SpaceConflict,
) -> bool {
    let (_, others) = conflict.items.split_last().expect("nothing fits any space");
    others.iter().rev().all(|&item| {
        while nodes[id].depth > item + 1 {
            id = nodes[id].parent;
        }
        model.picked(item, nodes[id].pick).space == conflict.space
    })
}

/// Returns items that do not fit their picked space together, and whether this is proven.
fn first_conflict(
    model: &SpaceModel<'_>,
    picks: &Picks,
    packer: &mut Packer<'_>,
) -> Result<Option<(SpaceConflict, FitVerdict)>> {
    for space in 0..model.capacities.len() {
        let mut members = model.members_of(picks, space);
        let mut verdict = packer.verdict(space, &members)?;
        if verdict == FitVerdict::Fits {
            continue;
        }
        if verdict == FitVerdict::Excluded && members.len() <= LARGEST_CONFLICT {
            let mut at = 0;
            while at < members.len() {
                let mut fewer = members.clone();
                fewer.remove(at);
                match packer.verdict(space, &fewer)? {
                    FitVerdict::Excluded => members = fewer,
                    FitVerdict::Fits | FitVerdict::Unknown => at += 1,
                }
            }
            verdict = FitVerdict::Excluded;
        }
        let items = (0..picks.len()).filter(|&item| members.contains(&model.items[item].buffer));
        return Ok(Some((SpaceConflict { space, items: items.collect() }, verdict)));
    }
    Ok(None)
}
