//! Joins items at tight cuts: joined items have the same offset in every packing, or by assumption.

use alloc::{vec, vec::Vec};

use super::tight_cut::{CutSide, TightCut, parts, whole};
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::{filled, with_capacity};

/// Cuts that are assumed to be tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cuts {
    /// Cuts that are tight in every packing.
    Certain,
    /// Also cuts at which the dying items and the born items have equal sums.
    Whole,
    /// Also cuts between some of the items, with equal sums on both sides.
    Parts,
}

/// A model in which some items represent several items of another model.
#[derive(Debug)]
pub(crate) struct Joined {
    model: Model,
    /// The represented items, with their offsets inside each item.
    members: Vec<Vec<(u32, u64)>>,
}

/// Joins the items at tight cuts of a model in which all items end at byte `target` or before.
///
/// If the loads of two consecutive sections equal the target, both sections are full. The items
/// that die between the sections leave exactly the grains that the items born there occupy: a
/// *tight cut*. One item on either side makes a longer item. Several items make a longer item if
/// the dying items were born together, the born items die together, and their room is one piece,
/// which the items fill in any order. Joined items are longer, and sections are fewer, so the rule
/// repeats to a fixed point.
///
/// With slack, a cut with equal sums is only assumed to be tight. A packing of the joined model is
/// still a packing of `model`. Infeasibility of the joined model proves nothing then.
///
/// Returns nothing if no cut is joined, or if alignments, pins or pads matter.
pub(crate) fn join(model: &Model, target: u64, cuts: Cuts) -> Result<Option<Joined>> {
    if !model.is_plain() {
        return Ok(None);
    }
    let mut blocks = JoinBlocks::new(model, target)?;
    let count = blocks.list.len();
    let mut again = true;
    while again {
        again = false;
        for moment in 1..blocks.loads.len() {
            while core::mem::take(&mut blocks.changed[moment])
                && let Some(cut) = blocks.rectangle(cuts, moment)
            {
                blocks.join(&cut, moment);
                again = true;
            }
        }
    }
    if blocks.list.len() == count {
        return Ok(None);
    }
    blocks.into_joined(model).map(Some)
}

/// An item, or several joined items.
#[derive(Clone, Debug)]
struct JoinBlock {
    start: u32,
    end: u32,
    size: u64,
    members: Vec<(u32, u64)>,
    /// Whether the block has become part of another block.
    gone: bool,
}

/// Blocks, and at each moment, the start of a section, the dying and the born blocks.
///
/// Joining changes neither a section's load nor the other items that die at the section's end.
#[derive(Debug)]
struct JoinBlocks {
    list: Vec<JoinBlock>,
    dying: Vec<Vec<usize>>,
    born: Vec<Vec<usize>>,
    /// Whether a moment's lists have changed since the last look.
    changed: Vec<bool>,
    /// Each section's load, and the common capacity, in grains.
    loads: Vec<u64>,
    roof: u64,
}

impl JoinBlocks {
    /// Returns a block for each item.
    fn new(model: &Model, target: u64) -> Result<Self> {
        let moments = model.loads.len() + 1;
        let mut loads = with_capacity(model.loads.len(), "sections")?;
        loads.extend(model.loads.iter().map(|load| load.grains));
        let mut blocks = Self {
            list: with_capacity(model.items.len(), "joined items")?,
            dying: filled(Vec::new(), moments, "sections")?,
            born: filled(Vec::new(), moments, "sections")?,
            changed: filled(true, moments, "sections")?,
            loads,
            roof: target / model.grain,
        };
        for (item, it) in model.items.iter().enumerate() {
            let members = vec![(number(item), 0)];
            let (start, end) = (it.span.start, it.span.end);
            blocks.add(JoinBlock { start, end, size: it.size, members, gone: false });
        }
        Ok(blocks)
    }

    /// Adds a block, and returns the block's number.
    fn add(&mut self, block: JoinBlock) {
        self.born[index(block.start)].push(self.list.len());
        self.dying[index(block.end)].push(self.list.len());
        self.list.push(block);
    }

    /// Returns the tight cuts at a moment.
    fn tight_cuts(&self, cuts: Cuts, moment: usize) -> Vec<TightCut> {
        if cuts == Cuts::Certain
            && self.loads[moment - 1..=moment].iter().any(|&load| load != self.roof)
        {
            return Vec::new();
        }
        let side = |numbers: &Vec<usize>| -> Vec<CutSide> {
            numbers.iter().map(|&it| (self.list[it].size, it)).collect()
        };
        let (dying, born) = (side(&self.dying[moment]), side(&self.born[moment]));
        match cuts {
            Cuts::Certain | Cuts::Whole => whole(&dying, &born).into_iter().collect(),
            Cuts::Parts => parts(dying, born),
        }
    }

    /// Returns a tight cut whose dying items were born together and whose born items die together.
    fn rectangle(&self, cuts: Cuts, moment: usize) -> Option<TightCut> {
        self.tight_cuts(cuts, moment).into_iter().find(|it| {
            let [first, last] = [&self.list[it.dying[0]], &self.list[it.born[0]]];
            it.dying.iter().all(|&it| self.list[it].start == first.start)
                && it.born.iter().all(|&it| self.list[it].end == last.end)
        })
    }

    /// Joins the blocks of a tight cut.
    fn join(&mut self, it: &TightCut, moment: usize) {
        let before = self.stack(&it.dying);
        let after = self.stack(&it.born);
        let (start, end) = (before.start, after.end);
        let mut members = before.members;
        members.extend(after.members);
        for at in [index(start), moment, index(end)] {
            for side in [&mut self.dying[at], &mut self.born[at]] {
                side.retain(|&it| !self.list[it].gone);
            }
            self.changed[at] = true;
        }
        self.add(JoinBlock { start, end, size: before.size, members, gone: false });
    }

    /// Takes blocks out, and returns them stacked.
    fn stack(&mut self, taken: &[usize]) -> JoinBlock {
        let mut whole = JoinBlock { members: Vec::new(), size: 0, ..self.list[taken[0]] };
        for &it in taken {
            let block = &mut self.list[it];
            let base = whole.size;
            whole.members.extend(block.members.drain(..).map(|(item, at)| (item, base + at)));
            whole.size += block.size;
            block.gone = true;
        }
        whole
    }

    /// Returns the model of the present blocks.
    fn into_joined(mut self, model: &Model) -> Result<Joined> {
        let mut order = with_capacity(self.list.len(), "joined items")?;
        order.extend((0..self.list.len()).filter(|&it| !self.list[it].gone));
        order.sort_unstable_by_key(|&it| {
            let block = &self.list[it];
            (block.start, block.end, block.size, it)
        });
        let solid = |&it: &usize| {
            let block = &self.list[it];
            (block.start..block.end, block.size)
        };
        let model = model.of_solids(order.iter().map(solid))?;
        let mut members = with_capacity(order.len(), "joined items")?;
        members.extend(order.iter().map(|&it| core::mem::take(&mut self.list[it].members)));
        Ok(Joined { model, members })
    }
}

impl Joined {
    /// Returns the model.
    pub(crate) const fn model(&self) -> &Model {
        &self.model
    }

    /// Returns each item's offset, given the offsets of the representing items.
    pub(crate) fn offsets(&self, joined: &[u64]) -> Result<Vec<u64>> {
        let count = self.members.iter().map(Vec::len).sum();
        let mut offsets = filled(0, count, "offsets")?;
        for (members, base) in self.members.iter().zip(joined) {
            for &(item, offset) in members {
                offsets[index(item)] = base + offset;
            }
        }
        Ok(offsets)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::base::LiveRange;
    use crate::problem::Buffer;
    use crate::solve::testing::model_of;

    /// Joins items given as first step, last step and size.
    fn joined(rows: &[(u32, u32, u64)], target: u64, cuts: Cuts) -> Option<Joined> {
        let buffer = |&(start, end, size)| Buffer::new(size, LiveRange::new(start, end).unwrap());
        let model = model_of(rows.iter().map(buffer).collect());
        join(&model, target, cuts).unwrap()
    }

    #[test]
    fn what_takes_the_place_of_one_item_is_joined_to_it() {
        // One item gives way to two items with the same lifetime, and those to the third.
        let (one, two, three) = ((0, 2, 5), [(2, 4, 2), (2, 4, 3)], (4, 6, 5));
        let others = [(0, 1, 1), (0, 6, 4), (1, 3, 1), (3, 5, 1), (5, 6, 1)];
        // In a model's item order: by birth, death and size.
        let mut rows = [&[one, three], &two[..], &others].concat();
        rows.sort_unstable();
        let joined = joined(&rows, 10, Cuts::Certain).unwrap();
        assert_eq!(joined.model.loads.len(), 1, "all are live together");
        let sizes: Vec<_> = joined.model.items.iter().map(|item| item.size).collect();
        assert_eq!(sizes, [1, 4, 5], "one for each place, and the long one");
        let offsets = joined.offsets(&[0, 1, 5]).unwrap();
        assert_eq!(offsets, [0, 5, 1, 0, 5, 7, 0, 5, 0]);
    }

    #[test]
    fn several_give_way_to_several_in_one_piece_unless_they_may_lie_apart() {
        let apart = [(0, 2, 2), (0, 2, 3), (2, 4, 2), (2, 4, 3), (0, 4, 4)];
        assert!(joined(&apart, 9, Cuts::Certain).is_none(), "2 may take the place of 2");
        let piece = [(0, 2, 2), (0, 2, 5), (2, 4, 3), (2, 4, 4), (0, 4, 4)];
        assert_eq!(joined(&piece, 11, Cuts::Certain).unwrap().model.items.len(), 2);
    }

    #[test]
    fn where_there_is_room_only_hints_join() {
        let one = [(0, 2, 5), (2, 4, 5), (0, 4, 4)];
        assert!(joined(&one, 10, Cuts::Certain).is_none());
        assert!(joined(&one, 9, Cuts::Certain).is_some());
        assert_eq!(joined(&one, 10, Cuts::Whole).unwrap().model.items.len(), 2);
        // 5 takes the place of 5, and 1 is added.
        let part = [(0, 2, 5), (2, 4, 5), (2, 4, 1), (0, 4, 4)];
        assert!(joined(&part, 10, Cuts::Whole).is_none());
        assert_eq!(joined(&part, 10, Cuts::Parts).unwrap().model.items.len(), 3);
    }
}
