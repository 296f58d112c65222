//! Joins items that have the same offset in every packing, or most likely in one.

mod handover;

use super::arith::{index, number};
use super::exact::Link;
use super::memory::{filled, with_capacity};
use super::model::Model;
use crate::error::Result;
use handover::{Handover, Side, parts, whole};

/// Which items are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// Those that must be, if everything ends at this byte or before.
    Forced(u64),
    /// Also those that take the room of all that dies just then, whatever room there is.
    Whole,
    /// Also those that take the room of some of what dies just then.
    Parts,
}

/// A model in which some items stand for several of another model.
#[derive(Debug)]
pub(super) struct Joined {
    model: Model,
    /// The items that each one stands for, with their offsets inside it.
    members: Vec<Vec<(u32, u64)>>,
    links: Vec<Link>,
}

/// An item, or several that are one.
#[derive(Clone, Debug)]
struct Block {
    start: u32,
    end: u32,
    size: u64,
    members: Vec<(u32, u64)>,
}

/// Joins what one item takes over from others, or others from it.
///
/// Two sections in a row that are full to the roof have no room but that of their items.
/// What dies between them therefore leaves exactly the grains that what is born there
/// takes. If it is one item on either side, both have the same offset, and are one
/// longer item for whoever looks for a packing. The same holds for items that live and
/// die together if the other side is one item: they fill its grains, in any order. That
/// makes longer items, and fewer sections, so it is repeated.
///
/// Where there is more room than that, sizes that add up are a hint: the packing that is
/// looked for may well be one in which they do so because one took the room of the other.
/// What is not found in a model joined on hints may be there all the same.
///
/// Returns nothing if there is nothing to join, or if alignments, pins or pads say more
/// about an item than its size.
pub(super) fn join(model: &Model, joining: Joining) -> Result<Option<Joined>> {
    if !model.is_plain() {
        return Ok(None);
    }
    let mut blocks = Blocks::new(model)?;
    let count = blocks.list.len();
    let mut again = true;
    while again {
        again = false;
        for moment in 1..model.loads.len() {
            while std::mem::take(&mut blocks.changed[moment])
                && let Some(handover) = blocks.handover(model, joining, moment)
            {
                blocks.join(&handover, moment);
                again = true;
            }
        }
    }
    let links = blocks.links(model, joining);
    if blocks.list.len() == count && links.is_empty() {
        return Ok(None);
    }
    let mut order = with_capacity(blocks.list.len(), "joined items")?;
    order.extend((0..blocks.list.len()).filter(|&it| !blocks.list[it].members.is_empty()));
    order.sort_unstable_by_key(|&it| {
        let block = &blocks.list[it];
        (block.start, block.end, block.size, block.members[0])
    });
    let mut place = filled(0, blocks.list.len(), "joined items")?;
    for (at, &it) in order.iter().enumerate() {
        place[it] = number(at);
    }
    let side = |blocks: Vec<usize>| blocks.iter().map(|&it| place[it]).collect();
    let link = |it: Handover| Link { sides: [side(it.dying), side(it.born)] };
    let links = links.into_iter().map(link).collect();
    let items = order.iter().map(|&it| (blocks.list[it].start..blocks.list[it].end, blocks.list[it].size));
    let model = model.of_solids(items)?;
    let members = order.iter().map(|&it| std::mem::take(&mut blocks.list[it].members)).collect();
    Ok(Some(Joined { model, members, links }))
}

/// Blocks, and at each moment, the start of a section, those that die and are born there.
///
/// Joining changes neither the load of a section nor who else dies at its end.
#[derive(Debug)]
struct Blocks {
    list: Vec<Block>,
    dying: Vec<Vec<usize>>,
    born: Vec<Vec<usize>>,
    /// Whether these are others than when they were last looked at.
    changed: Vec<bool>,
}

impl Blocks {
    fn new(model: &Model) -> Result<Self> {
        let moments = model.loads.len() + 1;
        let mut list = with_capacity(model.items.len(), "joined items")?;
        list.extend(model.items.iter().enumerate().map(|(item, it)| Block {
            start: it.span.start,
            end: it.span.end,
            size: it.size,
            members: vec![(number(item), 0)],
        }));
        let mut dying = filled(Vec::new(), moments, "sections")?;
        let mut born = filled(Vec::new(), moments, "sections")?;
        for (number, block) in list.iter().enumerate() {
            dying[index(block.end)].push(number);
            born[index(block.start)].push(number);
        }
        Ok(Self { list, dying, born, changed: filled(true, moments, "sections")? })
    }

    /// Returns what can be joined at a moment.
    fn handover(&self, model: &Model, joining: Joining, moment: usize) -> Option<Handover> {
        self.handovers(model, joining, moment).into_iter().find(|it| self.is_rectangle(it))
    }

    /// Returns what could not be joined.
    fn links(&self, model: &Model, joining: Joining) -> Vec<Handover> {
        let moments = 1..model.loads.len();
        moments.flat_map(|moment| self.handovers(model, joining, moment)).collect()
    }

    /// Returns what one item takes over from others at a moment, or others from it.
    fn handovers(&self, model: &Model, joining: Joining, moment: usize) -> Vec<Handover> {
        let (dying, born) = (&self.dying[moment], &self.born[moment]);
        let [before, after] = [model.loads[moment - 1].grains, model.loads[moment].grains];
        if matches!(joining, Joining::Forced(target) if before.min(after) != target / model.grain) {
            return Vec::new();
        }
        let [dying, born] = [dying, born].map(|side| self.sizes(side));
        match joining {
            Joining::Parts => parts(dying, born),
            Joining::Forced(_) | Joining::Whole => whole(&dying, &born).into_iter().collect(),
        }
    }

    fn sizes(&self, side: &[usize]) -> Vec<Side> {
        side.iter().map(|&it| (self.list[it].size, it)).collect()
    }

    /// Returns whether those that die were born together, and those that are born die together.
    fn is_rectangle(&self, it: &Handover) -> bool {
        let start = |&it: &usize| self.list[it].start;
        let end = |&it: &usize| self.list[it].end;
        it.dying.iter().map(start).all(|at| at == start(&it.dying[0]))
            && it.born.iter().map(end).all(|at| at == end(&it.born[0]))
    }

    /// Makes one block of those that die at a moment and those that are born.
    fn join(&mut self, it: &Handover, moment: usize) {
        let before = self.stack(&it.dying);
        let after = self.stack(&it.born);
        let (start, end) = (before.start, after.end);
        let mut members = before.members;
        members.extend(after.members);
        // Emptied blocks are forgotten where they are born, and where they die.
        let Self { list, dying, born, changed } = self;
        let [start_at, end_at] = [start, end].map(index);
        for sides in [&mut *dying, &mut *born] {
            for at in [start_at, moment, end_at] {
                sides[at].retain(|&it| !list[it].members.is_empty());
            }
        }
        born[start_at].push(list.len());
        dying[end_at].push(list.len());
        for at in [start_at, moment, end_at] {
            changed[at] = true;
        }
        list.push(Block { start, end, size: before.size, members });
    }

    /// Takes blocks out, and returns them on top of each other.
    fn stack(&mut self, taken: &[usize]) -> Block {
        let mut whole = Block { members: Vec::new(), size: 0, ..self.list[taken[0]] };
        for &it in taken {
            let block = &mut self.list[it];
            let base = whole.size;
            whole.members.extend(block.members.drain(..).map(|(item, at)| (item, base + at)));
            whole.size += block.size;
        }
        whole
    }
}

impl Joined {
    /// Returns the model.
    pub(super) const fn model(&self) -> &Model {
        &self.model
    }

    /// Returns what is known of the items that could not be joined.
    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the number of its items.
    pub(super) const fn len(&self) -> usize {
        self.members.len()
    }

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
    fn joined(rows: &[(u32, u32, u64)], joining: Joining) -> Option<Joined> {
        let buffer = |&(start, end, size)| Buffer::new(size, LiveRange::new(start, end).unwrap());
        let buffers = rows.iter().map(buffer).collect();
        let problem = Problem::new(buffers, vec![Space::default()]).unwrap();
        let members: Vec<_> = (0..rows.len()).map(BufferId::new).collect();
        let budget = Budget::default();
        let model = Model::new(&problem, &members, &Clock::new(&budget)).unwrap().unwrap();
        join(&model, joining).unwrap()
    }

    #[test]
    fn what_takes_the_place_of_one_item_is_joined_to_it() {
        // 0 gives way to 1 and 2, which live as long as each other, and those to 3.
        let rows = [(0, 2, 5), (2, 4, 2), (2, 4, 3), (4, 6, 5), (0, 6, 4), (1, 3, 1), (3, 5, 1)];
        let full = [&rows[..], &[(0, 1, 1), (5, 6, 1)]].concat();
        let joined = joined(&full, Joining::Forced(10)).unwrap();
        assert_eq!(joined.model.items.len(), 3, "one of 5, one of 4, and one of 1");
        let offsets = joined.offsets(&[0, 1, 5]).unwrap();
        assert_eq!(offsets, [5, 5, 7, 5, 1, 0, 0, 0, 0]);
        assert_eq!(joined.model.loads.len(), 1, "all are live together");
    }

    #[test]
    fn nothing_is_joined_where_there_is_room_or_two_give_way_to_two() {
        let two = [(0, 2, 2), (0, 2, 3), (2, 4, 2), (2, 4, 3), (0, 4, 4)];
        assert!(joined(&two, Joining::Forced(9)).is_none());
        let one = [(0, 2, 5), (2, 4, 5), (0, 4, 4)];
        assert!(joined(&one, Joining::Forced(10)).is_none());
        assert!(joined(&one, Joining::Forced(9)).is_some());
    }
}
