//! Lower offsets at the peak that was found.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::ask::live_pairs::{Births, least_common_multiple};
use crate::base::{BufferId, Result};
use crate::solve::Budget;
use crate::{Packing, Problem, Status};

/// Most pairs of buffers that are compared.
const MOST_PAIRS: usize = 1 << 28;

/// Moves buffers to lower offsets until no buffer can move alone.
///
/// The second aim after the peak: few bytes are touched high in the arena, and at most steps the
/// free bytes are in one piece at the top. Buffers are visited by offset. Each buffer gets the
/// lowest offset that the other buffers leave free, until no buffer has a lower one; the buffers of
/// a group move together. So no peak rises, and the sum of the offsets is a local minimum, without
/// proof of a global minimum. If the budget or some hundred million comparisons are used up, the
/// search returns the packing so far.
///
/// # Errors
///
/// As [`Packing::check`], if the packing does not belong to the problem.
///
/// # Examples
///
/// ```
/// use arenaplan_pack::base::LiveRange;
/// use arenaplan_pack::{Buffer, Space, compact};
/// use arenaplan_pack::{Budget, Problem, solve};
/// // The hint puts the second buffer at 64, where the peak of 96 bytes permits it to be.
/// let buffers = vec![
///     Buffer::new(96, LiveRange::new(0, 1)?),
///     Buffer::new(32, LiveRange::new(1, 2)?).with_hint(64),
/// ];
/// let problem = Problem::new(buffers, vec![Space::default()])?;
/// let packing = solve(&problem, &Budget::default())?;
/// assert_eq!((packing.peak(), packing.offsets()), (96, &[0, 64][..]));
/// let packing = compact(&problem, &packing, &Budget::default())?;
/// assert_eq!((packing.peak(), packing.offsets()), (96, &[0, 0][..]));
/// # Ok::<(), arenaplan_pack::Error>(())
/// ```
pub fn compact(problem: &Problem, packing: &Packing, budget: &Budget<'_>) -> Result<Packing> {
    packing.check(problem)?;
    if problem.has_choice() {
        // The spaces that were chosen stay.
        let fixed = problem.in_spaces(&packing.places)?;
        let plain = Packing { choice: None, ..packing.clone() };
        return Ok(Packing { choice: packing.choice, ..compact(&fixed, &plain, budget)? });
    }
    let mut lower = Falling::new(problem, packing.offsets().to_vec());
    let mut units = units(problem);
    units.sort_by_key(|unit| lower.offsets[unit[0]]);
    let mut is_settled = false;
    while !is_settled {
        is_settled = true;
        for unit in &units {
            is_settled &= !lower.fall(unit, budget);
        }
    }
    let mut packing = Packing { offsets: lower.offsets, ..packing.clone() };
    for (index, space) in problem.spaces().iter().enumerate() {
        let placed = problem.buffers().iter().zip(&packing.offsets);
        let ends =
            placed.filter(|it| it.0.space().index() == index).map(|(it, at)| at + it.bytes());
        let of_space = &mut packing.spaces[index];
        of_space.peak = ends.max().unwrap_or(0);
        of_space.status = Status::of(of_space.peak, of_space.lower_bound, space.capacity());
    }
    Ok(packing)
}

/// Returns the movable buffers; the buffers of a group are together.
fn units(problem: &Problem) -> Vec<Vec<usize>> {
    let mut groups = BTreeMap::new();
    let mut units: Vec<Vec<usize>> = Vec::new();
    for (index, buffer) in problem.buffers().iter().enumerate() {
        let Some(group) = buffer.group() else {
            units.push(alloc::vec![index]);
            continue;
        };
        let unit = *groups.entry((buffer.space(), group)).or_insert(units.len());
        match units.get_mut(unit) {
            Some(unit) => unit.push(index),
            None => units.push(alloc::vec![index]),
        }
    }
    units.retain(|unit| unit.iter().all(|&it| problem.buffers()[it].pin().is_none()));
    units
}

/// Buffers at offsets that become lower.
struct Falling<'p> {
    problem: &'p Problem,
    offsets: Vec<u64>,
    births: Births,
    /// For each buffer: the buffers that must be apart.
    apart: BTreeMap<usize, Vec<usize>>,
    /// Offset ranges that the current buffers cannot have.
    blocks: Vec<Range<u64>>,
    pairs: usize,
}

impl<'p> Falling<'p> {
    fn new(problem: &'p Problem, offsets: Vec<u64>) -> Self {
        let mut apart: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(one, other) in &problem.rules().apart {
            apart.entry(one.index()).or_default().push(other.index());
            apart.entry(other.index()).or_default().push(one.index());
        }
        let (births, blocks) = (Births::new(problem), Vec::new());
        Self { problem, offsets, births, apart, blocks, pairs: 0 }
    }

    /// Moves buffers with one offset to the lowest free offset; returns whether that offset is
    /// lower.
    fn fall(&mut self, unit: &[usize], budget: &Budget<'_>) -> bool {
        let now = self.offsets[unit[0]];
        if now == 0 || self.pairs > MOST_PAIRS || budget.exhausted() {
            return false;
        }
        self.blocks.clear();
        let (mut multiple, mut first) = (1, 0);
        for &it in unit {
            let buffer = &self.problem.buffers()[it];
            let own = self.problem.alignment(BufferId::new(it)).bytes();
            let own = least_common_multiple(own, buffer.multiple_of());
            let all = own.and_then(|own| least_common_multiple(own, multiple));
            multiple = all.unwrap_or(u64::MAX); // Offset 0 is the only common multiple.
            first = first.max(buffer.range().map_or(0, |range| range.start));
            self.find_blocks(it, unit);
        }
        self.blocks.sort_unstable_by_key(|it| it.start);
        let Some(mut lowest) = first.checked_next_multiple_of(multiple) else { return false };
        for block in &self.blocks {
            if block.contains(&lowest) {
                lowest = block.end.checked_next_multiple_of(multiple).unwrap_or(now);
            }
        }
        if lowest >= now {
            return false;
        }
        for &it in unit {
            self.offsets[it] = lowest;
        }
        true
    }

    /// Finds the offsets at which a buffer of a unit collides with a buffer outside the unit.
    fn find_blocks(&mut self, item: usize, unit: &[usize]) {
        let Self { problem, offsets, births, apart, blocks, pairs } = self;
        let buffer = &problem.buffers()[item];
        for it in problem.spaces()[buffer.space().index()].reserved() {
            blocks.push(it.start.saturating_add(1).saturating_sub(buffer.bytes())..it.end);
        }
        let mut block = |own: Range<u64>, at: u64, taken: Range<u64>| {
            let low = (at + taken.start + 1).saturating_sub(own.end);
            let high = (at + taken.end).saturating_sub(own.start);
            if low < high && !own.is_empty() && !taken.is_empty() {
                blocks.push(low..high);
            }
        };
        for other in births.live_with(problem, item, pairs) {
            let may = problem.rules().permits(BufferId::new(item), BufferId::new(other));
            if may || unit.contains(&other) {
                continue;
            }
            for (own, live) in buffer.rectangles() {
                for (taken, its) in problem.buffers()[other].rectangles() {
                    if live.overlaps(its) {
                        block(own.clone(), offsets[other], taken);
                    }
                }
            }
        }
        for &other in apart.get(&item).map_or(&[][..], Vec::as_slice) {
            let there = &problem.buffers()[other];
            if there.space() == buffer.space() {
                block(0..buffer.bytes(), offsets[other], 0..there.bytes());
            }
        }
    }
}
