//! The disjunctive search's model: items, forbidden distances between two items, and cliques of
//! pairwise disjoint items.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use super::domain::{Domain, FAR};
use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, signed};
use crate::solve::model::memory::{filled, with_capacity};

/// A part of an item: units from the start, live in some sections.
#[derive(Clone, Debug)]
pub(super) struct ItemPart {
    pub(super) item: usize,
    /// The part's buffer.
    pub(super) owner: usize,
    pub(super) span: Range<usize>,
    pub(super) units: Range<i64>,
}

/// Two items and an open range: distances from the first to the second at which they meet.
pub(super) type Meeting = (usize, usize, i64, i64);

/// Two items, one of which is above the other: `upper ≥ lower + above`, or `lower ≥ upper + below`.
///
/// Two items with windows may have several disjunctions, one for each distance range at which parts
/// meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disjunction {
    pub(crate) lower: usize,
    pub(crate) upper: usize,
    pub(crate) above: i64,
    pub(crate) below: i64,
}

/// Units of an item that a clique needs, from the item's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) item: usize,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// Pairwise disjoint parts of items.
#[derive(Clone, Debug)]
pub(crate) struct Clique {
    pub(crate) tasks: Vec<Task>,
    /// A divisor of each task's first unit at every offset.
    pub(crate) step: i64,
}

/// Items, the pairs that may not overlap, and the allowed distances to neighbors.
#[derive(Clone, Debug)]
pub(crate) struct Conflicts {
    pub(crate) domains: Vec<Domain>,
    sizes: Vec<i64>,
    /// Bytes by which an item's units exceed its bytes.
    pads: Vec<u64>,
    /// Bytes per unit.
    unit: u64,
    pub(crate) disjunctions: Vec<Disjunction>,
    pub(crate) cliques: Vec<Clique>,
}

impl Conflicts {
    /// Returns a model's conflicts; nothing if there are more than `most`, or sums of the numbers
    /// may wrap.
    pub(crate) fn of_model(model: &Model, most: usize) -> Result<Option<Self>> {
        let count = model.items.len();
        let total = model.items.iter().map(|it| u128::from(it.size) + u128::from(it.mask()));
        let pinned = model.items.iter().filter_map(|it| model.pin(it)).max().unwrap_or(0);
        if total.sum::<u128>() + u128::from(pinned) > u128::from(FAR.unsigned_abs() / 4) {
            return Ok(None);
        }
        let mut parts = with_capacity(count, "parts")?;
        let mut domains = with_capacity(count, "domains")?;
        for (item, it) in model.items.iter().enumerate() {
            model.each_box(item, |span, units| {
                let span = index(span.start)..index(span.end);
                let units = signed(units.start)..signed(units.end);
                parts.push(ItemPart { item, owner: item, span, units });
            });
            let (low, high) = match model.pin(it) {
                Some(pin) => (signed(pin), signed(pin)),
                None => (0, FAR),
            };
            domains.push(Domain::new(low, high, signed(it.mask()) + 1));
        }
        let mut sizes = with_capacity(count, "domains")?;
        sizes.extend(model.items.iter().map(|it| signed(it.size)));
        let mut pads = with_capacity(count, "domains")?;
        pads.extend(model.items.iter().map(|it| model.pad(it)));
        let permits = |_, _| false;
        let Some(disjunctions) = disjunctions(&parts, Vec::new(), most, permits)? else {
            return Ok(None);
        };
        let cliques = cliques(&parts, model.loads.len(), &domains, permits)?;
        Ok(Some(Self { domains, sizes, pads, unit: model.grain, disjunctions, cliques }))
    }

    /// Returns the conflicts of items counted in bytes: conflicts of parts that may not overlap,
    /// and further conflicts. Nothing if there are more than `most`.
    pub(super) fn of_parts(
        domains: Vec<Domain>,
        sizes: Vec<i64>,
        parts: &[ItemPart],
        sections: usize,
        more: Vec<Meeting>,
        most: usize,
        permits: impl Fn(usize, usize) -> bool,
    ) -> Result<Option<Self>> {
        let Some(disjunctions) = disjunctions(parts, more, most, &permits)? else {
            return Ok(None);
        };
        let cliques = cliques(parts, sections, &domains, permits)?;
        let pads = filled(0, sizes.len(), "domains")?;
        Ok(Some(Self { domains, sizes, pads, unit: 1, disjunctions, cliques }))
    }

    /// Returns the byte after an item's end at an offset.
    pub(crate) fn end_in_bytes(&self, item: usize, offset: i64) -> u64 {
        (offset + self.sizes[item]).unsigned_abs() * self.unit - self.pads[item]
    }

    /// Returns the largest offset at which an item ends at byte `target` or before; may be less
    /// than all offsets of the item.
    pub(crate) fn ceiling(&self, item: usize, target: u64) -> i64 {
        let units = target.saturating_add(self.pads[item]) / self.unit;
        let top = signed(units.min(FAR.unsigned_abs()));
        self.domains[item].lower(top - self.sizes[item]).min(self.domains[item].largest())
    }
}

/// Returns the disjunctions in `more` and of all parts that are live together, except for owners
/// that may overlap; nothing if there are more than `most`.
fn disjunctions(
    parts: &[ItemPart],
    more: Vec<Meeting>,
    most: usize,
    permits: impl Fn(usize, usize) -> bool,
) -> Result<Option<Vec<Disjunction>>> {
    let mut by_birth = with_capacity(parts.len(), "parts")?;
    by_birth.extend(0..parts.len());
    by_birth.sort_unstable_by_key(|&part| (parts[part].span.start, part));
    let mut ranges = more;
    let mut live: Vec<usize> = Vec::new();
    for part in by_birth {
        let ItemPart { item, owner, span, units } = &parts[part];
        live.retain(|&other| parts[other].span.end > span.start);
        for other in live.iter().map(|&other| &parts[other]).filter(|it| it.item != *item) {
            if permits(other.owner, *owner) {
                continue;
            }
            ranges.push(if other.item < *item {
                (other.item, *item, other.units.start - units.end, other.units.end - units.start)
            } else {
                (*item, other.item, units.start - other.units.end, units.end - other.units.start)
            });
        }
        // A pair's ranges may merge: each item has few parts.
        if ranges.len() > most.saturating_mul(4) {
            return Ok(None);
        }
        live.push(part);
    }
    ranges.sort_unstable();
    let mut merged: Vec<Meeting> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if (last.0, last.1) == (range.0, range.1) && range.2 < last.3 => {
                last.3 = last.3.max(range.3);
            }
            _ => merged.push(range),
        }
    }
    if merged.len() > most {
        return Ok(None);
    }
    let mut all = with_capacity(merged.len(), "disjunctions")?;
    for (lower, upper, low, high) in merged {
        all.push(Disjunction { lower, upper, above: high, below: -low });
    }
    Ok(Some(all))
}

/// Most cliques for a section in which some parts may overlap.
const CLIQUES_PER_SECTION: usize = 8;

/// Returns each section's parts, and pairwise disjoint sets of parts where some may overlap.
fn cliques(
    parts: &[ItemPart],
    sections: usize,
    domains: &[Domain],
    permits: impl Fn(usize, usize) -> bool,
) -> Result<Vec<Clique>> {
    let mut members: Vec<Vec<usize>> = filled(Vec::new(), sections, "sections")?;
    for (number, part) in parts.iter().enumerate() {
        members[part.span.clone()].iter_mut().for_each(|section| section.push(number));
    }
    let mut cliques = Vec::new();
    for mut section in members {
        // Largest first: each set begins with a new part, and takes parts that are disjoint from
        // all others.
        section.sort_unstable_by_key(|&it| {
            let Range { start, end } = parts[it].units;
            (start - end, it)
        });
        let is_apart = |one: usize, other: usize| !permits(parts[one].owner, parts[other].owner);
        let mut found: Vec<Vec<usize>> = Vec::new();
        for &seed in section.iter().take(CLIQUES_PER_SECTION) {
            if found.iter().any(|known| known.contains(&seed)) {
                continue;
            }
            let mut clique = vec![seed];
            for &other in &section {
                if other != seed && clique.iter().all(|&it| is_apart(it, other)) {
                    clique.push(other);
                }
            }
            found.push(clique);
        }
        for clique in found.into_iter().filter(|clique| clique.len() > 1) {
            let task = |&it: &usize| {
                let ItemPart { item, units, .. } = &parts[it];
                Task { item: *item, start: units.start, end: units.end }
            };
            let mut tasks: Vec<Task> = clique.iter().map(task).collect();
            tasks.sort_unstable_by_key(|task| (task.item, task.start));
            let steps = tasks.iter().map(|task| divisor(domains[task.item].step(), task.start));
            let step = steps.reduce(divisor).unwrap_or(1);
            cliques.push(Clique { tasks, step });
        }
    }
    Ok(cliques)
}

/// Returns the greatest common divisor; for a number and 0, the number.
pub(super) const fn divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
