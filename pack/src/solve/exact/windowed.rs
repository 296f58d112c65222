//! Exact search for items with windows and gaps.
//!
//! A part of such an item may be above grains that are still open, so a placed item does not raise
//! floors. Items are *fixed* at an offset, and floors rise past fixed items on reaching them. The
//! branching is the same as for solid items. The search is slower, because each decision copies the
//! state.
//!
//! The rigid groups of parts, and this search, are new, as far as known.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use super::outcome::Outcome;
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{align_up, index};
use crate::solve::model::clock::Clock;
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::random::Random;
use crate::solve::model::waiting::Waiting;
use crate::solve::tuning;

/// A part of an item, with the item.
#[derive(Clone, Debug)]
struct WindowedPart {
    item: usize,
    span: Range<u32>,
    grains: Range<u64>,
}

/// Returns the parts of other items that each part meets; nothing if there are too many.
fn neighbors(parts: &[WindowedPart], most_pairs: usize) -> Result<Option<Vec<Vec<usize>>>> {
    let mut by_birth = with_capacity(parts.len(), "parts")?;
    by_birth.extend(0..parts.len());
    by_birth.sort_unstable_by_key(|&part| (parts[part].span.start, part));
    let mut neighbors = filled(Vec::new(), parts.len(), "parts")?;
    let mut live: Vec<usize> = Vec::new();
    let mut pairs = 0;
    for part in by_birth {
        let birth = parts[part].span.start;
        live.retain(|&other| parts[other].span.end > birth);
        for &other in &live {
            if parts[other].item != parts[part].item {
                neighbors[part].push(other);
                neighbors[other].push(part);
                pairs += 1;
            }
        }
        if pairs > most_pairs {
            return Ok(None);
        }
        live.push(part);
    }
    Ok(Some(neighbors))
}

/// A partial packing.
#[derive(Clone, Debug)]
struct WindowedState {
    /// Grains below are decided, by section.
    floor: Vec<u64>,
    /// Each item's lowest offset, or fixed offset.
    low: Vec<u64>,
    fixed: Vec<bool>,
}

/// An alternative.
#[derive(Clone, Copy, Debug)]
enum WindowedChild {
    /// The item is fixed at its low.
    Fix(usize),
    /// The section is given up to the floor.
    GiveUp(usize, u64),
}

/// Proof that no packing follows from this state.
#[derive(Clone, Copy, Debug)]
struct WindowedConflict;

/// A search for packings of a model.
#[derive(Debug)]
pub(crate) struct Windowed {
    parts: Vec<WindowedPart>,
    /// Each item's first part, and the end.
    first_part: Vec<usize>,
    /// Parts of other items that each part meets.
    neighbors: Vec<Vec<usize>>,
    /// Each section's parts.
    members: Vec<Vec<usize>>,
    ceiling: Vec<u64>,
    roof: Vec<u64>,
    random: Random,
    offsets: Vec<u64>,
    nodes: u64,
    turn: usize,
    /// Items whose lows, and sections whose floors, are to be looked at again.
    items: Waiting,
    sections: Waiting,
    /// Parts looked at so far.
    work: usize,
}

impl Windowed {
    /// Returns a search in a model; nothing if the model is too large.
    pub(crate) fn new(model: &Model, clock: &Clock<'_>) -> Result<Option<Self>> {
        let mut parts = Vec::new();
        let mut first_part = with_capacity(model.items.len() + 1, "parts")?;
        for item in 0..model.items.len() {
            first_part.push(parts.len());
            model.each_box(item, |span, grains| {
                parts.push(WindowedPart { item, span: span.clone(), grains });
            });
        }
        first_part.push(parts.len());
        // Each decision keeps a state, and there may be as many as items.
        let state = 9 * model.items.len() + 8 * model.loads.len();
        if parts.len() > tuning::windowed::LARGEST_PARTS
            || model.items.len().saturating_mul(state) > tuning::windowed::LARGEST_BYTES
        {
            return Ok(None);
        }
        let Some(neighbors) = neighbors(&parts, tuning::windowed::LARGEST_PAIRS)? else {
            return Ok(None);
        };
        let mut members = filled(Vec::new(), model.loads.len(), "sections")?;
        for (number, part) in parts.iter().enumerate() {
            let sections: &mut [Vec<usize>] = &mut members;
            for section in &mut sections[index(part.span.start)..index(part.span.end)] {
                section.push(number);
            }
        }
        Ok(Some(Self {
            parts,
            first_part,
            neighbors,
            members,
            ceiling: filled(0, model.items.len(), "ceilings")?,
            roof: filled(0, model.loads.len(), "sections")?,
            random: Random::new(clock.seed()),
            offsets: Vec::new(),
            nodes: tuning::windowed::FIRST_NODES,
            turn: 0,
            items: Waiting::new(model.items.len(), "parts")?,
            sections: Waiting::new(model.loads.len(), "parts")?,
            work: 0,
        }))
    }

    /// Searches for a packing below byte `target`, longer each time.
    pub(crate) fn step(&mut self, model: &Model, target: u64, clock: &Clock<'_>) -> Outcome {
        for item in 0..model.items.len() {
            match model.ceiling(item, target) {
                Some(ceiling) if model.pin(&model.items[item]).is_none_or(|pin| pin <= ceiling) => {
                    self.ceiling[item] = ceiling;
                }
                _ => return Outcome::Impossible,
            }
        }
        self.roof.fill(target / model.grain);
        let mut state = WindowedState {
            floor: vec![0; self.roof.len()],
            low: model.items.iter().map(|item| model.pin(item).unwrap_or(0)).collect(),
            fixed: model.items.iter().map(|item| model.pin(item).is_some()).collect(),
        };
        (0..model.items.len()).for_each(|item| self.items.add(item));
        (0..self.members.len()).for_each(|section| self.sections.add(section));
        if self.propagate(model, &mut state).is_err() {
            return Outcome::Impossible;
        }
        let mut left = self.nodes;
        self.nodes = self.nodes.saturating_add(self.nodes / tuning::windowed::GROWTH_DIVISOR);
        self.turn += 1;
        let mut stack: Vec<(WindowedState, Vec<WindowedChild>)> = Vec::new();
        loop {
            if state.fixed.iter().all(|&fixed| fixed) {
                self.offsets.clone_from(&state.low);
                return Outcome::Found;
            }
            let work = core::mem::take(&mut self.work) + state.low.len() + state.floor.len();
            if left == 0 || clock.tick(work) {
                return Outcome::Undecided;
            }
            left -= 1;
            let children = self.children(model, &state);
            stack.push((state, children));
            state = loop {
                let Some((before, children)) = stack.last_mut() else {
                    return Outcome::Impossible;
                };
                let Some(child) = children.pop() else {
                    stack.pop();
                    continue;
                };
                let mut after = before.clone();
                match child {
                    WindowedChild::Fix(item) => {
                        after.fixed[item] = true;
                        self.item_changed(item, true);
                    }
                    WindowedChild::GiveUp(section, floor) => {
                        after.floor[section] = floor;
                        self.floor_changed(section);
                        self.sections.add(section);
                    }
                }
                if self.propagate(model, &mut after).is_ok() {
                    break after;
                }
            };
        }
    }

    /// Returns the offsets that the last search has found.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        self.offsets.clone()
    }

    /// Raises lows and floors until neither rises any more.
    fn propagate(
        &mut self,
        model: &Model,
        state: &mut WindowedState,
    ) -> Result<(), WindowedConflict> {
        let done = self.propagate_waiting(model, state);
        while self.items.take().is_some() || self.sections.take().is_some() {}
        done
    }

    /// Propagates until the queues are empty, or a conflict is found.
    fn propagate_waiting(
        &mut self,
        model: &Model,
        state: &mut WindowedState,
    ) -> Result<(), WindowedConflict> {
        loop {
            if let Some(item) = self.items.take() {
                let low = self.lowest(model, state, item);
                if state.fixed[item] && low > state.low[item] || low > self.ceiling[item] {
                    return Err(WindowedConflict);
                }
                if low > state.low[item] {
                    state.low[item] = low;
                    self.item_changed(item, false);
                }
            } else if let Some(section) = self.sections.take() {
                let floor = self.covered_floor(state, section)?;
                if floor > state.floor[section] {
                    state.floor[section] = floor;
                    self.floor_changed(section);
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Records that an item's low rose or that the item was fixed. Floors of the item's sections
    /// may rise, and so may the lows of items that overlap a fixed item.
    fn item_changed(&mut self, item: usize, fixed: bool) {
        for number in self.first_part[item]..self.first_part[item + 1] {
            let part = &self.parts[number];
            (index(part.span.start)..index(part.span.end)).for_each(|it| self.sections.add(it));
            if fixed {
                for &neighbor in &self.neighbors[number] {
                    self.items.add(self.parts[neighbor].item);
                }
            }
        }
        self.items.add(item);
    }

    /// Records that a section's floor rose: the lows of the section's items may rise.
    fn floor_changed(&mut self, section: usize) {
        for &number in &self.members[section] {
            self.items.add(self.parts[number].item);
        }
    }

    /// Returns the lowest offset, from the low on, at which an item is above all floors and meets
    /// no fixed item.
    fn lowest(&mut self, model: &Model, state: &WindowedState, item: usize) -> u64 {
        let mask = model.items[item].mask();
        let mut low = state.low[item];
        loop {
            let before = low;
            for number in self.first_part[item]..self.first_part[item + 1] {
                let part = &self.parts[number];
                if !state.fixed[item] {
                    let floors = &state.floor[index(part.span.start)..index(part.span.end)];
                    let floor = floors.iter().copied().max().unwrap_or(0);
                    low = low.max(floor.saturating_sub(part.grains.start));
                }
                self.work += part.span.len() + self.neighbors[number].len();
                for &neighbor in &self.neighbors[number] {
                    let other = &self.parts[neighbor];
                    let at = state.low[other.item];
                    if state.fixed[other.item]
                        && at + other.grains.start < low + part.grains.end
                        && low + part.grains.start < at + other.grains.end
                    {
                        low = at + other.grains.end - part.grains.start;
                    }
                }
                low = align_up(low, mask);
            }
            if low == before || low > self.ceiling[item] {
                return low;
            }
        }
    }

    /// Returns a section's floor, raised past grains that no item can use.
    fn covered_floor(
        &mut self,
        state: &WindowedState,
        section: usize,
    ) -> Result<u64, WindowedConflict> {
        let mut floor = state.floor[section];
        loop {
            self.work += self.members[section].len();
            let mut next = u64::MAX;
            let mut total = 0;
            let mut below = None;
            for &number in &self.members[section] {
                let part = &self.parts[number];
                let start = state.low[part.item] + part.grains.start;
                let end = state.low[part.item] + part.grains.end;
                if state.fixed[part.item] && start < floor {
                    if end > floor {
                        return Err(WindowedConflict); // the floor was given up where it lies
                    }
                    continue;
                }
                total += part.grains.end - part.grains.start;
                if start < next {
                    next = start;
                    below = state.fixed[part.item].then_some(end);
                } else if start == next && state.fixed[part.item] {
                    below = Some(end);
                }
            }
            if next == u64::MAX {
                return Ok(floor);
            }
            floor = floor.max(next);
            if floor + total > self.roof[section] {
                return Err(WindowedConflict);
            }
            match below {
                Some(end) => floor = end,
                None => return Ok(floor),
            }
        }
    }

    /// Returns the alternatives at the point above a floor, for the section with the fewest
    /// alternatives; the first to try is the last.
    ///
    /// Take the packing from here with the least sum of offsets. If a part covers the point, the
    /// part starts there, at its item's low. If no part does, the lowest part above starts at its
    /// item's low, at a fixed item, or where an item would rest on another item: lower is
    /// impossible, and higher would not be the least sum.
    fn children(&mut self, model: &Model, state: &WindowedState) -> Vec<WindowedChild> {
        let mut best: Option<(usize, u64, u64, usize)> = None;
        for section in 0..self.members.len() {
            let (mut standing, mut total) = (0, 0);
            self.work += self.members[section].len();
            for &number in &self.members[section] {
                let part = &self.parts[number];
                let start = state.low[part.item] + part.grains.start;
                standing += usize::from(start <= state.floor[section] && !state.fixed[part.item]);
                if start >= state.floor[section] {
                    total += part.grains.end - part.grains.start;
                }
            }
            let slack = (self.roof[section] - state.floor[section]).saturating_sub(total);
            let key = (standing + usize::from(slack > 0), slack, self.random.next(), section);
            if standing > 0 && best.is_none_or(|best| key < best) {
                best = Some(key);
            }
        }
        let Some((.., section)) = best else { return Vec::new() };
        let floor = state.floor[section];
        let mut children: Vec<WindowedChild> = Vec::new();
        let mut next = u64::MAX;
        for &number in &self.members[section] {
            let part = &self.parts[number];
            let start = state.low[part.item] + part.grains.start;
            if start > floor {
                next = next.min(start);
            } else if !state.fixed[part.item] {
                children.push(WindowedChild::Fix(part.item));
                let above = self.next_low(model, state, part.item);
                next = next.min(above.saturating_add(part.grains.start));
            }
        }
        let turn = self.turn;
        children.sort_by_key(|child| match child {
            WindowedChild::Fix(item) => {
                let it = &model.items[*item];
                let (size, length) = (u128::from(it.size), u128::from(it.length()));
                // The last is tried first, in another order each time.
                let key = match turn % 3 {
                    0 => (length, size),
                    1 => (size, length),
                    _ => (size * length, size),
                };
                (key, *item)
            }
            WindowedChild::GiveUp(..) => ((0, 0), 0),
        });
        if next <= self.roof[section] {
            children.insert(0, WindowedChild::GiveUp(section, next));
        }
        children
    }

    /// Returns the lowest offset above an item's low at which the item may rest on another item.
    fn next_low(&self, model: &Model, state: &WindowedState, item: usize) -> u64 {
        let low = state.low[item];
        let mut next = u64::MAX;
        for number in self.first_part[item]..self.first_part[item + 1] {
            for &neighbor in &self.neighbors[number] {
                let other = &self.parts[neighbor];
                let top = state.low[other.item] + other.grains.end;
                let contact = top.saturating_sub(self.parts[number].grains.start);
                if contact > low {
                    next = next.min(contact);
                } else if !state.fixed[other.item] {
                    next = next.min(low + 1);
                }
            }
        }
        if next > self.ceiling[item] { u64::MAX } else { align_up(next, model.items[item].mask()) }
    }
}
