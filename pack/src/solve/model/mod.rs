//! A search's data: a problem's space, with times in sections and sizes in grains.
//!
//! # References
//!
//! Moffitt, "`MiniMalloc`: A Lightweight Memory Allocator for Hardware-Accelerated Machine
//! Learning", ASPLOS 2023 (volume 4), divides time into sections and restricts the search to
//! canonical solutions, in which each buffer rests on another buffer or on the ground. Grains and
//! pads are new, as far as known.

pub(super) mod arith;
pub(super) mod clock;
pub(super) mod loads;
pub(super) mod memory;
pub(super) mod random;
pub(super) mod sections;
pub(super) mod sort;
pub(super) mod waiting;

use alloc::{vec, vec::Vec};
use core::cmp::Reverse;
use core::ops::Range;

use crate::base::{Alignment, BufferId, Error, LiveRange, MAX_BYTES, Result, gcd};
use crate::problem::Problem;
use arith::{align_up, index, number};
use clock::Clock;
use memory::{filled, with_capacity};
use sections::Sections;
use sort::{order_by_number, sort};

/// A buffer with at least one byte.
///
/// Rare item properties are in a table, so that the item list stays small: the time of a pass over
/// millions of items is proportional to their memory.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Sections from the first to the last in which a part of the item is live.
    pub(crate) span: Range<u32>,
    /// Grains from the first to the last byte.
    pub(crate) size: u64,
    /// The item's [`ItemDetails`] in the model.
    details: u32,
    /// Binary logarithm of the alignment in grains.
    shift: u8,
    solid: bool,
}

impl Item {
    /// Returns whether all bytes are live in all the item's sections.
    pub(crate) const fn solid(&self) -> bool {
        self.solid
    }

    /// Returns the alignment in grains, a power of two, minus one.
    pub(crate) const fn mask(&self) -> u64 {
        (1 << self.shift) - 1
    }

    /// Returns the number of sections from the first to the last.
    pub(crate) const fn length(&self) -> u32 {
        self.span.end - self.span.start
    }
}

/// Properties that few items have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ItemDetails {
    /// Bytes by which an item's grains exceed the buffer.
    pad: u64,
    /// The fixed grain.
    pin: Option<u64>,
    /// The parts' positions in [`Model::boxes`]; empty if the item is solid.
    boxes: Range<u32>,
}

/// A part of an item: grains inside the item that are live in some sections.
#[derive(Clone, Debug)]
pub(crate) struct Boxed {
    /// Sections.
    pub(crate) span: Range<u32>,
    /// Grains above the item's first grain.
    pub(crate) grains: Range<u64>,
}

/// A section's load: the sizes of all live items.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Sum of sizes, in grains.
    pub(crate) grains: u64,
    /// The largest pad among the section's items, in bytes.
    pub(crate) pad: u64,
}

/// A space's buffers with at least one byte, in sections and grains.
///
/// A *grain* is a byte count that divides all sizes, all pins, and the alignments that do not
/// follow from these. In a packing in which every buffer rests on another buffer or on the ground,
/// all offsets are multiples of the grain. So solvers count in grains, and a problem with all sizes
/// doubled has the same model.
///
/// If all buffers are solid, sizes are first rounded up to the smallest alignment. Only a section's
/// highest buffer does not need its *pad*.
///
/// Items are in the order of their first sections. Items with the same first section are in an
/// order that depends on their properties and not on the input rows. So a pass in time order reads
/// memory in order.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) items: Vec<Item>,
    /// Each item's buffer.
    pub(crate) ids: Vec<BufferId>,
    /// Starts with the entry for items without details.
    details: Vec<ItemDetails>,
    boxes: Vec<Boxed>,
    pub(crate) loads: Vec<Load>,
    /// The pads that there are.
    pads: Vec<u64>,
    /// Bytes per grain.
    pub(crate) grain: u64,
    /// Bytes that no packing can do without.
    pub(crate) bound: u64,
}

impl Model {
    /// Returns the model of the buffers `members`, all in the same space; nothing if the caller
    /// wants an answer before the model is complete.
    pub(crate) fn new(
        problem: &Problem,
        members: &[BufferId],
        clock: &Clock<'_>,
    ) -> Result<Option<Self>> {
        let mut ids = with_capacity(members.len(), "buffers")?;
        let (mut tallest, mut solid) = (0, true);
        let (mut coarsest, mut finest) = (Alignment::BYTE, None);
        for &id in members {
            let (buffer, alignment) = (problem.buffer(id), problem.alignment(id));
            tallest = tallest.max(buffer.bytes() + buffer.pin().unwrap_or(0));
            solid &= buffer.solid().is_some();
            coarsest = coarsest.max(alignment);
            finest = Some(alignment.min(finest.unwrap_or(alignment)));
            if buffer.bytes() > 0 {
                ids.push(id);
            }
        }
        let round = if solid { finest.unwrap_or_default().bytes() - 1 } else { 0 };
        let grain = grain(problem, &ids, round, coarsest);
        if clock.is_over() {
            return Ok(None);
        }
        let lives = ids.iter().map(|&id| problem.buffer(id));
        let sections = if solid {
            Sections::of(lives.map(|it| steps(it.live())), ids.len())?
        } else {
            let lives = lives.flat_map(|it| it.rectangles().map(|(_, live)| steps(live)));
            Sections::of(lives.clone(), lives.count())?
        };
        if clock.is_over() {
            return Ok(None);
        }
        let (mut ids, first) = by_birth(problem, &ids, &sections)?;
        if clock.is_over() {
            return Ok(None);
        }
        let mut model = Self::empty(ids.len(), sections.count(), grain)?;
        let mut keyed = Vec::new();
        for (count, bounds) in first.windows(2).enumerate() {
            let together = &mut ids[index(bounds[0])..index(bounds[1])];
            keyed.clear();
            keyed.extend(together.iter().map(|&id| {
                let it = problem.buffer(id);
                let end = sections.span(&steps(it.live())).end;
                (end, it.bytes(), problem.alignment(id), it.pin(), id)
            }));
            if !sort(&mut keyed, clock) || clock.is_over_at(count) {
                return Ok(None);
            }
            for (place, &(.., id)) in together.iter_mut().zip(&keyed) {
                *place = id;
                model.push_buffer(problem, id, &sections, round);
            }
        }
        model.ids = ids;
        model.add_up()?;
        let loads = model.loads.iter().map(|load| load.grains * grain - load.pad);
        model.bound = loads.fold(tallest, u64::max);
        if model.bound > MAX_BYTES {
            return Err(Error::SizeOverflow { what: "all that is live at once".into() });
        }
        Ok(Some(model))
    }

    /// Returns the model of some items only, given in ascending order.
    pub(crate) fn restricted_to(&self, kept: &[u32]) -> Result<Self> {
        let items = kept.iter().map(|&item| &self.items[index(item)]);
        let sections = if self.all_solid() {
            Sections::of(items.clone().map(|it| it.span.clone()), kept.len())?
        } else {
            let whole = |it: &Item| it.solid.then(|| it.span.clone());
            let parts = |it| self.boxes(it).iter().map(|part| part.span.clone());
            let lives = items.clone().flat_map(|it| whole(it).into_iter().chain(parts(it)));
            Sections::of(lives.clone(), lives.count())?
        };
        let mut model = Self::empty(kept.len(), sections.count(), self.grain)?;
        for it in items {
            let boxes = model.boxes.len();
            model.boxes.extend(self.boxes(it).iter().map(|part| Boxed {
                span: sections.span(&part.span),
                grains: part.grains.clone(),
            }));
            let boxes = number(boxes)..number(model.boxes.len());
            let details = ItemDetails { boxes, ..self.details[index(it.details)] };
            model.push(sections.span(&it.span), it.size, 1 << it.shift, details);
        }
        model.ids = with_capacity(kept.len(), "buffers")?;
        model.ids.extend(kept.iter().map(|&item| self.ids[index(item)]));
        model.bound = self.bound;
        model.add_up()?;
        Ok(model)
    }

    /// Returns whether only sizes and sections matter for all items.
    pub(crate) fn is_plain(&self) -> bool {
        self.details.len() == 1 && self.items.iter().all(|it| it.shift == 0)
    }

    /// Returns whether there are `ratio` times as many sections as live items per section, on
    /// average: the graph is deep, and few items meet.
    pub(crate) fn is_long(&self, ratio: u32) -> bool {
        let sections = u128::from(number(self.loads.len()));
        let lengths: u128 = self.items.iter().map(|it| u128::from(it.length())).sum();
        sections * sections >= lengths * u128::from(ratio)
    }

    /// Returns whether some item has windows, an alignment that does not follow from sizes, or a pin.
    pub(crate) fn is_rigid(&self) -> bool {
        !self.all_solid() || self.has_pins() || self.items.iter().any(|it| it.shift > 0)
    }

    /// Returns the model of solid items with these sections and sizes, reusing the memory.
    pub(crate) fn of_solids(
        &self,
        solids: impl ExactSizeIterator<Item = (Range<u32>, u64)> + Clone,
    ) -> Result<Self> {
        let sections = Sections::of(solids.clone().map(|(live, _)| live), solids.len())?;
        let mut model = Self::empty(solids.len(), sections.count(), self.grain)?;
        for (live, size) in solids {
            model.push(sections.span(&live), size, 1, ItemDetails::default());
        }
        model.bound = self.bound;
        model.add_up()?;
        Ok(model)
    }

    /// Returns a model without items, with reserved room.
    fn empty(items: usize, sections: usize, grain: u64) -> Result<Self> {
        Ok(Self {
            items: with_capacity(items, "buffers")?,
            ids: Vec::new(),
            details: vec![ItemDetails::default()],
            boxes: Vec::new(),
            loads: filled(Load::default(), sections, "sections")?,
            pads: Vec::new(),
            grain,
            bound: 0,
        })
    }

    /// Adds a buffer's item, with the size rounded up.
    fn push_buffer(&mut self, problem: &Problem, id: BufferId, sections: &Sections, round: u64) {
        let (buffer, grain) = (problem.buffer(id), self.grain);
        let bytes = align_up(buffer.bytes(), round);
        let (pad, pin) = (bytes - buffer.bytes(), buffer.pin().map(|pin| pin / grain));
        let boxes = self.boxes.len();
        if buffer.solid().is_none() {
            self.boxes.extend(buffer.rectangles().map(|(bytes, live)| Boxed {
                span: sections.span(&steps(live)),
                grains: bytes.start / grain..bytes.end / grain,
            }));
        }
        let details = ItemDetails { pad, pin, boxes: number(boxes)..number(self.boxes.len()) };
        let alignment = (problem.alignment(id).bytes() / grain).max(1);
        self.push(sections.span(&steps(buffer.live())), bytes / grain, alignment, details);
    }

    /// Adds an item, whose alignment is in grains.
    fn push(&mut self, span: Range<u32>, size: u64, alignment: u64, details: ItemDetails) {
        let solid = details.boxes.is_empty();
        let shift = alignment.trailing_zeros().try_into().unwrap_or(0);
        let mut place = 0;
        if details.pad > 0 || details.pin.is_some() || !solid {
            place = number(self.details.len());
            self.details.push(details);
        }
        self.items.push(Item { span, size, details: place, shift, solid });
    }

    /// Computes each section's load from the items.
    fn add_up(&mut self) -> Result<()> {
        // All items born in a section are live at once, and so are all items that die at its start.
        let mut loads = core::mem::take(&mut self.loads);
        let mut dead = filled(0_u64, loads.len() + 1, "sections")?;
        let mut fits = true;
        for item in 0..self.items.len() {
            self.each_box(item, |span, grains| {
                let size = grains.end - grains.start;
                for sum in [&mut loads[index(span.start)].grains, &mut dead[index(span.end)]] {
                    let more = sum.checked_add(size);
                    fits &= more.is_some();
                    *sum = more.unwrap_or(*sum);
                }
            });
        }
        let mut live = 0_u64;
        for (load, dead) in loads.iter_mut().zip(dead) {
            let sum = if fits { (live - dead).checked_add(load.grains) } else { None };
            live = sum
                .filter(|grains| grains.checked_mul(self.grain).is_some())
                .ok_or_else(|| Error::SizeOverflow { what: "all that is live at once".into() })?;
            load.grains = live;
        }
        self.loads = loads;
        self.find_pads()
    }

    /// Finds the pads, and each section's largest pad.
    fn find_pads(&mut self) -> Result<()> {
        let mut padded = Vec::new();
        if self.details.len() > 1 {
            padded.extend(self.items.iter().filter(|it| self.pad(it) > 0));
        }
        if padded.len() < self.items.len() {
            self.pads.push(0);
        }
        if padded.is_empty() {
            return Ok(());
        }
        // Largest pads first: a section keeps the first pad that reaches the section.
        padded.sort_unstable_by_key(|it| Reverse(self.pad(it)));
        let mut next = with_capacity(self.loads.len() + 1, "sections")?;
        next.extend(0..=self.loads.len());
        for it in padded {
            let pad = self.details[index(it.details)].pad;
            let mut section = find(&mut next, index(it.span.start));
            while section < index(it.span.end) {
                self.loads[section].pad = pad;
                next[section] = section + 1;
                section = find(&mut next, section);
            }
            if self.pads.last() != Some(&pad) {
                self.pads.push(pad);
            }
        }
        Ok(())
    }

    /// Calls `visit` with the sections and grains of each part of an item.
    pub(crate) fn each_box(&self, item: usize, mut visit: impl FnMut(&Range<u32>, Range<u64>)) {
        let it = &self.items[item];
        if it.solid {
            visit(&it.span, 0..it.size);
        }
        for part in self.boxes(it) {
            visit(&part.span, part.grains.clone());
        }
    }

    /// Returns the bytes by which an item's grains exceed the buffer.
    pub(crate) fn pad(&self, item: &Item) -> u64 {
        self.details[index(item.details)].pad
    }

    /// Returns an item's fixed grain, if any.
    pub(crate) fn pin(&self, item: &Item) -> Option<u64> {
        self.details[index(item.details)].pin
    }

    /// Returns the parts of an item that is not solid.
    pub(crate) fn boxes(&self, item: &Item) -> &[Boxed] {
        let Range { start, end } = self.details[index(item.details)].boxes;
        &self.boxes[index(start)..index(end)]
    }

    /// Returns whether every item is solid.
    pub(crate) fn all_solid(&self) -> bool {
        self.boxes.is_empty()
    }

    /// Returns whether some item is fixed.
    pub(crate) fn has_pins(&self) -> bool {
        self.details.iter().any(|details| details.pin.is_some())
    }

    /// Returns the byte after an item's last byte, for grain `offset`.
    pub(crate) fn end_in_bytes(&self, item: usize, offset: u64) -> u64 {
        let it = &self.items[item];
        (offset + it.size) * self.grain - self.pad(it)
    }

    /// Returns the highest grain at which an item ends at byte `target` or before, if any.
    pub(crate) fn ceiling(&self, item: usize, target: u64) -> Option<u64> {
        let it = &self.items[item];
        let grains = (target + self.pad(it)) / self.grain;
        Some(grains.checked_sub(it.size)? & !it.mask())
    }

    /// Returns the lowest peak from byte `bytes` on at which an item can end.
    pub(crate) fn peak_from(&self, bytes: u64) -> u64 {
        let ends = self.pads.iter().map(|pad| (bytes + pad).next_multiple_of(self.grain) - pad);
        ends.min().unwrap_or(bytes)
    }

    /// Returns the highest item's end, in bytes.
    pub(crate) fn peak(&self, offsets: &[u64]) -> u64 {
        let ends = offsets.iter().enumerate().map(|(item, &at)| self.end_in_bytes(item, at));
        ends.max().unwrap_or(0)
    }
}

/// Returns the first section from `section` on that has no pad yet, shortening the way.
fn find(next: &mut [usize], mut section: usize) -> usize {
    while next[section] != section {
        next[section] = next[next[section]];
        section = next[section];
    }
    section
}

/// Returns a live range in numbers.
fn steps(live: LiveRange) -> Range<u32> {
    live.start().get()..live.end().get()
}

/// Returns buffers in birth order, and the start of each section's buffers.
fn by_birth(
    problem: &Problem,
    ids: &[BufferId],
    sections: &Sections,
) -> Result<(Vec<BufferId>, Vec<u32>)> {
    let mut births = with_capacity(ids.len(), "buffers")?;
    births.extend(ids.iter().map(|&id| sections.span(&steps(problem.buffer(id).live())).start));
    let (order, first) = order_by_number(&births, sections.count())?;
    let mut sorted = with_capacity(ids.len(), "buffers")?;
    sorted.extend(order.into_iter().map(|position| ids[index(position)]));
    Ok((sorted, first))
}

/// Returns the largest byte count that may divide all offsets.
fn grain(problem: &Problem, ids: &[BufferId], round: u64, coarsest: Alignment) -> u64 {
    let mut common = 0;
    for &id in ids {
        let buffer = problem.buffer(id);
        common = gcd(common, align_up(buffer.bytes(), round));
        common = gcd(common, buffer.pin().unwrap_or(0));
        if buffer.solid().is_none() {
            for (bytes, _) in buffer.rectangles() {
                common = gcd(gcd(common, bytes.start), bytes.end);
            }
        }
    }
    let common = common.max(1);
    // An alignment that divides the common divisor comes for free.
    if coarsest.divides(common) {
        return common;
    }
    ids.iter()
        .map(|&id| problem.alignment(id).bytes())
        .filter(|alignment| !common.is_multiple_of(*alignment))
        .fold(common, gcd)
}
