//! Rebuilds the fullest section of an old packing with few moves.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::Problem;
use crate::base::{BufferId, SpaceId, Step};

/// Different sums that are kept while a hole is filled.
const MOST_SUMS: usize = 2_000;
/// Buffers that fill one hole, at most.
const MOST_FILLERS: u8 = 6;
/// Most neighbors of a hole that move with the hole.
const MOST_NEIGHBORS: usize = 4;

/// Returns new offsets, below `limit`, for the buffers in a space that are live at the step with
/// the largest load; `None` if there are no such buffers, or if these buffers have pins, windows or
/// rules.
///
/// Where the largest load is the limit, or nearly, those buffers are a stack almost without gaps.
/// So a grown buffer fits nowhere, and a shrunken buffer leaves a gap that is too much. Such
/// buffers go to the top of the stack, and each hole is filled by buffers from the top whose sizes
/// have the needed sum (a subset-sum problem). Where no sizes have that sum, a hole grows by some
/// neighbors. The part of the top that is taken apart grows until the holes can be filled, and
/// further while fewer buffers may move.
pub(super) fn restack(
    problem: &Problem,
    old: &[Option<u64>],
    space: SpaceId,
    limit: u64,
) -> Option<Vec<(usize, u64)>> {
    let fullest = fullest_step(problem, space)?;
    let is_in = |index: &usize| {
        let buffer = &problem.buffers()[*index];
        let live = buffer.live();
        buffer.space() == space && live.start() <= fullest && fullest < live.end()
    };
    let live: Vec<usize> = (0..problem.buffers().len()).filter(is_in).collect();
    if !live.iter().all(|&index| is_plain(problem, index)) {
        return None;
    }
    let mask = live.iter().map(|&it| problem.alignment(BufferId::new(it)).bytes()).max()? - 1;
    let mut stack = Stack::new(problem, old, mask, limit);
    stack.divide(&live)?;
    stack.fill()
}

/// Returns the step at which most bytes in a space are live.
fn fullest_step(problem: &Problem, space: SpaceId) -> Option<Step> {
    let mut events: Vec<(Step, bool, u64)> = Vec::new();
    for buffer in problem.buffers().iter().filter(|it| it.space() == space) {
        events.push((buffer.live().start(), true, buffer.bytes()));
        events.push((buffer.live().end(), false, buffer.bytes()));
    }
    events.sort_unstable();
    let (mut load, mut most) = (0_u128, None);
    for (step, is_birth, bytes) in events {
        if is_birth {
            load += u128::from(bytes);
            if most.is_none_or(|(most, _)| load > most) {
                most = Some((load, step));
            }
        } else {
            load -= u128::from(bytes);
        }
    }
    most.map(|(_, step)| step)
}

/// Returns whether a buffer may have any aligned offset, and all bytes are needed.
fn is_plain(problem: &Problem, index: usize) -> bool {
    let buffer = &problem.buffers()[index];
    let id = BufferId::new(index);
    let rules = problem.rules();
    let has_rule = |pairs: &[(BufferId, BufferId)]| pairs.iter().any(|it| it.0 == id || it.1 == id);
    buffer.solid().is_some()
        && buffer.pin().is_none()
        && buffer.range().is_none()
        && buffer.group().is_none()
        && buffer.multiple_of() == 1
        && problem.spaces()[buffer.space().index()].reserved().is_empty()
        && !has_rule(&rules.may_overlap)
        && !has_rule(&rules.apart)
}

/// The buffers in one section, from the ground up. Sizes are multiples of the largest alignment.
struct Stack<'p> {
    problem: &'p Problem,
    old: &'p [Option<u64>],
    mask: u64,
    limit: u64,
    /// Buffers that stay, by offset.
    kept: Vec<PlacedBuffer>,
    /// Buffers that move, with sizes: the buffers that must move, and the buffers from the top.
    moving: Vec<(usize, u64)>,
    /// Number of buffers that must move.
    forced: usize,
}

/// A buffer at an offset.
#[derive(Clone, Copy)]
struct PlacedBuffer {
    index: usize,
    offset: u64,
    size: u64,
}

impl PlacedBuffer {
    const fn end(self) -> u64 {
        self.offset + self.size
    }
}

impl<'p> Stack<'p> {
    fn new(problem: &'p Problem, old: &'p [Option<u64>], mask: u64, limit: u64) -> Self {
        Self { problem, old, mask, limit, kept: Vec::new(), moving: Vec::new(), forced: 0 }
    }

    /// Returns the size of a buffer with the pad before the next buffer.
    fn size(&self, index: usize) -> Option<u64> {
        Some(self.problem.buffers()[index].bytes().checked_add(self.mask)? & !self.mask)
    }

    /// Divides the buffers into buffers that stay and buffers that must move.
    fn divide(&mut self, live: &[usize]) -> Option<()> {
        let mut placed = Vec::with_capacity(live.len());
        for &index in live {
            let size = self.size(index)?;
            match self.old[index] {
                Some(offset)
                    if offset & self.mask == 0 && offset.checked_add(size)? <= self.limit =>
                {
                    placed.push(PlacedBuffer { index, offset, size });
                }
                _ => self.moving.push((index, size)),
            }
        }
        placed.sort_unstable_by_key(|it| (it.offset, it.index));
        for it in placed {
            // Of two buffers that share bytes, the lower buffer has grown.
            if let Some(below) = self.kept.pop_if(|below| below.end() > it.offset) {
                self.moving.push((below.index, below.size));
            }
            self.kept.push(it);
        }
        let sizes = self.kept.iter().map(|it| it.size).chain(self.moving.iter().map(|it| it.1));
        let load = sizes.fold(0_u64, u64::saturating_add);
        let slack = self.limit.checked_sub(load)?;
        let gaps: u64 = self.holes().iter().map(|hole| hole.1).sum();
        let room: u64 = self.moving.iter().map(|it| it.1).sum();
        if gaps > slack.saturating_add(room) {
            // A buffer below a gap has shrunk: the rest of the gap is more than may be lost.
            let ends: Vec<u64> = self.holes().iter().map(|hole| hole.0).collect();
            let (shrunk, kept) = core::mem::take(&mut self.kept)
                .into_iter()
                .partition(|it: &PlacedBuffer| ends.binary_search(&it.end()).is_ok());
            self.kept = kept;
            self.moving
                .extend(Vec::<PlacedBuffer>::into_iter(shrunk).map(|it| (it.index, it.size)));
        }
        self.forced = self.moving.len();
        Some(())
    }

    /// Returns offset and size of each hole below the highest staying buffer.
    fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut end = 0;
        for it in &self.kept {
            if it.offset > end {
                holes.push((end, it.offset - end));
            }
            end = it.end();
        }
        holes
    }

    /// Fills the holes with moving buffers, and takes more buffers from the top as long as that may help.
    fn fill(&mut self) -> Option<Vec<(usize, u64)>> {
        let mut best: Option<(usize, Vec<(usize, u64)>)> = None;
        let mut next = 0;
        // Nearly every buffer from the top moves.
        while best.as_ref().is_none_or(|(moved, _)| self.moving.len() < self.forced + moved) {
            if self.moving.len() >= next {
                next = self.moving.len() + 1 + self.moving.len() / 8;
                if let Some(found) = self.filled() {
                    let moved = found.iter().filter(|it| self.old[it.0] != Some(it.1)).count();
                    if best.as_ref().is_none_or(|(least, _)| moved < *least) {
                        best = Some((moved, found));
                    }
                }
            }
            let Some(top) = self.kept.pop() else { break };
            self.moving.push((top.index, top.size));
        }
        best.map(|(_, found)| found)
    }

    /// Returns the offsets of all buffers, if the holes can be filled.
    fn filled(&self) -> Option<Vec<(usize, u64)>> {
        let mut holes = self.holes();
        holes.sort_unstable_by_key(|&(offset, size)| (core::cmp::Reverse(size), offset));
        let top = self.kept.last().map_or(0, |it| it.end());
        let room: u64 = holes.iter().map(|hole| hole.1).sum::<u64>() + (self.limit - top);
        let waste = room.checked_sub(self.moving.iter().map(|it| it.1).sum())?;
        // Buffers from the top, the largest first; then the buffers that must move.
        let (forced, others) = self.moving.split_at(self.forced);
        let mut left: Vec<(usize, u64)> = others.to_vec();
        left.sort_by_key(|&(_, size)| core::cmp::Reverse(size));
        left.extend_from_slice(forced);
        let mut filling = Filling { kept: self.kept.clone(), left, waste, found: Vec::new() };
        for (offset, size) in holes {
            filling.fill(offset, size)?;
        }
        let Filling { kept, mut left, mut found, .. } = filling;
        found.extend(kept.iter().map(|it| (it.index, it.offset)));
        // The rest of the top in the old order, then the buffers that must move.
        let order = |it: &(usize, u64)| others.iter().rev().position(|other| other == it);
        left.sort_by_cached_key(|it| order(it).unwrap_or(usize::MAX));
        let mut at = top;
        for (index, size) in left {
            found.push((index, at));
            at += size;
        }
        let fits =
            |&(index, at): &(usize, u64)| at + self.problem.buffers()[index].bytes() <= self.limit;
        found.iter().all(fits).then_some(found)
    }
}

/// Holes of a stack, some filled.
struct Filling {
    /// Buffers at their old offsets, in this order.
    kept: Vec<PlacedBuffer>,
    /// Buffers without an offset, with sizes.
    left: Vec<(usize, u64)>,
    /// Bytes that may stay empty.
    waste: u64,
    /// The offsets of the buffers that fill holes.
    found: Vec<(usize, u64)>,
}

impl Filling {
    /// Fills a hole, with as few neighbors as possible.
    fn fill(&mut self, offset: u64, size: u64) -> Option<()> {
        for neighbors in 0..=MOST_NEIGHBORS {
            for below in 0..=neighbors {
                let Some(window) = self.window(offset, size, below, neighbors - below) else {
                    continue;
                };
                let inside = &self.kept[window.clone()];
                let start = if below > 0 { inside[0].offset } else { offset };
                let room = size + inside.iter().map(|it| it.size).sum::<u64>();
                let mut sizes = self.left.clone();
                sizes.extend(inside.iter().map(|it| (it.index, it.size)));
                let Some(chosen) = subset(&sizes, room, self.waste) else { continue };
                let mut at = start;
                for &place in &chosen {
                    self.found.push((sizes[place].0, at));
                    at += sizes[place].1;
                }
                self.waste -= start + room - at;
                for &place in chosen.iter().rev() {
                    sizes.remove(place);
                }
                self.left = sizes;
                self.kept.drain(window);
                return Some(());
            }
        }
        None
    }

    /// Returns the places of so many neighbors around a hole, without gaps between the neighbors.
    fn window(&self, offset: u64, size: u64, below: usize, above: usize) -> Option<Range<usize>> {
        let place = self.kept.partition_point(|it| it.offset < offset);
        let window = place.checked_sub(below)?..place.checked_add(above)?;
        // The highest buffer stays, since the rest of the top begins above that buffer.
        if above > 0 && window.end >= self.kept.len() {
            return None;
        }
        let mut end =
            self.kept.get(window.start).filter(|_| below > 0).map_or(offset, |it| it.offset);
        for at in window.clone() {
            end += if at == place { size } else { 0 };
            if self.kept[at].offset != end {
                return None;
            }
            end = self.kept[at].end();
        }
        (above > 0 || end == offset).then_some(window)
    }
}

/// Returns, in ascending order, the places of a few sizes whose sum is at most `room` and less by
/// at most `waste`, preferring few sizes.
fn subset(sizes: &[(usize, u64)], room: u64, waste: u64) -> Option<Vec<usize>> {
    /// A sum, as a step from another sum.
    struct Sum {
        count: u8,
        last: usize,
        before: u64,
    }
    let least = room.saturating_sub(waste);
    let mut sums: BTreeMap<u64, Sum> = BTreeMap::new();
    sums.insert(0, Sum { count: 0, last: usize::MAX, before: 0 });
    for (place, &(_, size)) in sizes.iter().enumerate() {
        if sums.range(least..).next().is_some() || sums.len() > MOST_SUMS {
            break;
        }
        if size == 0 || size > room {
            continue;
        }
        let longer: Vec<(u64, Sum)> = sums
            .range(..=room - size)
            .filter(|(_, sum)| sum.count < MOST_FILLERS)
            .map(|(&before, sum)| {
                (before + size, Sum { count: sum.count + 1, last: place, before })
            })
            .collect();
        for (sum, way) in longer {
            // A known way stays: other sums build upon the way.
            sums.entry(sum).or_insert(way);
        }
    }
    let (&best, _) = sums.range(least..).next_back()?;
    let mut places = Vec::new();
    let mut sum = best;
    while sum > 0 {
        let way = &sums[&sum];
        places.push(way.last);
        sum = way.before;
    }
    places.reverse();
    Some(places)
}
