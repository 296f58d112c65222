//! Room for workspaces with other sizes.
//!
//! The scratch memory of a kernel may grow where operands shrink, for example with uneven blocks.
//! So a workspace without a place, or with too small a place, goes where the step leaves room.

use alloc::{format, vec::Vec};

use crate::base::{Alignment, Error, NodeId, Result, SpaceId, Step};
use crate::graph::{Graph, Workspace};
use crate::plan::{Plan, ShareRule, WorkspacePlacement, WorkspacePolicy};

impl Plan {
    /// Gives each workspace the cheapest size that fits into the planned bytes; else the smallest
    /// size, in the lowest room of the step.
    pub(super) fn refit_workspaces(&mut self, graph: &Graph) -> Result<()> {
        if self.options.workspace == WorkspacePolicy::None {
            return Ok(());
        }
        let mut homeless = Vec::new();
        let mut placements = Vec::new();
        let repeated = self.repeated();
        for index in 0..graph.nodes().len() {
            let id = NodeId::new(index);
            // A node in several steps has scratch memory in the step that the node ends.
            let ends = self.steps[Step::new(self.step_of[index]).index()].node == u32::from(id);
            if !ends && repeated.binary_search_by_key(&id, |&(node, _)| node).is_ok() {
                continue;
            }
            for (slot, workspace) in (0_u32..).zip(self.scratch(graph, id)) {
                let known = self.workspaces_of(id).iter().find(|known| known.slot == slot);
                let (placement, fits) = refitted(id, slot, workspace, known);
                if !fits {
                    homeless.push((self.step_of[index], placements.len()));
                }
                placements.push(placement);
            }
        }
        self.workspaces = placements;
        homeless.sort_unstable();
        let mut born: Vec<_> = (0..self.placements.len()).collect();
        born.sort_unstable_by_key(|&index| self.placements[index].live);
        let mut born = born.into_iter().peekable();
        let mut alive: Vec<usize> = Vec::new();
        for (position, &(step, index)) in homeless.iter().enumerate() {
            while let Some(value) = born.next_if(|&value| self.placements[value].live[0] <= step) {
                alive.push(value);
            }
            alive.retain(|&value| self.placements[value].live[1] > step);
            let waiting = &homeless[position..];
            let waiting = &waiting[..waiting.partition_point(|&(other, _)| other == step)];
            self.workspaces[index].offset = self.room(graph, index, step, &alive, waiting)?;
        }
        Ok(())
    }

    /// Returns the workspaces that `node` needs in the way in which the plan runs the node.
    fn scratch<'g>(&self, graph: &'g Graph, node: NodeId) -> &'g [Workspace] {
        let step = &self.steps[Step::new(self.step_of[node.index()]).index()];
        let overlaps = step.shares.iter().any(|share| share.rule == ShareRule::Overlap);
        if overlaps && NodeId::from(step.node) != node {
            return &[];
        }
        graph.node(node).effects().scratch(overlaps)
    }

    /// Returns the lowest offset at which a workspace overlaps no value in `alive` and no other
    /// workspace in the step, except those in `waiting`.
    fn room(
        &self,
        graph: &Graph,
        index: usize,
        step: u32,
        alive: &[usize],
        waiting: &[(u32, usize)],
    ) -> Result<u64> {
        let placement = &self.workspaces[index];
        let space = SpaceId::from(placement.space).index();
        let Some(alignment) = self.spaces.get(space).map(|space| space.alignment) else {
            return super::mismatch("a workspace is in a space that is not there".into());
        };
        let slot = usize::try_from(placement.slot).expect("slots are few");
        let own = self.scratch(graph, NodeId::from(placement.node))[slot].alignment.bytes();
        let alignment = alignment.max(self.options.alignment).max(own);
        let alignment = Alignment::new(alignment)?;
        let values = alive.iter().map(|&value| {
            let value = &self.placements[value];
            (value.space, value.offset, value.bytes)
        });
        let nodes = &self.steps[Step::new(step).index()];
        let others = nodes.fused.iter().chain([&nodes.node]).flat_map(|&node| {
            let others = self.workspaces_of(NodeId::from(node)).iter();
            others.filter(move |other| {
                let key = (other.node, other.slot);
                !waiting.iter().any(|&(_, waits)| {
                    key == (self.workspaces[waits].node, self.workspaces[waits].slot)
                })
            })
        });
        let others = others.map(|other| (other.space, other.offset, other.bytes));
        let mut taken: Vec<(u64, u64)> = values
            .chain(others)
            .filter(|&(space, _, bytes)| space == placement.space && bytes > 0)
            .map(|(_, offset, bytes)| (offset, offset.saturating_add(bytes)))
            .collect();
        taken.sort_unstable();
        let mut free = 0;
        for (start, end) in taken {
            if free <= start && placement.bytes <= start - free {
                break;
            }
            free = alignment.round_up(end.max(free)).ok_or_else(|| Error::SizeOverflow {
                what: format!("a workspace of node {}", placement.node),
            })?;
        }
        Ok(free)
    }
}

/// Returns a workspace with the cheapest size that fits into the planned place; else with the
/// smallest size, and that a place is missing.
fn refitted(
    node: NodeId,
    slot: u32,
    workspace: &Workspace,
    known: Option<&WorkspacePlacement>,
) -> (WorkspacePlacement, bool) {
    let (space, offset, room) =
        known.map_or((0, 0, None), |known| (known.space, known.offset, Some(known.bytes)));
    let choices = || (0_u32..).zip(&workspace.choices);
    let cheapest = choices()
        .filter(|(_, choice)| room.is_some_and(|room| choice.bytes <= room))
        .min_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost).then(a.bytes.cmp(&b.bytes)));
    let smallest = || choices().min_by_key(|(_, choice)| choice.bytes);
    let (choice, size) = cheapest.or_else(smallest).expect("a workspace has a choice");
    let bytes = size.bytes;
    (
        WorkspacePlacement { node: node.into(), slot, choice, space, offset, bytes },
        cheapest.is_some(),
    )
}
