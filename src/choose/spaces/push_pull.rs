//! Assignments for problems that are too large to search: push out, then pull in.

use alloc::{vec, vec::Vec};
use core::cmp::Reverse;
use core::ops::Range;

use super::exchange;
use super::packer::{FitVerdict, Packer};
use super::space_model::{Picks, SpaceModel};
use crate::base::Result;

/// Buffers that are packed in all for large problems.
const MOST_PACKED: usize = 40_000;

/// Returns an assignment that fits, if found: the best of a layout by exchanges, and of a local
/// search from `start`.
pub(super) fn improved(
    model: &SpaceModel<'_>,
    start: Option<&Picks>,
    packer: &mut Packer<'_>,
) -> Result<Option<Picks>> {
    let work = packer.work;
    let most = work.depth.improvements.min(1 + MOST_PACKED / model.items.len().max(1));
    let (half, last) = (packer.calls + most / 2, packer.calls + most);
    let mut best: Option<AssignmentDraft<'_>> = None;
    let neighbors = exchange::neighbors(model);
    if let Some(found) = exchange::best(model, &neighbors, work) {
        for space in 0..model.capacities.len() {
            packer.note(space, found.offsets_in(space));
        }
        best = Some(AssignmentDraft::new(model, found.picks));
    }
    if let Some(picks) = start {
        let mut draft = AssignmentDraft::new(model, picks.clone());
        let is_cheaper = |draft: &AssignmentDraft<'_>| {
            best.as_ref().is_none_or(|best| draft.cost() < best.cost())
        };
        // Each item that is pushed out only adds to the cost.
        if is_cheaper(&draft) && draft.push_out(packer, half)? && is_cheaper(&draft) {
            best = Some(draft);
        }
    }
    let Some(mut best) = best else { return Ok(None) };
    best.pull_in(packer, last)?;
    Ok(Some(best.picks))
}

/// An assignment that is being changed.
#[derive(Clone)]
struct AssignmentDraft<'a> {
    model: &'a SpaceModel<'a>,
    picks: Picks,
    /// By space and moment.
    loads: Vec<Vec<u64>>,
}

impl<'a> AssignmentDraft<'a> {
    fn new(model: &'a SpaceModel<'a>, picks: Picks) -> Self {
        let loads = vec![vec![0; model.moments.len()]; model.capacities.len()];
        let mut draft = Self { model, picks, loads };
        for item in 0..draft.picks.len() {
            let space = draft.space_of(item);
            draft.add(item, space);
        }
        draft
    }

    fn cost(&self) -> u64 {
        self.model.cost_of(&self.picks)
    }

    fn space_of(&self, item: usize) -> usize {
        self.model.picked(item, self.picks[item]).space
    }

    /// Returns the cost change if an item takes another option.
    fn extra(&self, item: usize, pick: u8) -> u64 {
        let now = self.model.picked(item, self.picks[item]).cost;
        self.model.picked(item, pick).cost.saturating_sub(now)
    }

    /// Returns the moments in which an item is live.
    fn moments(&self, item: usize) -> Range<usize> {
        let live = self.model.items[item].live;
        let position = |step| self.model.moments.partition_point(|&moment| moment < step);
        position(live.start())..position(live.end())
    }

    fn add(&mut self, item: usize, space: usize) {
        for moment in self.moments(item) {
            let bytes = self.model.items[item].bytes_at(self.model.moments[moment]);
            let load = &mut self.loads[space][moment];
            *load = load.saturating_add(bytes);
        }
    }

    fn put(&mut self, item: usize, pick: u8) {
        let from = self.space_of(item);
        for moment in self.moments(item) {
            let bytes = self.model.items[item].bytes_at(self.model.moments[moment]);
            let load = &mut self.loads[from][moment];
            *load = load.saturating_sub(bytes);
        }
        self.picks[item] = pick;
        self.add(item, self.space_of(item));
    }

    /// Returns whether there is room for an item in another option at every step.
    fn has_room(&self, item: usize, pick: u8) -> bool {
        let space = self.model.picked(item, pick).space;
        let capacity = self.model.capacities[space];
        self.moments(item).all(|moment| {
            let bytes = self.model.items[item].bytes_at(self.model.moments[moment]);
            self.loads[space][moment].saturating_add(bytes) <= capacity
        })
    }

    /// Returns the first space that cannot be packed, and the space's items.
    fn first_overfull(&self, packer: &mut Packer<'_>) -> Result<Option<(usize, Vec<usize>)>> {
        for space in 0..self.loads.len() {
            let members = self.model.members_of(&self.picks, space);
            if packer.verdict(space, &members)? != FitVerdict::Fits {
                return Ok(Some((space, members)));
            }
        }
        Ok(None)
    }

    /// Moves items to dearer spaces until every space can be packed, and returns whether
    /// that worked.
    fn push_out(&mut self, packer: &mut Packer<'_>, last: usize) -> Result<bool> {
        while let Some((space, members)) = self.first_overfull(packer)? {
            if packer.calls > last || packer.work.is_over() {
                return Ok(false);
            }
            let above = packer.too_high(space, &members)?;
            let Some((item, pick)) = self.cheapest_to_push(space, &above) else {
                return Ok(false);
            };
            self.put(item, pick);
        }
        Ok(true)
    }

    /// Returns the item in `space` that costs least to move elsewhere, among the buffers `above`
    /// the capacity and the buffers live together with these.
    ///
    /// Items only move to more expensive options, so the search terminates.
    fn cheapest_to_push(&self, space: usize, above: &[usize]) -> Option<(usize, u8)> {
        let items = &self.model.items;
        let high: Vec<_> = items.iter().filter(|item| above.contains(&item.buffer)).collect();
        let is_near = |item: usize| high.iter().any(|high| high.live.overlaps(items[item].live));
        (0..items.len())
            .filter(|&item| self.space_of(item) == space && is_near(item))
            .filter_map(|item| {
                let mut dearer = self.picks[item] + 1..self.model.options(item);
                let pick = dearer.find(|&pick| self.has_room(item, pick))?;
                Some((self.extra(item, pick), Reverse(items[item].live.end()), item, pick))
            })
            .min()
            .map(|(_, _, item, pick)| (item, pick))
    }

    /// Moves items to cheaper spaces where that fits, alone or in exchange for cheaper items.
    fn pull_in(&mut self, packer: &mut Packer<'_>, last: usize) -> Result<()> {
        let mut better = true;
        while core::mem::take(&mut better) {
            let saved = |&item: &usize| {
                let option = |pick| self.model.picked(item, pick).cost;
                (Reverse(option(self.picks[item]) - option(0)), item)
            };
            let mut dear: Vec<_> = (0..self.picks.len()).filter(|&i| self.picks[i] > 0).collect();
            dear.sort_by_key(saved);
            for item in dear {
                for pick in 0..self.picks[item] {
                    if packer.calls > last || packer.work.is_over() {
                        return Ok(());
                    }
                    packer.work.spend(self.loads.len() * self.model.moments.len());
                    let Some(changed) = self.exchanged(item, pick) else { continue };
                    if changed.cost() < self.cost() && changed.first_overfull(packer)?.is_none() {
                        *self = changed;
                        better = true;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the draft with `item` at `pick`, and with the cheapest other items moved on where
    /// the space would hold too much; `None` if they have nowhere to go.
    fn exchanged(&self, item: usize, pick: u8) -> Option<Self> {
        let mut changed = self.clone();
        changed.put(item, pick);
        let space = self.model.picked(item, pick).space;
        for moment in self.moments(item) {
            while changed.loads[space][moment] > self.model.capacities[space] {
                let live = self.model.live_at(self.model.moments[moment]);
                let others = live.into_iter().filter(|&(other, bytes)| {
                    other != item && bytes > 0 && changed.space_of(other) == space
                });
                let (_, _, other, pick) = others
                    .filter_map(|(other, bytes)| {
                        let mut dearer = changed.picks[other] + 1..self.model.options(other);
                        let pick = dearer.find(|&pick| changed.has_room(other, pick))?;
                        Some((changed.extra(other, pick), Reverse(bytes), other, pick))
                    })
                    .min()?;
                changed.put(other, pick);
            }
        }
        Some(changed)
    }
}
