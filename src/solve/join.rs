//! Joins items that have the same offset in every packing below a target.

use super::arith::{index, number};
use super::memory::{filled, with_capacity};
use super::model::Model;
use crate::error::Result;

/// A model in which some items stand for several of another model.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) model: Model,
    /// The items that each one stands for, with their offsets inside it.
    members: Vec<Vec<(u32, u64)>>,
}

/// An item, or several that are one.
#[derive(Clone, Debug)]
struct Block {
    start: u32,
    end: u32,
    size: u64,
    members: Vec<(u32, u64)>,
}

/// Joins what can only be in one place if everything ends at byte `target` or before.
///
/// Two sections in a row that are full to the roof have no room but that of their items.
/// What dies between them therefore leaves exactly the grains that what is born there
/// takes. If it is one item on either side, both have the same offset, and are one
/// longer item for whoever looks for a packing. The same holds for items that live and
/// die together if the other side is one item: they fill its grains, in any order. That
/// makes longer items, and fewer sections, so it is repeated.
///
/// Returns nothing if there is nothing to join, or if alignments, pins or pads say more
/// about an item than its size.
pub(super) fn join(model: &Model, target: u64) -> Result<Option<Joined>> {
    if !model.is_plain() {
        return Ok(None);
    }
    let roof = target / model.grain;
    let mut blocks = with_capacity(model.items.len(), "joined items")?;
    blocks.extend(model.items.iter().enumerate().map(|(item, it)| Block {
        start: it.span.start,
        end: it.span.end,
        size: it.size,
        members: vec![(number(item), 0)],
    }));
    let full: Vec<bool> = model.loads.iter().map(|load| load.grains == roof).collect();
    // Joining changes neither the load of a section nor who else dies at its end.
    let mut dying = filled(Vec::new(), full.len() + 1, "sections")?;
    let mut born = filled(Vec::new(), full.len() + 1, "sections")?;
    for (number, block) in blocks.iter().enumerate() {
        dying[index(block.end)].push(number);
        born[index(block.start)].push(number);
    }
    let mut joined = false;
    let mut again = true;
    while again {
        again = false;
        for moment in 1..full.len() {
            let one = dying[moment].len() == 1 || born[moment].len() == 1;
            if !full[moment - 1] || !full[moment] || !one {
                continue;
            }
            let starts =
                |of: &[usize]| of.iter().all(|&it| blocks[it].start == blocks[of[0]].start);
            let ends = |of: &[usize]| of.iter().all(|&it| blocks[it].end == blocks[of[0]].end);
            if !starts(&dying[moment]) || !ends(&born[moment]) {
                continue;
            }
            let before = stack(&mut blocks, &std::mem::take(&mut dying[moment]));
            let after = stack(&mut blocks, &std::mem::take(&mut born[moment]));
            let (start, end) = (before.start, after.end);
            let gone = blocks.len();
            let mut members = before.members;
            members.extend(after.members);
            blocks.push(Block { start, end, size: before.size, members });
            // Emptied blocks are forgotten where they were born, and where they die.
            born[index(start)].retain(|&it| !blocks[it].members.is_empty());
            born[index(start)].push(gone);
            dying[index(end)].retain(|&it| !blocks[it].members.is_empty());
            dying[index(end)].push(gone);
            (joined, again) = (true, true);
        }
    }
    if !joined {
        return Ok(None);
    }
    blocks.retain(|block| !block.members.is_empty());
    blocks.sort_unstable_by_key(|block| (block.start, block.end, block.size, block.members[0]));
    let items = blocks.iter().map(|block| (block.start..block.end, block.size));
    let model = model.of_solids(items)?;
    Ok(Some(Joined { model, members: blocks.into_iter().map(|block| block.members).collect() }))
}

/// Takes blocks out, and returns them on top of each other.
fn stack(blocks: &mut [Block], taken: &[usize]) -> Block {
    let mut whole = Block { members: Vec::new(), size: 0, ..blocks[taken[0]] };
    for &it in taken {
        let block = &mut blocks[it];
        let base = whole.size;
        whole.members.extend(block.members.drain(..).map(|(item, at)| (item, base + at)));
        whole.size += block.size;
    }
    whole
}

impl Joined {
    /// Returns the offset of each item, given those of the items that stand for them.
    pub(super) fn offsets(&self, joined: &[u64]) -> Result<Vec<u64>> {
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
    use super::super::Budget;
    use super::super::clock::Clock;
    use super::*;
    use crate::index::BufferId;
    use crate::problem::{Buffer, Problem, Space};
    use crate::units::LiveRange;

    /// Joins items given as first step, last step and size.
    fn joined(rows: &[(u32, u32, u64)], target: u64) -> Option<Joined> {
        let buffer = |&(start, end, size)| Buffer::new(size, LiveRange::new(start, end).unwrap());
        let buffers = rows.iter().map(buffer).collect();
        let problem = Problem::new(buffers, vec![Space::default()]).unwrap();
        let members: Vec<_> = (0..rows.len()).map(BufferId::new).collect();
        let budget = Budget::default();
        let model = Model::new(&problem, &members, &Clock::new(&budget)).unwrap().unwrap();
        join(&model, target).unwrap()
    }

    #[test]
    fn what_takes_the_place_of_one_item_is_joined_to_it() {
        // One gives way to two, which live as long as each other, and those to the third.
        let (one, two, three) = ((0, 2, 5), [(2, 4, 2), (2, 4, 3)], (4, 6, 5));
        let others = [(0, 1, 1), (0, 6, 4), (1, 3, 1), (3, 5, 1), (5, 6, 1)];
        // In the order of a model's items: by birth, death and size.
        let mut rows = [&[one, three], &two[..], &others].concat();
        rows.sort_unstable();
        let joined = joined(&rows, 10).unwrap();
        assert_eq!(joined.model.items.len(), 3, "one of 5, one of 4, and one of 1");
        let offsets = joined.offsets(&[0, 1, 5]).unwrap();
        assert_eq!(offsets, [0, 5, 1, 0, 5, 7, 0, 5, 0]);
        assert_eq!(joined.model.loads.len(), 1, "all are live together");
    }

    #[test]
    fn nothing_is_joined_where_there_is_room_or_two_give_way_to_two() {
        let two = [(0, 2, 2), (0, 2, 3), (2, 4, 2), (2, 4, 3), (0, 4, 4)];
        assert!(joined(&two, 9).is_none());
        let one = [(0, 2, 5), (2, 4, 5), (0, 4, 4)];
        assert!(joined(&one, 10).is_none());
        assert!(joined(&one, 9).is_some());
    }
}
