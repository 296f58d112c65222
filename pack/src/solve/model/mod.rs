//! The data of a search: one space of a problem, with times in sections and sizes in grains.
//!
//! # References
//!
//! Moffitt, "`MiniMalloc`: A Lightweight Memory Allocator for Hardware-Accelerated
//! Machine Learning", ASPLOS 2023 (volume 4), divides time into sections and restricts the search to canonical
//! solutions, in which each buffer rests on another one or on the ground. Grains and pads are new,
//! as far as known.

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
/// Rare properties of items are in a table of the model, so that the list of items stays small: a
/// pass over millions of items takes as long as their memory is large.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Sections from the first to the last one in which a part of it is live.
    pub(crate) span: Range<u32>,
    /// Grains from its first to its last byte.
    pub(crate) size: u64,
    /// Its [`ItemDetails`] in the model.
    details: u32,
    /// Binary logarithm of its alignment in grains.
    shift: u8,
    solid: bool,
}

impl Item {
    /// Returns whether all its bytes are live in all its sections.
    pub(crate) const fn solid(&self) -> bool {
        self.solid
    }

    /// Returns its alignment in grains, a power of two, less one.
    pub(crate) const fn mask(&self) -> u64 {
        (1 << self.shift) - 1
    }

    /// Returns the number of sections from its first to its last one.
    pub(crate) const fn length(&self) -> u32 {
        self.span.end - self.span.start
    }
}

/// Properties that few items have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ItemDetails {
    /// Bytes by which an item's grains exceed the buffer.
    pad: u64,
    /// The grain at which it is fixed.
    pin: Option<u64>,
    /// Where in [`Model::boxes`] its parts are; empty if it is solid.
    boxes: Range<u32>,
}

/// A part of an item: grains inside the item that are live in some sections.
#[derive(Clone, Debug)]
pub(crate) struct Boxed {
    /// Sections.
    pub(crate) span: Range<u32>,
    /// Grains above the item's first one.
    pub(crate) grains: Range<u64>,
}

/// Load of one section: the sizes of all items that are live there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Sum of sizes, in grains.
    pub(crate) grains: u64,
    /// The largest pad of an item of the section, in bytes.
    pub(crate) pad: u64,
}

/// The buffers of one space that have bytes, in sections and grains.
///
/// A *grain* is a number of bytes that divides all sizes, all pins, and the alignments that do not
/// follow from those. In a packing in which every buffer rests on another one or on the ground, all
/// offsets are multiples of the grain. So solvers count in grains, and a problem with all sizes
/// doubled is the same model.
///
/// If all buffers are solid, sizes are first rounded up to the smallest alignment. Only the highest
/// buffer of a section does without its *pad*.
///
/// Items are in the order of their first sections. Items of one section are in an order that
/// depends on their properties and not on the rows of the input. So a pass in the order of time
/// reads memory in its order.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) items: Vec<Item>,
    /// The buffer of each item.
    pub(crate) ids: Vec<BufferId>,
    /// First those of items that have none.
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
    /// Returns the model of the buffers `members`, all of one space; nothing if the caller
    /// wants an answer before it is complete.
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

    /// Returns whether of all items nothing matters but sizes and sections.
    pub(crate) fn is_plain(&self) -> bool {
        self.details.len() == 1 && self.items.iter().all(|it| it.shift == 0)
    }

    /// Returns whether there are `ratio` times as many sections as items that are live in one, on
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

    /// Returns the model of solid items with these sections and sizes, in the same memory.
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

    /// Returns a model without items, with room for them.
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

    /// Adds the item of a buffer, whose size is rounded up.
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

    /// Computes the load of each section from the items.
    fn add_up(&mut self) -> Result<()> {
        // All that is born in a section is live at once, and so is all that dies at its start.
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

    /// Finds which pads there are, and the largest one of each section.
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
        // Largest pads first: a section keeps the first pad that reaches it.
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

    /// Returns the bytes by which the grains of an item exceed the buffer.
    pub(crate) fn pad(&self, item: &Item) -> u64 {
        self.details[index(item.details)].pad
    }

    /// Returns the grain at which an item is fixed, if it is.
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

    /// Returns the byte after the last one of an item at grain `offset`.
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

    /// Returns the end of the highest item, in bytes.
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

/// Returns buffers in the order of their births, and where those of each section start.
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

/// Returns the largest number of bytes of which all offsets may be multiples.
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
