//! The conflicts of a problem with rules: ranges, groups, reserved bytes, pairs.

use alloc::collections::BTreeMap;
use alloc::{format, vec::Vec};

use super::conflicts::{Conflicts, ItemPart, Meeting, divisor};
use super::domain::{Domain, FAR};
use crate::base::{BufferId, Error, LiveRange, Result, SpaceId};
use crate::problem::Problem;
use crate::solve::model::arith::{index, signed};
use crate::solve::model::memory::{filled, with_capacity};
use crate::solve::model::sections::Sections;

/// A space's buffers, with a group's buffers as a single item.
#[derive(Debug)]
pub(crate) struct Ruled {
    pub(crate) conflicts: Conflicts,
    /// Each item's buffers.
    pub(crate) buffers: Vec<Vec<BufferId>>,
    /// Each item's first offset to try; empty if no item has such an offset.
    pub(crate) hints: Vec<Option<i64>>,
}

impl Ruled {
    /// Returns the conflicts between the buffers `members` in a space.
    ///
    /// # Errors
    ///
    /// - [`Error::PinConflict`] if no offset obeys the rules for a buffer or group.
    /// - [`Error::SizeOverflow`] if sizes and offsets are larger than 2^58 bytes together.
    /// - [`Error::OutOfMemory`] if more than `most` pairs of buffers conflict.
    pub(crate) fn new(
        problem: &Problem,
        space: SpaceId,
        members: &[BufferId],
        most: usize,
    ) -> Result<Self> {
        let mut buffers: Vec<Vec<BufferId>> = Vec::new();
        let mut groups: BTreeMap<u32, usize> = BTreeMap::new();
        let mut item_of: BTreeMap<BufferId, usize> = BTreeMap::new();
        for &id in members {
            let item = match problem.buffer(id).group() {
                Some(group) => *groups.entry(group).or_insert(buffers.len()),
                None => buffers.len(),
            };
            if item == buffers.len() {
                buffers.push(Vec::new());
            }
            buffers[item].push(id);
            item_of.insert(id, item);
        }
        let mut domains = with_capacity(buffers.len(), "domains")?;
        let mut sizes = with_capacity(buffers.len(), "domains")?;
        let mut reach = 0_u128;
        for item in &buffers {
            domains.push(domain(problem, space, item)?);
            let size = item.iter().map(|&id| problem.buffer(id).bytes()).max().unwrap_or(0);
            reach += u128::from(size);
            sizes.push(signed(size));
        }
        let starts = domains.iter().map(|it: &Domain| it.step().max(it.least()).unsigned_abs());
        let reserved = problem.spaces()[space.index()].reserved().iter().map(|it| it.end);
        reach += starts.chain(reserved).map(u128::from).sum::<u128>();
        if reach > u128::from(FAR.unsigned_abs() / 4) {
            return Err(Error::SizeOverflow { what: "a space with rules".into() });
        }
        let steps = |live: LiveRange| live.start().get()..live.end().get();
        let lives = members.iter().flat_map(|&id| problem.buffer(id).rectangles());
        let sections = Sections::of(lives.clone().map(|(_, live)| steps(live)), lives.count())?;
        let mut parts = Vec::new();
        for (&id, &item) in &item_of {
            let rectangles = problem.buffer(id).rectangles().filter(|(it, _)| it.start < it.end);
            parts.extend(rectangles.map(|(bytes, live)| {
                let span = sections.span(&steps(live));
                ItemPart {
                    item,
                    owner: id.index(),
                    span: index(span.start)..index(span.end),
                    units: signed(bytes.start)..signed(bytes.end),
                }
            }));
        }
        let mut more: Vec<Meeting> = Vec::new();
        for (one, other) in &problem.rules().apart {
            let (Some(&first), Some(&second)) = (item_of.get(one), item_of.get(other)) else {
                continue;
            };
            let [size, above] = [one, other].map(|id| signed(problem.buffer(*id).bytes()));
            if first == second && size.min(above) > 0 {
                let reason = format!("buffers {one} and {other} are one group, and to be apart");
                return Err(Error::PinConflict { reason });
            }
            if size.min(above) > 0 {
                more.push(if first < second {
                    (first, second, -above, size)
                } else {
                    (second, first, -size, above)
                });
            }
        }
        let permits =
            |one, other| problem.rules().permits(BufferId::new(one), BufferId::new(other));
        let count = sections.count();
        let conflicts = Conflicts::of_parts(domains, sizes, &parts, count, more, most, permits)?;
        let conflicts = conflicts.ok_or(Error::OutOfMemory { what: "pairs of buffers" })?;
        let far = FAR.unsigned_abs();
        let hint = |id: &BufferId| problem.buffer(*id).hint().filter(|&at| at <= far).map(signed);
        let mut hints: Vec<_> = buffers.iter().map(|item| item.iter().find_map(hint)).collect();
        if hints.iter().all(Option::is_none) {
            hints.clear();
        }
        Ok(Self { conflicts, buffers, hints })
    }
}

/// Returns the allowed offsets for all buffers in an item.
fn domain(problem: &Problem, space: SpaceId, item: &[BufferId]) -> Result<Domain> {
    let far = FAR.unsigned_abs() / 4;
    let (mut low, mut high, mut step, mut pin) = (0, far, 1_u64, None);
    let mut holes = Vec::new();
    let conflict = |reason| Err(Error::PinConflict { reason });
    for &id in item {
        let buffer = problem.buffer(id);
        for multiple in [buffer.multiple_of(), problem.alignment(id).bytes()] {
            let common = divisor(signed(step), signed(multiple)).unsigned_abs();
            step = (step / common).checked_mul(multiple).filter(|&step| step <= far).ok_or_else(
                || Error::InvalidAlignment { what: format!("buffer {id}"), bytes: multiple },
            )?;
        }
        if let Some(range) = buffer.range() {
            low = low.max(range.start);
            high = high.min(range.end - buffer.bytes());
        }
        if let Some(at) = buffer.pin() {
            if pin.is_some_and(|pin| pin != at) {
                return conflict(format!("buffer {id} is pinned to {at}, not as its group"));
            }
            pin = Some(at);
        }
        for bytes in problem.spaces()[space.index()].reserved() {
            let [start, end] = [bytes.start, bytes.end].map(|at| signed(at.min(far)));
            if start < end {
                holes.push(start - signed(buffer.bytes().min(far)) + 1..end);
            }
        }
    }
    if let Some(pin) = pin {
        low = low.max(pin);
        high = high.min(pin);
    }
    let domain = Domain::new(signed(low.min(far)), signed(high), signed(step)).without(holes);
    match item.first() {
        Some(id) if domain.least() > domain.largest() => {
            conflict(format!("no offset obeys all rules of buffer {id}"))
        }
        _ => Ok(domain),
    }
}

/// The items that each item may not overlap, with the open distance ranges at which both meet.
#[derive(Debug)]
pub(crate) struct RuledNeighbors(Vec<Vec<(usize, i64, i64)>>);

impl RuledNeighbors {
    /// Returns all items' neighbors.
    pub(crate) fn new(conflicts: &Conflicts) -> Result<Self> {
        let mut near = filled(Vec::new(), conflicts.domains.len(), "neighbors")?;
        for it in &conflicts.disjunctions {
            let of_upper: &mut Vec<_> = &mut near[it.upper];
            of_upper.push((it.lower, -it.below, it.above));
            let of_lower: &mut Vec<_> = &mut near[it.lower];
            of_lower.push((it.upper, -it.above, it.below));
        }
        Ok(Self(near))
    }

    /// Places items in an order, each at its hint if free, else at the lowest offset beside the
    /// items placed before; nothing if an item has no such offset, or would end above byte `limit`.
    /// Also returns the effort.
    pub(crate) fn first_fit(
        &self,
        conflicts: &Conflicts,
        order: &[usize],
        hints: &[Option<i64>],
        limit: u64,
    ) -> (Option<Vec<i64>>, usize) {
        let mut placed: Vec<Option<i64>> = alloc::vec![None; self.0.len()];
        let mut blocked: Vec<(i64, i64)> = Vec::new();
        let mut effort = 0;
        for &item in order {
            blocked.clear();
            effort += self.0[item].len() + 1;
            let ranges = self.0[item].iter();
            blocked.extend(ranges.filter_map(|&(other, low, high)| {
                placed[other].map(|base| (base + low, base + high))
            }));
            blocked.sort_unstable();
            let domain = &conflicts.domains[item];
            let is_free = |&at: &i64| {
                domain.least() <= at
                    && domain.raise(at) == at
                    && blocked.iter().all(|&(start, end)| at <= start || end <= at)
            };
            let hint = hints.get(item).copied().flatten().filter(is_free);
            let mut offset = hint.unwrap_or_else(|| domain.least());
            for &(start, end) in &blocked {
                if start >= offset {
                    break;
                }
                if end > offset {
                    offset = domain.raise(end);
                }
            }
            if offset > domain.largest() || conflicts.end_in_bytes(item, offset) > limit {
                return (None, effort);
            }
            placed[item] = Some(offset);
        }
        (Some(placed.into_iter().map(|offset| offset.unwrap_or(0)).collect()), effort)
    }
}
