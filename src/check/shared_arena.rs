//! The definition of valid plans for a shared arena.

use alloc::{format, vec::Vec};
use core::ops::Range;

use crate::base::{Alignment, Error, MAX_BYTES, Result, ValueId, quoted};
use crate::check::bound::{compacted, max_live};
use crate::check::claims::refute;
use crate::check::rigid::Rigid;
use crate::check::{Examined, Proof, SharedVerdict, mismatch};
use crate::graph::{Graph, ValueKind};
use crate::pack::Status;
use crate::plan::{Plan, SharedMember, SharedPlan, Together};

impl SharedPlan {
    /// Returns the proofs for the plans' claims, if each plan is valid for its graph, and all plans
    /// together in the arena.
    ///
    /// # Errors
    ///
    /// As [`Plan::check`](crate::Plan::check) for each, and
    ///
    /// - [`Error::PlanMismatch`] if the number of graphs differs.
    /// - [`Error::PlanMisaligned`] or [`Error::PlanOutOfBounds`] if a plan begins at an impossible
    ///   offset.
    /// - [`Error::PlanOverlap`] if concurrent graphs touch the same bytes, or a graph touches
    ///   another graph's states.
    /// - [`Error::PlanCorrupt`] if the bound is above the arena, or provably false.
    pub fn check(&self, graphs: &[&Graph]) -> Result<SharedVerdict> {
        if graphs.len() != self.members.len() {
            let (plans, graphs) = (self.members.len(), graphs.len());
            return mismatch(format!("there are {plans} plans, and {graphs} graphs"));
        }
        let mut everything = Vec::with_capacity(graphs.len());
        let mut states = Vec::with_capacity(graphs.len());
        let mut found = Vec::with_capacity(graphs.len());
        for (member, graph) in self.members.iter().zip(graphs) {
            found.push(member.plan.examine(graph)?);
            check_base(member)?;
            let values = member.plan.placements().iter();
            let is_state =
                |value: u32| graph.value(ValueId::from(value)).kind() == ValueKind::State;
            let kept = values.clone().filter(|place| is_state(place.value));
            // As within a plan, a line belongs to a single body.
            let lines = Alignment::new(member.plan.options.alignment).unwrap_or_default();
            let in_lines = |(offset, bytes): (u64, u64)| {
                let (start, end) = (offset - offset % lines.bytes(), offset + bytes);
                let end = lines.round_up(end).unwrap_or(end);
                if bytes == 0 { (offset, 0) } else { (start, end - start) }
            };
            let kept = kept.map(|place| in_lines((place.offset, place.bytes)));
            states.push(ordered(member.base, kept));
            let scratch = member.plan.workspaces().iter();
            let scratch = scratch.map(|work| (work.offset, work.bytes));
            let all = values.map(|place| (place.offset, place.bytes)).chain(scratch);
            everything.push(ordered(member.base, all.map(in_lines)));
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
        self.judge(found)
    }

    /// Returns the proofs for the claims of plans that are valid together.
    fn judge(&self, found: Vec<Examined>) -> Result<SharedVerdict> {
        let (max_live, reached) = match self.together {
            Together::Concurrent => self.side_by_side(&found),
            Together::Never => self.in_turn(&found),
        };
        let derived = self.lower_bound <= max_live;
        if !derived {
            refute(&quoted("shared"), self.lower_bound, reached)?;
        }
        let lower_bound = Proof::of(derived);
        let status = match self.status() {
            Status::Optimal => lower_bound,
            Status::Feasible | Status::Unknown => Proof::Verified,
            Status::Infeasible => Proof::of(self.capacity.is_some_and(|most| max_live > most)),
        };
        let members = found.into_iter().map(|one| one.verdict).collect();
        Ok(SharedVerdict { members, max_live, lower_bound, status })
    }

    /// Returns the bytes that are live at once if all members may be at any step, and a size
    /// that suffices.
    fn side_by_side(&self, found: &[Examined]) -> (u64, u64) {
        let (mut max_live, mut reached) = (0_u64, 0_u64);
        for (member, one) in self.members.iter().zip(found) {
            let rigids: Vec<&Rigid> = one.rigids.iter().collect();
            let Plan { options, .. } = &member.plan;
            let (bytes, safe) = (member.plan.arena_bytes(), options.parallel_safe);
            let alignment = rigids.iter().map(|rigid| rigid.alignment).max().unwrap_or(1);
            let start = reached.next_multiple_of(alignment);
            reached = start.saturating_add(compacted(&rigids, one.horizon, bytes, safe));
            max_live = max_live.saturating_add(one.verdict.spaces[0].max_live);
        }
        (max_live, reached.min(self.arena_bytes()))
    }

    /// Returns the most live bytes if the members run one after the other and states stay in place,
    /// and a sufficient size.
    fn in_turn(&self, found: &[Examined]) -> (u64, u64) {
        let ends = found.iter().scan(0_u32, |end, one| {
            *end = end.saturating_add(one.horizon.max(1));
            Some(*end)
        });
        let ends: Vec<u32> = ends.collect();
        let horizon = ends.last().copied().unwrap_or(0);
        let mut all = Vec::new();
        for ((member, one), end) in self.members.iter().zip(found).zip(ends) {
            let start = end - one.horizon.max(1);
            for rigid in &one.rigids {
                let mut moved = rigid.clone();
                moved.base += member.base;
                for span in &mut moved.spans {
                    span.live = if moved.has_state {
                        [0, horizon]
                    } else {
                        span.live.map(|step| step.saturating_add(start))
                    };
                }
                all.push(moved);
            }
        }
        let bytes = self.arena_bytes();
        let safe = self.members.iter().any(|member| member.plan.options.parallel_safe);
        let rigids: Vec<&Rigid> = all.iter().collect();
        (max_live(all.iter(), horizon), compacted(&rigids, horizon, bytes, safe))
    }
}

/// Refuses a plan with several spaces, or with an impossible base.
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

/// Returns spans, given as offsets from `base` and sizes, by first byte.
fn ordered(base: u64, spans: impl Iterator<Item = (u64, u64)>) -> Vec<Range<u64>> {
    let spans = spans.map(|(offset, bytes)| base + offset..base + offset + bytes);
    let mut spans: Vec<_> = spans.filter(|span| !span.is_empty()).collect();
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    spans
}

/// Returns the first byte in spans of both lists, each [`ordered`].
///
/// A span that ends before the other list's span begins cannot meet any later span, so spans within
/// a list may overlap.
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::check::random::numbers;

    /// Against the definition: whether each of 32 bytes is in a span.
    #[test]
    fn the_first_common_byte_is_that_of_a_table() {
        let mut below = numbers();
        for _ in 0..500 {
            let mut spans =
                || -> Vec<(u64, u64)> { (0..below(5)).map(|_| (below(24), below(8))).collect() };
            let (first, second) = (spans(), spans());
            let has = |spans: &[(u64, u64)], byte: u64| {
                spans.iter().any(|&(offset, bytes)| (offset..offset + bytes).contains(&byte))
            };
            let common = (0..32).find(|&byte| has(&first, byte) && has(&second, byte));
            let ordered = |spans: &[(u64, u64)]| ordered(3, spans.iter().copied());
            let found = first_common(&ordered(&first), &ordered(&second));
            assert_eq!(found, common.map(|byte| byte + 3));
        }
    }
}
