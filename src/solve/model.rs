//! One space of a problem as the solvers see it: times in sections, sizes in grains.

use std::ops::Range;

use super::arith::{align_up, index, number};
use super::clock::Clock;
use super::memory::{filled, with_capacity};
use super::sections::compress;
use crate::error::{Error, Result};
use crate::index::BufferId;
use crate::problem::Problem;
use crate::units::{MAX_BYTES, gcd};

/// A buffer with at least one byte.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Sections from the first to the last one in which a part of it is live.
    pub(super) span: Range<u32>,
    /// Grains from its first to its last byte.
    pub(super) size: u64,
    /// Its alignment in grains, a power of two, less one.
    pub(super) mask: u64,
    /// Bytes by which `size` grains exceed the buffer.
    pub(super) pad: u64,
    /// The grain at which it is fixed.
    pub(super) pin: Option<u64>,
    /// Where in [`Model::boxes`] its parts are; empty if it is solid.
    boxes: Range<u32>,
}

impl Item {
    /// Returns whether all its bytes are live in all its sections.
    pub(super) const fn solid(&self) -> bool {
        self.boxes.start == self.boxes.end
    }

    /// Returns the number of sections from its first to its last one.
    pub(super) const fn length(&self) -> u32 {
        self.span.end - self.span.start
    }
}

/// A part of an item: grains inside the item that are live in some sections.
#[derive(Clone, Debug)]
pub(super) struct Boxed {
    /// Sections.
    pub(super) span: Range<u32>,
    /// Grains above the item's first one.
    pub(super) grains: Range<u64>,
}

/// What is live in one section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Sum of sizes, in grains.
    pub(super) grains: u64,
    /// The largest pad of an item of the section, in bytes.
    pub(super) pad: u64,
}

/// Buffers of one space that remain to be packed, in sections and grains.
///
/// A *grain* divides all that matters: sizes, pins, and those alignments that are
/// not implied. Pushing buffers down until they rest on each other shows that
/// offsets at multiples of the grain suffice, so solvers count in grains, and a
/// problem with all sizes doubled is the same model.
///
/// Where all buffers are solid, sizes are first rounded up to the smallest
/// alignment: only the highest buffer of a section does not need its *pad*.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) items: Vec<Item>,
    /// The buffer of each item.
    pub(super) ids: Vec<BufferId>,
    boxes: Vec<Boxed>,
    pub(super) loads: Vec<Load>,
    /// The pads that there are.
    pads: Vec<u64>,
    /// Bytes per grain.
    pub(super) grain: u64,
    /// Bytes that no packing can do without.
    pub(super) bound: u64,
}

impl Model {
    /// Returns the model of the buffers `members`, all of one space; nothing if the caller
    /// wants an answer before it is complete.
    pub(super) fn new(
        problem: &Problem,
        members: &[BufferId],
        clock: &Clock<'_>,
    ) -> Result<Option<Self>> {
        let solid = members.iter().all(|&id| problem.buffer(id).solid().is_some());
        let coarse = members.iter().map(|&id| problem.alignment(id).bytes()).min().unwrap_or(1);
        let round = if solid { coarse - 1 } else { 0 };
        let mut ids = with_capacity(members.len(), "buffers")?;
        ids.extend(members.iter().copied().filter(|&id| problem.buffer(id).bytes() > 0));
        let grain = grain(problem, &ids, round);

        let mut items = with_capacity(ids.len(), "buffers")?;
        let mut boxes = Vec::new();
        let mut lives = with_capacity(ids.len(), "live ranges")?;
        let ends = members.iter().map(|&id| problem.buffer(id));
        let tallest = ends.map(|it| it.bytes() + it.pin().unwrap_or(0)).max().unwrap_or(0);
        for (count, &id) in ids.iter().enumerate() {
            if clock.is_over_at(count) {
                return Ok(None);
            }
            let buffer = problem.buffer(id);
            let first = number(boxes.len());
            if let Some(live) = buffer.solid() {
                lives.push(live.start().get()..live.end().get());
            } else {
                for (bytes, live) in buffer.rectangles() {
                    let grains = bytes.start / grain..bytes.end / grain;
                    boxes.push(Boxed { span: live.start().get()..live.end().get(), grains });
                }
                let live = buffer.live();
                lives.push(live.start().get()..live.end().get());
            }
            let bytes = align_up(buffer.bytes(), round);
            items.push(Item {
                span: 0..0,
                size: bytes / grain,
                mask: (problem.alignment(id).bytes() / grain).max(1) - 1,
                pad: bytes - buffer.bytes(),
                pin: buffer.pin().map(|pin| pin / grain),
                boxes: first..number(boxes.len()),
            });
        }
        let mut model =
            Self { items, ids, boxes, loads: Vec::new(), pads: Vec::new(), grain, bound: tallest };
        model.set_sections(&lives)?;
        let loads = model.loads.iter().map(|load| load.grains * grain - load.pad);
        model.bound = loads.fold(model.bound, u64::max);
        if model.bound > MAX_BYTES {
            return Err(Error::SizeOverflow { what: "all that is live at once".into() });
        }
        Ok(Some(model))
    }

    /// Returns the model of some items only.
    pub(super) fn restricted_to(&self, kept: &[u32]) -> Result<Self> {
        let mut items = with_capacity(kept.len(), "buffers")?;
        let mut ids = with_capacity(kept.len(), "buffers")?;
        let mut boxes = Vec::new();
        let mut lives = with_capacity(kept.len(), "live ranges")?;
        for &item in kept {
            let mut copy = self.items[index(item)].clone();
            lives.push(copy.span.clone());
            ids.push(self.ids[index(item)]);
            let parts = &self.boxes[index(copy.boxes.start)..index(copy.boxes.end)];
            copy.boxes.start = number(boxes.len());
            boxes.extend_from_slice(parts);
            copy.boxes.end = number(boxes.len());
            items.push(copy);
        }
        let (grain, bound) = (self.grain, self.bound);
        let mut model =
            Self { items, ids, boxes, loads: Vec::new(), pads: Vec::new(), grain, bound };
        model.set_sections(&lives)?;
        Ok(model)
    }

    /// Returns whether of all items nothing matters but sizes and sections.
    pub(super) fn is_plain(&self) -> bool {
        self.all_solid()
            && self.items.iter().all(|it| it.mask == 0 && it.pad == 0 && it.pin.is_none())
    }

    /// Returns the model of solid items with these sections and sizes, in the same memory.
    pub(super) fn of_solids(
        &self,
        solids: impl ExactSizeIterator<Item = (Range<u32>, u64)>,
    ) -> Result<Self> {
        let mut items = with_capacity(solids.len(), "buffers")?;
        let mut lives = with_capacity(solids.len(), "live ranges")?;
        for (live, size) in solids {
            lives.push(live);
            items.push(Item { span: 0..0, size, mask: 0, pad: 0, pin: None, boxes: 0..0 });
        }
        let (grain, bound) = (self.grain, self.bound);
        let (ids, boxes) = (Vec::new(), Vec::new());
        let mut model =
            Self { items, ids, boxes, loads: Vec::new(), pads: Vec::new(), grain, bound };
        model.set_sections(&lives)?;
        Ok(model)
    }

    /// Translates live ranges and boxes into sections, and adds up what is live in each.
    fn set_sections(&mut self, lives: &[Range<u32>]) -> Result<()> {
        let solid = self.items.iter().zip(lives).filter(|(item, _)| item.solid());
        let mut all = with_capacity(lives.len() + self.boxes.len(), "live ranges")?;
        all.extend(solid.map(|(_, live)| live.clone()));
        all.extend(self.boxes.iter().map(|part| part.span.clone()));
        let (sections, count) = compress(&all)?;
        drop(all);
        let mut sections = sections.into_iter();
        for item in self.items.iter_mut().filter(|item| item.solid()) {
            item.span = sections.next().expect("solid items come first");
        }
        for (part, span) in self.boxes.iter_mut().zip(sections) {
            part.span = span;
        }
        for item in self.items.iter_mut().filter(|item| !item.solid()) {
            let parts = &self.boxes[index(item.boxes.start)..index(item.boxes.end)];
            let start = parts.iter().map(|part| part.span.start).min();
            let end = parts.iter().map(|part| part.span.end).max();
            item.span = start.zip(end).map(|(start, end)| start..end).expect("it has parts");
        }
        self.loads = self.add_up(count)?;
        self.pads = with_capacity(self.items.len(), "pads")?;
        self.pads.extend(self.items.iter().map(|item| item.pad));
        self.pads.sort_unstable();
        self.pads.dedup();
        Ok(())
    }

    /// Returns what is live in each of `count` sections.
    fn add_up(&self, count: usize) -> Result<Vec<Load>> {
        let mut change = filled(0_i128, count + 1, "sections")?;
        for item in 0..self.items.len() {
            self.each_box(item, |span, grains| {
                let size = i128::from(grains.end - grains.start);
                change[index(span.start)] += size;
                change[index(span.end)] -= size;
            });
        }
        let mut loads = filled(Load::default(), count, "sections")?;
        let mut live = 0;
        for (load, change) in loads.iter_mut().zip(change) {
            live += change;
            load.grains = u64::try_from(live)
                .ok()
                .filter(|grains| grains.checked_mul(self.grain).is_some())
                .ok_or_else(|| Error::SizeOverflow { what: "all that is live at once".into() })?;
        }
        // Largest pads first: a section keeps the first pad that reaches it.
        let mut padded: Vec<_> = self.items.iter().filter(|item| item.pad > 0).collect();
        padded.sort_unstable_by_key(|item| std::cmp::Reverse(item.pad));
        let mut next = with_capacity(count + 1, "sections")?;
        next.extend(0..=count);
        for item in padded {
            let mut section = find(&mut next, index(item.span.start));
            while section < index(item.span.end) {
                loads[section].pad = item.pad;
                next[section] = section + 1;
                section = find(&mut next, section);
            }
        }
        Ok(loads)
    }

    /// Calls `visit` with the sections and grains of each part of an item.
    pub(super) fn each_box(&self, item: usize, mut visit: impl FnMut(&Range<u32>, Range<u64>)) {
        let it = &self.items[item];
        if it.solid() {
            visit(&it.span, 0..it.size);
        }
        for part in self.boxes(it) {
            visit(&part.span, part.grains.clone());
        }
    }

    /// Returns the parts of an item that is not solid.
    pub(super) fn boxes(&self, item: &Item) -> &[Boxed] {
        &self.boxes[index(item.boxes.start)..index(item.boxes.end)]
    }

    /// Returns whether every item is solid.
    pub(super) fn all_solid(&self) -> bool {
        self.boxes.is_empty()
    }

    /// Returns the byte after the last one of an item at grain `offset`.
    pub(super) fn end_in_bytes(&self, item: usize, offset: u64) -> u64 {
        let it = &self.items[item];
        (offset + it.size) * self.grain - it.pad
    }

    /// Returns the highest grain at which an item ends at byte `target` or before, if any.
    pub(super) fn ceiling(&self, item: usize, target: u64) -> Option<u64> {
        let it = &self.items[item];
        let grains = (target + it.pad) / self.grain;
        Some(grains.checked_sub(it.size)? & !it.mask)
    }

    /// Returns the lowest peak from byte `bytes` on at which an item can end.
    pub(super) fn peak_from(&self, bytes: u64) -> u64 {
        let ends = self.pads.iter().map(|pad| (bytes + pad).next_multiple_of(self.grain) - pad);
        ends.min().unwrap_or(bytes)
    }

    /// Returns the end of the highest item, in bytes.
    pub(super) fn peak(&self, offsets: &[u64]) -> u64 {
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

/// Returns the largest number of bytes of which all offsets may be multiples.
fn grain(problem: &Problem, ids: &[BufferId], round: u64) -> u64 {
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
    ids.iter()
        .map(|&id| problem.alignment(id).bytes())
        .filter(|alignment| !common.is_multiple_of(*alignment))
        .fold(common, gcd)
}
