//! The search state: the skyline of decided grains, and bounds of open items.

use alloc::vec::Vec;
use core::ops::Range;

use super::kinds::{ItemKind, kinds};
use super::subset_sums::SubsetSums;
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{align_up, index, number, real};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::random::mix;
use crate::solve::tuning;

/// A change to undo.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Section {
        section: u32,
        count: u32,
        floor: u64,
    },
    Low {
        kind: u32,
        low: u64,
    },
    /// An item was placed on the floor, or by the dominance rule at the roof.
    Placed {
        kind: u32,
        at_roof: bool,
    },
}

/// Proof that no packing below the target follows from this state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    /// A section in which there is not enough room.
    pub(super) section: u32,
}

/// The skyline of a partial packing, with a trail of changes for backtracking.
///
/// All grains below a section's *floor* are decided: taken or left empty. An *open* item is not
/// placed yet. An item's *low* is a lower bound of the offset. Invariants:
///
/// - an item's low is at least the floor of each of its sections;
/// - a floor is at least the least low of the section's open items, because lower grains can no
///   longer be used;
/// - `count` is the number of open kinds whose low is the floor;
/// - floor and total, the sizes of the open items, do not exceed the roof.
///
/// # References
///
/// Bounds propagation with a trail as in constraint programming (Schulte and Stuckey, "Efficient
/// constraint propagation engines", TOPLAS 31, 2008).
#[derive(Debug)]
pub(super) struct SkylineState {
    pub(super) kinds: Vec<ItemKind>,
    /// Unplaced copies of each kind.
    pub(super) left_over: Vec<u32>,
    pub(super) low: Vec<u64>,
    pub(super) floor: Vec<u64>,
    pub(super) total: Vec<u64>,
    /// The grain at which the section's items must end.
    pub(super) roof: Vec<u64>,
    /// The number of open kinds with the floor as low.
    pub(super) count: Vec<u32>,
    /// The number of open kinds that are live in the section and in the next section.
    pub(super) crossing: Vec<u32>,
    /// Each section's open kinds, followed by its closed kinds.
    pub(super) members: Vec<u32>,
    pub(super) first_member: Vec<usize>,
    /// The first kind that is born in each section, or later.
    first_born: Vec<usize>,
    pub(super) open: Vec<u32>,
    /// Each kind's positions in its sections' members.
    positions: Vec<u32>,
    /// Hash of the open items born in each section.
    born_hash: Vec<u64>,
    /// Placed items with their offsets.
    placed: Vec<(u32, u64)>,
    pub(super) trail: Vec<Change>,
    pub(super) uncovered: Vec<u32>,
    raised: Vec<(u32, u64)>,
    /// For [`SkylineState::settle`]: the difference in kinds standing on the floor between each
    /// section and the section before.
    standing: Vec<u32>,
    pub(super) sums: SubsetSums,
    /// Area of all open items, grains × sections.
    pub(super) left: u128,
    /// Open items looked at so far.
    pub(super) work: usize,
    /// Whether sizes alone matter: no alignments, pins or pads.
    pub(super) plain: bool,
}

impl SkylineState {
    /// Returns the state without placed items; nothing if the state would have more than `largest`
    /// entries.
    pub(super) fn new(model: &Model, clock: &Clock<'_>) -> Result<Option<Self>> {
        let sections = model.loads.len();
        let mut kinds = kinds(model, clock.methods().identical_items)?;
        let mut entries = 0;
        for kind in &mut kinds {
            kind.first_position = entries;
            entries += kind.sections().len();
            if entries > tuning::exact::LARGEST {
                return Ok(None);
            }
        }
        let plain = model.is_plain();
        let mut first_member = filled(0_usize, sections + 1, "sections")?;
        for section in kinds.iter().flat_map(ItemKind::sections) {
            first_member[section + 1] += 1;
        }
        for section in 0..sections {
            first_member[section + 1] += first_member[section];
        }
        // Kinds are in birth order.
        let mut first_born = with_capacity(sections + 1, "sections")?;
        first_born.extend(
            (0..=sections).map(|section| kinds.partition_point(|it| index(it.left) < section)),
        );
        let mut open = filled(0_u32, sections, "sections")?;
        let mut crossing = filled(0_u32, sections, "sections")?;
        let mut members = filled(0_u32, entries, "open items")?;
        let mut positions = filled(0_u32, entries, "open items")?;
        for (number_of, kind) in kinds.iter().enumerate() {
            for (step, section) in kind.sections().enumerate() {
                members[first_member[section] + index(open[section])] = number(number_of);
                positions[kind.first_position + step] = open[section];
                open[section] += 1;
                crossing[section] += u32::from(section + 1 < index(kind.right));
            }
        }
        let mut left_over = with_capacity(kinds.len(), "open items")?;
        left_over.extend(kinds.iter().map(|kind| number(kind.copies.len())));
        let mut born_hash = filled(0, sections, "sections")?;
        for (position, kind) in kinds.iter().enumerate() {
            for copy in 1..=number(kind.copies.len()) {
                born_hash[index(kind.left)] ^= copy_hash(number(position), copy);
            }
        }
        let state = Self {
            low: filled(0, kinds.len(), "open items")?,
            floor: filled(0, sections, "sections")?,
            total: model.loads.iter().map(|load| load.grains).collect(),
            roof: filled(0, sections, "sections")?,
            count: filled(0, sections, "sections")?,
            born_hash,
            placed: with_capacity(model.items.len(), "open items")?,
            trail: Vec::new(),
            uncovered: Vec::new(),
            raised: Vec::new(),
            standing: filled(0, sections + 1, "sections")?,
            first_born,
            sums: SubsetSums::new(sections)?,
            left: kinds.iter().map(ItemKind::whole_area).sum(),
            work: 0,
            kinds,
            left_over,
            crossing,
            members,
            first_member,
            open,
            positions,
            plain,
        };
        Ok(Some(state))
    }

    /// Starts over, with all items to end at byte `target` or before.
    pub(super) fn restart(&mut self, model: &Model, target: u64) -> Result<(), Conflict> {
        self.undo(Mark { trail: 0, placed: 0 });
        for kind in 0..self.kinds.len() {
            let item = index(self.kinds[kind].copies[0]);
            let section = self.kinds[kind].left;
            let ceiling = model.ceiling(item, target).ok_or(Conflict { section })?;
            let pin = model.pin(&model.items[item]);
            if pin.is_some_and(|pin| pin > ceiling) {
                return Err(Conflict { section });
            }
            self.kinds[kind].ceiling = pin.unwrap_or(ceiling);
            self.low[kind] = pin.unwrap_or(0);
        }
        for section in 0..self.floor.len() {
            self.floor[section] = 0;
            self.roof[section] = (target + model.loads[section].pad) / model.grain;
            if self.total[section] > self.roof[section] {
                return Err(Conflict { section: number(section) });
            }
            self.count_again(section)?;
        }
        self.sums.forget();
        Ok(())
    }

    /// Returns a section's open kinds.
    pub(super) fn open_in(&self, section: usize) -> &[u32] {
        let first = self.first_member[section];
        &self.members[first..first + index(self.open[section])]
    }

    /// Returns whether a section has open kinds.
    pub(super) fn is_open(&self, section: usize) -> bool {
        self.open[section] > 0
    }

    /// Returns the grains in a section that may still be given up.
    pub(super) fn slack(&self, section: usize) -> u64 {
        self.roof[section] - self.floor[section] - self.total[section]
    }

    /// Returns the present position, for backtracking.
    pub(super) fn mark(&self) -> Mark {
        Mark { trail: self.trail.len(), placed: self.placed.len() }
    }

    /// Goes back to a mark.
    pub(super) fn undo(&mut self, mark: Mark) {
        while self.trail.len() > mark.trail {
            match self.trail.pop().expect("the trail is longer than the mark") {
                Change::Section { section, count, floor } => {
                    self.count[index(section)] = count;
                    self.floor[index(section)] = floor;
                }
                Change::Low { kind, low } => self.low[index(kind)] = low,
                Change::Placed { kind, at_roof } => self.reopen(kind, at_roof),
            }
        }
        self.placed.truncate(mark.placed);
    }

    /// Returns the number of sections whose floor differs from the section before, while some open
    /// item is live in both.
    pub(super) fn steps(&self, sections: Range<usize>) -> u32 {
        let floors = self.floor[sections.clone()].windows(2);
        let steps = floors.zip(&self.crossing[sections]);
        steps.map(|(pair, &crossing)| u32::from(crossing > 0 && pair[0] != pair[1])).sum()
    }

    /// Stores the offset of an item of each kind, and `u64::MAX` for open kinds.
    pub(super) fn record(&self, offsets: &mut Vec<u64>) -> Result<()> {
        *offsets = filled(u64::MAX, self.kinds.len(), "offsets")?;
        for &(kind, offset) in &self.placed {
            offsets[index(kind)] = offset;
        }
        Ok(())
    }

    /// Returns every item's offset once all items are placed.
    pub(super) fn offsets(&self, items: usize) -> Result<Vec<u64>> {
        let mut offsets = filled(0, items, "offsets")?;
        let mut used = filled(0_usize, self.kinds.len(), "open items")?;
        for &(kind, offset) in &self.placed {
            let kind = index(kind);
            offsets[index(self.kinds[kind].copies[used[kind]])] = offset;
            used[kind] += 1;
        }
        Ok(offsets)
    }

    /// Removes a copy of a kind from the unplaced copies.
    pub(super) fn close(&mut self, kind: u32, at_roof: bool) {
        let at = index(kind);
        let it = &self.kinds[at];
        let offset = if at_roof { self.roof[index(it.left)] - it.size } else { self.low[at] };
        self.placed.push((kind, offset));
        self.trail.push(Change::Placed { kind, at_roof });
        self.left -= it.area();
        let copies = self.left_over[at];
        self.born_hash[index(it.left)] ^= copy_hash(kind, copies);
        self.left_over[at] = copies - 1;
        if copies > 1 {
            return;
        }
        for (step, section) in it.sections().enumerate() {
            // Swap with the last open kind: undoing just increments the count.
            let first = self.first_member[section];
            let last = self.open[section] - 1;
            self.open[section] = last;
            let position = self.positions[it.first_position + step];
            let moved = self.members[first + index(last)];
            self.members.swap(first + index(position), first + index(last));
            let other = &self.kinds[index(moved)];
            self.positions[other.first_position + section - index(other.left)] = position;
            self.positions[it.first_position + step] = last;
        }
        for section in index(it.left)..index(it.right) - 1 {
            self.crossing[section] -= 1;
        }
    }

    /// Undoes [`SkylineState::close`].
    fn reopen(&mut self, kind: u32, at_roof: bool) {
        let at = index(kind);
        let it = &self.kinds[at];
        self.left += it.area();
        for section in it.sections() {
            self.total[section] += it.size;
            if at_roof {
                self.roof[section] += it.size;
            }
        }
        if self.left_over[at] == 0 {
            for section in it.sections() {
                self.open[section] += 1;
            }
            for section in index(it.left)..index(it.right) - 1 {
                self.crossing[section] += 1;
            }
        }
        self.left_over[at] += 1;
        self.born_hash[index(it.left)] ^= copy_hash(kind, self.left_over[at]);
    }

    /// Changes a floor, for [`SkylineState::settle`] to follow.
    pub(super) fn set_floor(&mut self, section: usize, floor: u64) {
        self.trail.push(Change::Section {
            section: number(section),
            count: self.count[section],
            floor: self.floor[section],
        });
        self.floor[section] = floor;
    }

    /// Restores the invariants after the floors of `sections` rose to `floor`.
    pub(super) fn settle(&mut self, sections: Range<usize>, floor: u64) -> Result<f64, Conflict> {
        self.uncovered.clear();
        self.raised.clear();
        // A kind in these sections is live in the first section, or born in a later section.
        for position in 0..index(self.open[sections.start]) {
            let kind = self.members[self.first_member[sections.start] + position];
            self.stand_on(kind, &sections, floor);
        }
        let born = self.first_born[sections.start + 1]..self.first_born[sections.end];
        self.work += born.len() + sections.len();
        for kind in born.map(number) {
            if self.left_over[index(kind)] > 0 {
                self.stand_on(kind, &sections, floor);
            }
        }
        let mut count = 0_u32;
        for section in sections.clone() {
            count = count.wrapping_add(core::mem::take(&mut self.standing[section]));
            self.count[section] = count;
            self.sums.suspect(section);
            if count == 0 && self.is_open(section) {
                self.uncovered.push(number(section));
            }
        }
        self.standing[sections.end] = 0;
        // A raised item can no longer be on its former floor.
        for position in 0..self.raised.len() {
            let (kind, low) = self.raised[position];
            let it = &self.kinds[index(kind)];
            let own = it.sections();
            if self.low[index(kind)] > self.ceiling(it) {
                return Err(Conflict { section: number(own.start.max(sections.start)) });
            }
            for section in (own.start..sections.start).chain(sections.end..own.end) {
                if self.floor[section] == low {
                    self.drop_count(section);
                }
            }
        }
        self.cover()
    }

    /// Raises an open kind's low to the floor of some sections, and records where among these the
    /// kind stands on the floor.
    fn stand_on(&mut self, kind: u32, sections: &Range<usize>, floor: u64) {
        self.work += 1;
        let it = &self.kinds[index(kind)];
        let low = self.low[index(kind)];
        if low < floor {
            self.trail.push(Change::Low { kind, low });
            self.raised.push((kind, low));
            self.low[index(kind)] = align_up(floor, it.mask);
        }
        if self.low[index(kind)] == floor {
            // A section's count is the sum of all entries up to the section's own.
            let start = sections.start.max(index(it.left));
            let end = sections.end.min(index(it.right));
            self.standing[start] = self.standing[start].wrapping_add(1);
            self.standing[end] = self.standing[end].wrapping_sub(1);
        }
    }

    /// Returns an item's highest offset.
    pub(super) fn ceiling(&self, kind: &ItemKind) -> u64 {
        if self.plain {
            // All sections of a component have the same roof, which the dominance rule lowers.
            self.roof[index(kind.left)].saturating_sub(kind.size)
        } else {
            kind.ceiling
        }
    }

    /// Decrements the number of kinds on a section's floor.
    pub(super) fn drop_count(&mut self, section: usize) {
        let (count, floor) = (self.count[section], self.floor[section]);
        if count == 0 {
            return; // The section already waits to be covered.
        }
        self.trail.push(Change::Section { section: number(section), count, floor });
        self.count[section] = count - 1;
        self.sums.suspect(section);
        if count == 1 {
            self.uncovered.push(number(section));
        }
    }

    /// Lifts the floors on which no open item can stand.
    pub(super) fn cover(&mut self) -> Result<f64, Conflict> {
        let mut loss = 0.0;
        for position in 0..self.uncovered.len() {
            let section = index(self.uncovered[position]);
            let (floor, slack) = (self.floor[section], self.slack(section));
            self.count_again(section)?;
            let given_up = self.floor[section] - floor;
            if given_up > 0 {
                loss += real(given_up) / real(slack);
            }
        }
        Ok(loss)
    }

    /// Lifts a section's floor to the least low, and counts the kinds with this low.
    fn count_again(&mut self, section: usize) -> Result<(), Conflict> {
        let (mut least, mut count) = (u64::MAX, 0);
        for &kind in self.open_in(section) {
            let low = self.low[index(kind)];
            if low < least {
                (least, count) = (low, 0);
            }
            count += u32::from(low == least);
        }
        if count == 0 {
            return Ok(());
        }
        if least > self.roof[section] || least + self.total[section] > self.roof[section] {
            return Err(Conflict { section: number(section) });
        }
        self.set_floor(section, least);
        self.count[section] = count;
        self.sums.suspect(section);
        Ok(())
    }

    /// Returns the hash of a component's sections and open items.
    ///
    /// Only the distance between a section's floor and roof matters.
    pub(super) fn component_hash(&self, sections: Range<usize>) -> u64 {
        let mut hash = 0;
        for section in sections {
            hash ^= mix(section, self.roof[section] - self.floor[section]);
            hash ^= self.born_hash[section];
        }
        hash
    }
}

/// Returns the hash of an open item of a kind; the hashes of all copies together encode the number
/// of copies.
fn copy_hash(kind: u32, copy: u32) -> u64 {
    mix(!index(kind), copy.into())
}

/// How long the trail was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    trail: usize,
    placed: usize,
}
