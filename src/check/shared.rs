//! What valid plans for one arena are.

use std::ops::Range;

use crate::check::mismatch;
use crate::error::{Error, Result, quoted};
use crate::graph::{Graph, ValueKind};
use crate::index::ValueId;
use crate::shared::{SharedMember, SharedPlan, Together};
use crate::units::MAX_BYTES;

impl SharedPlan {
    /// Returns whether the plans are valid for `graphs`, and together in one arena.
    ///
    /// # Errors
    ///
    /// As [`Plan::check`](crate::Plan::check) for each, and
    ///
    /// - [`Error::PlanMismatch`] if the number of graphs differs.
    /// - [`Error::PlanMisaligned`] or [`Error::PlanOutOfBounds`] if a plan begins where it
    ///   cannot.
    /// - [`Error::PlanOverlap`] if graphs that run together touch the same bytes, or one
    ///   touches the states of another.
    /// - [`Error::PlanCorrupt`] if the bound is above the arena.
    pub fn check(&self, graphs: &[&Graph]) -> Result<()> {
        if graphs.len() != self.members.len() {
            let (plans, graphs) = (self.members.len(), graphs.len());
            return mismatch(format!("there are {plans} plans, and {graphs} graphs"));
        }
        let mut everything = Vec::with_capacity(graphs.len());
        let mut states = Vec::with_capacity(graphs.len());
        for (member, graph) in self.members.iter().zip(graphs) {
            member.plan.check(graph)?;
            check_base(member)?;
            let values = member.plan.placements().iter();
            let is_state =
                |value: u32| graph.value(ValueId::from(value)).kind() == ValueKind::State;
            let kept = values.clone().filter(|place| is_state(place.value));
            states.push(union(member.base, kept.map(|place| (place.offset, place.bytes))));
            let scratch = member.plan.workspaces().iter();
            let scratch = scratch.map(|work| (work.offset, work.bytes));
            let all = values.map(|place| (place.offset, place.bytes)).chain(scratch);
            everything.push(union(member.base, all));
        }
        let private = match self.together {
            Together::Never => &states,
            Together::Concurrent => &everything,
        };
        for (index, own) in private.iter().enumerate() {
            for (other, theirs) in
                everything.iter().enumerate().filter(|&(other, _)| other != index)
            {
                if let Some(byte) = first_common(own, theirs) {
                    let name = |index: usize| quoted(self.members[index].plan.model());
                    let (first, second) = (name(index), name(other));
                    return Err(Error::PlanOverlap { first, second, step: 0, byte });
                }
            }
        }
        if self.lower_bound > self.arena_bytes() {
            let (bound, bytes) = (self.lower_bound, self.arena_bytes());
            let reason = format!("the shared arena has {bytes} bytes, below its bound {bound}");
            return Err(Error::PlanCorrupt { reason });
        }
        Ok(())
    }
}

/// Refuses a plan with several spaces, or one that begins where it cannot.
fn check_base(member: &SharedMember) -> Result<()> {
    let what = || format!("the arena of {}", quoted(member.plan.model()));
    let [space] = member.plan.spaces() else {
        return mismatch(format!("{} is not one space", what()));
    };
    if !member.base.is_multiple_of(space.alignment) {
        let (offset, alignment) = (member.base, space.alignment);
        return Err(Error::PlanMisaligned { what: what(), offset, alignment });
    }
    let end = u128::from(member.base) + u128::from(space.arena_bytes);
    if end > u128::from(MAX_BYTES) {
        return Err(Error::PlanOutOfBounds {
            what: what(),
            start: member.base,
            end,
            arena: MAX_BYTES,
        });
    }
    Ok(())
}

/// Returns the union of spans, given as offsets from `base` and sizes, in order and apart.
fn union(base: u64, spans: impl Iterator<Item = (u64, u64)>) -> Vec<Range<u64>> {
    let spans = spans.map(|(offset, bytes)| base + offset..base + offset + bytes);
    let mut spans: Vec<_> = spans.filter(|span| !span.is_empty()).collect();
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut union: Vec<Range<u64>> = Vec::with_capacity(spans.len());
    for span in spans {
        match union.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => union.push(span),
        }
    }
    union
}

/// Returns the first byte that is in both of two unions.
fn first_common(first: &[Range<u64>], second: &[Range<u64>]) -> Option<u64> {
    let (mut a, mut b) = (first.iter().peekable(), second.iter().peekable());
    while let (Some(one), Some(other)) = (a.peek(), b.peek()) {
        let start = one.start.max(other.start);
        if start < one.end.min(other.end) {
            return Some(start);
        }
        if one.end <= other.end {
            a.next();
        } else {
            b.next();
        }
    }
    None
}
