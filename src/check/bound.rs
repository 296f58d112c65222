//! Two bounds on the bytes that a plan needs: the most live bytes, which no offsets avoid, and the
//! bytes that a compaction reaches, which no true lower bound exceeds.

use alloc::{vec, vec::Vec};

use crate::check::rigid::{Rigid, Span};

/// Returns the bodies' live bytes at each step.
///
/// Bytes shared by several values in a body count once. Runs in `O(n log n)` for `n` values.
pub(super) fn live<'a>(rigids: impl Iterator<Item = &'a Rigid>, horizon: u32) -> Vec<u64> {
    let steps = index(horizon).max(1);
    let mut change = vec![0_i128; steps + 1];
    for rigid in rigids {
        if let [span] = rigid.spans[..] {
            let bytes = i128::from(span.end - span.start);
            change[index(span.live[0]).min(steps)] += bytes;
            change[index(span.live[1]).min(steps)] -= bytes;
            continue;
        }
        let mut covered = Covered::new(&rigid.spans);
        let ends = |&span: &Span| [(span.live[0], true, span), (span.live[1], false, span)];
        let mut events: Vec<(u32, bool, Span)> = rigid.spans.iter().flat_map(ends).collect();
        events.sort_unstable_by_key(|&(step, is_birth, _)| (step, is_birth));
        for (step, is_birth, span) in events {
            let before = covered.bytes();
            covered.cover(span.start, span.end, is_birth);
            change[index(step).min(steps)] += i128::from(covered.bytes()) - i128::from(before);
        }
    }
    let mut now = 0;
    let steps = change.into_iter().take(steps);
    let live = steps.map(|change| {
        now += change;
        u64::try_from(now).unwrap_or(u64::MAX)
    });
    live.collect()
}

/// Returns the most live bytes at a step, which no offsets avoid.
///
/// A body whose values could share more bytes counts nothing.
pub(super) fn max_live<'a>(rigids: impl Iterator<Item = &'a Rigid>, horizon: u32) -> u64 {
    live(rigids.filter(|rigid| !rigid.is_loose), horizon).into_iter().max().unwrap_or(0)
}

/// Returns an arena size that suffices for the bodies, at most `arena_bytes`, the size in a valid
/// plan.
///
/// The bodies fall one after the other, lowest first, onto the bodies that are held at a common
/// step. Runs in `O(n log n)` for `n` values. If nodes may run `in_every_order`, the live ranges of
/// one order do not suffice, and the bodies only move all together.
pub(super) fn compacted(
    rigids: &[&Rigid],
    horizon: u32,
    arena_bytes: u64,
    in_every_order: bool,
) -> u64 {
    if rigids.iter().any(|rigid| rigid.is_pinned) {
        return fallen(rigids, horizon, in_every_order).unwrap_or(arena_bytes).min(arena_bytes);
    }
    let grain = rigids.iter().map(|rigid| rigid.alignment).max().unwrap_or(1);
    let lowest = rigids.iter().map(|rigid| rigid.base).min().unwrap_or(0);
    let shifted = arena_bytes - (lowest - lowest % grain).min(arena_bytes);
    fallen(rigids, horizon, in_every_order).unwrap_or(shifted).min(shifted)
}

/// Returns the end of the highest body if all bodies fall; `None` if the bodies cannot.
fn fallen(rigids: &[&Rigid], horizon: u32, in_every_order: bool) -> Option<u64> {
    if in_every_order {
        return None;
    }
    let mut order: Vec<&Rigid> = rigids.to_vec();
    order.sort_by_key(|rigid| rigid.base);
    let mut skyline = Skyline::new(index(horizon).max(1));
    let mut top = 0;
    for rigid in order {
        let floor = rigid.spans.iter().map(|span| skyline.highest(span).saturating_sub(span.start));
        let floor = floor.max().unwrap_or(0);
        let base = if rigid.is_pinned {
            (floor <= rigid.base).then_some(rigid.base)?
        } else {
            // The rest of the base below a multiple of the alignment keeps its alignment.
            let rest = rigid.base % rigid.alignment;
            let above = floor.saturating_sub(rest).checked_next_multiple_of(rigid.alignment)?;
            above.checked_add(rest)?
        };
        for span in &rigid.spans {
            skyline.raise(span, base.checked_add(span.end)?);
        }
        top = top.max(base.checked_add(rigid.height())?);
    }
    Some(top)
}

/// The union of byte spans, which may be present several times.
struct Covered {
    cuts: Vec<u64>,
    /// By tree node: the number of spans that cover the whole node, but not the whole parent.
    count: Vec<u32>,
    /// By tree node: bytes that are covered.
    lengths: Vec<u64>,
}

impl Covered {
    fn new(spans: &[Span]) -> Self {
        let mut cuts: Vec<u64> = spans.iter().flat_map(|span| [span.start, span.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let leaves = cuts.len().next_power_of_two();
        Self { cuts, count: vec![0; 2 * leaves], lengths: vec![0; 2 * leaves] }
    }

    fn bytes(&self) -> u64 {
        self.lengths[1]
    }

    fn cover(&mut self, start: u64, end: u64, adds: bool) {
        let [from, to] = [start, end].map(|cut| self.cuts.partition_point(|&at| at < cut));
        self.change(1, 0..self.count.len() / 2, from..to, adds);
    }

    fn change(
        &mut self,
        node: usize,
        leaves: core::ops::Range<usize>,
        wanted: core::ops::Range<usize>,
        adds: bool,
    ) {
        if wanted.end <= leaves.start || leaves.end <= wanted.start {
            return;
        }
        let is_leaf = leaves.end - leaves.start == 1;
        if wanted.start <= leaves.start && leaves.end <= wanted.end {
            self.count[node] =
                if adds { self.count[node] + 1 } else { self.count[node].saturating_sub(1) };
        } else {
            let middle = leaves.start.midpoint(leaves.end);
            self.change(2 * node, leaves.start..middle, wanted.clone(), adds);
            self.change(2 * node + 1, middle..leaves.end, wanted, adds);
        }
        // Spans end at the last cut, so a covered node does, too.
        self.lengths[node] = match (self.count[node], is_leaf) {
            (0, true) => 0,
            (0, false) => self.lengths[2 * node] + self.lengths[2 * node + 1],
            _ => self.cuts[leaves.end] - self.cuts[leaves.start],
        };
    }
}

/// The highest taken byte at each step, over all bodies that were put down.
struct Skyline {
    /// By tree node: the highest byte below the node.
    highest: Vec<u64>,
    /// By tree node: the least height of all steps below the node.
    everywhere: Vec<u64>,
}

impl Skyline {
    fn new(steps: usize) -> Self {
        let leaves = steps.next_power_of_two();
        Self { highest: vec![0; 2 * leaves], everywhere: vec![0; 2 * leaves] }
    }

    fn highest(&self, span: &Span) -> u64 {
        let wanted = index(span.live[0])..index(span.live[1]);
        self.find(1, 0..self.highest.len() / 2, &wanted)
    }

    fn find(
        &self,
        node: usize,
        steps: core::ops::Range<usize>,
        wanted: &core::ops::Range<usize>,
    ) -> u64 {
        if wanted.end <= steps.start || steps.end <= wanted.start {
            return 0;
        }
        if wanted.start <= steps.start && steps.end <= wanted.end {
            return self.highest[node];
        }
        let middle = steps.start.midpoint(steps.end);
        let [low, high] = [(2 * node, steps.start..middle), (2 * node + 1, middle..steps.end)]
            .map(|(node, steps)| self.find(node, steps, wanted));
        low.max(high).max(self.everywhere[node])
    }

    fn raise(&mut self, span: &Span, to: u64) {
        let wanted = index(span.live[0])..index(span.live[1]);
        self.lift(1, 0..self.highest.len() / 2, &wanted, to);
    }

    fn lift(
        &mut self,
        node: usize,
        steps: core::ops::Range<usize>,
        wanted: &core::ops::Range<usize>,
        to: u64,
    ) {
        if wanted.end <= steps.start || steps.end <= wanted.start {
            return;
        }
        self.highest[node] = self.highest[node].max(to);
        if wanted.start <= steps.start && steps.end <= wanted.end {
            self.everywhere[node] = self.everywhere[node].max(to);
            return;
        }
        let middle = steps.start.midpoint(steps.end);
        self.lift(2 * node, steps.start..middle, wanted, to);
        self.lift(2 * node + 1, middle..steps.end, wanted, to);
    }
}

fn index(step: u32) -> usize {
    usize::try_from(step).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::check::random::numbers;

    fn body(base: u64, spans: &[(u64, u64, u32, u32)]) -> Rigid {
        let spans =
            spans.iter().map(|&(start, end, from, to)| Span { start, end, live: [from, to] });
        Rigid {
            space: 0,
            base,
            alignment: 1,
            is_pinned: false,
            has_state: false,
            is_loose: false,
            spans: spans.collect(),
        }
    }

    fn random_spans(below: &mut impl FnMut(u64) -> u64) -> Vec<(u64, u64, u32, u32)> {
        let mut spans = Vec::new();
        for _ in 0..=below(6) {
            let (start, from) = (below(20), u32::try_from(below(8)).unwrap_or(0));
            let to = from + 1 + u32::try_from(below(8)).unwrap_or(0);
            spans.push((start, start + 1 + below(9), from, to));
        }
        spans
    }

    /// Against the definition: a table with a row per step and a column per byte.
    #[test]
    fn live_bytes_are_those_of_a_table() {
        let mut below = numbers();
        assert_eq!(live([].into_iter(), 0), [0]);
        for _ in 0..500 {
            let spans = random_spans(&mut below);
            let found = live([&body(0, &spans)].into_iter(), 16);
            assert_eq!(found.len(), 16);
            for (step, bytes) in (0_u32..).zip(found) {
                let is_live = |byte: &u64| {
                    spans.iter().any(|&(start, end, from, to)| {
                        (start..end).contains(byte) && (from..to).contains(&step)
                    })
                };
                assert_eq!(u64::try_from((0..40).filter(is_live).count()), Ok(bytes), "{spans:?}");
            }
        }
    }

    /// Against the definition: the height of each step.
    #[test]
    fn bodies_fall_as_far_as_in_a_table() {
        let mut below = numbers();
        for _ in 0..200 {
            let bodies: Vec<_> =
                (0..4).map(|base| body(100 * base, &random_spans(&mut below))).collect();
            let mut heights = [0_u64; 16];
            for body in &bodies {
                let steps = |span: &Span| index(span.live[0])..index(span.live[1]);
                let floor = |span: &Span| {
                    let highest = heights[steps(span)].iter().max().copied();
                    highest.unwrap_or(0).saturating_sub(span.start)
                };
                let base = body.spans.iter().map(floor).max().unwrap_or(0);
                for span in &body.spans {
                    let steps = &mut heights[steps(span)];
                    for height in steps {
                        *height = (*height).max(base + span.end);
                    }
                }
            }
            let bodies: Vec<_> = bodies.iter().collect();
            assert_eq!(fallen(&bodies, 16, false), heights.into_iter().max(), "{bodies:?}");
        }
    }

    #[test]
    fn bodies_fall_onto_those_of_their_steps_only() {
        let low = body(10, &[(0, 10, 0, 4)]);
        let apart = body(40, &[(0, 5, 5, 6)]);
        let high = body(100, &[(0, 10, 3, 6), (10, 20, 0, 2)]);
        assert_eq!(compacted(&[&low, &apart, &high], 6, 200, false), 30);
        // All together, the bodies only move down to the first byte.
        assert_eq!(compacted(&[&low, &apart, &high], 6, 200, true), 190);
    }

    #[test]
    fn bodies_keep_their_alignment_and_their_pins() {
        let mut piece = body(36, &[(0, 4, 0, 1)]);
        piece.alignment = 16;
        assert_eq!(compacted(&[&piece], 1, 40, false), 8);
        let mut pinned = body(32, &[(0, 8, 0, 1)]);
        pinned.is_pinned = true;
        assert_eq!(compacted(&[&pinned, &piece], 1, 64, false), 56);
        // A pin exactly where the body below ends, and a pin inside that body.
        let low = body(0, &[(0, 32, 0, 1)]);
        assert_eq!(fallen(&[&low, &pinned], 1, false), Some(40));
        let high = body(0, &[(0, 33, 0, 1)]);
        assert_eq!(fallen(&[&high, &pinned], 1, false), None);
    }
}
