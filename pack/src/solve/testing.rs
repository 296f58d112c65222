//! Generators and assertions for solver tests.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use alloc::{vec, vec::Vec};

use super::budget::Budget;
use super::model::Model;
use super::model::arith::number;
use super::model::clock::Clock;
use super::model::random::Random;
use crate::base::{Alignment, BufferId, LiveRange};
use crate::problem::{Buffer, Problem};
use crate::space::Space;

/// Returns the model of buffers that all belong to the same space.
pub(crate) fn model_of(buffers: Vec<Buffer>) -> Model {
    let members: Vec<_> = (0..buffers.len()).map(BufferId::new).collect();
    let problem = Problem::new(buffers, vec![Space::default()]).unwrap();
    let budget = Budget::default();
    Model::new(&problem, &members, &Clock::new(&budget)).unwrap().unwrap()
}

/// Asserts that solid items are disjoint at these offsets, and end at byte `target` or before.
pub(crate) fn assert_packed(model: &Model, offsets: &[u64], target: u64) {
    for (a, (it, low)) in model.items.iter().zip(offsets).enumerate() {
        assert!(model.end_in_bytes(a, *low) <= target, "it ends below the target");
        for (other, base) in model.items.iter().zip(offsets).skip(a + 1) {
            let meet = it.span.start < other.span.end && other.span.start < it.span.end;
            assert!(!meet || low + it.size <= *base || base + other.size <= *low);
        }
    }
}

/// Returns `count` buffers with 1 to `largest` bytes that are born before step `horizon` and live
/// for 1 to `longest` steps.
pub(crate) fn random_buffers(
    random: &mut Random,
    count: usize,
    horizon: usize,
    longest: usize,
    largest: usize,
) -> Vec<Buffer> {
    let mut below = |limit| number(random.below(limit));
    let mut buffer = || {
        let start = below(horizon);
        let live = LiveRange::new(start, start + 1 + below(longest)).unwrap();
        Buffer::new(1 + u64::from(below(largest)), live)
    };
    (0..count).map(|_| buffer()).collect()
}

/// Returns nine buffers, most of them live together, with alignments in half of the calls.
pub(crate) fn crowded_buffers(random: &mut Random) -> Vec<Buffer> {
    let aligned = random.below(2) == 0;
    let mut buffer = || {
        let start = random.below(6);
        let end = start + 1 + random.below(6 - start);
        let live = LiveRange::new(number(start), number(end)).unwrap();
        let bytes = 1 + u64::from(number(random.below(7)));
        let alignment = 1 << if aligned { random.below(3) } else { 0 };
        Buffer::new(bytes, live).with_alignment(Alignment::new(alignment).unwrap())
    };
    (0..9).map(|_| buffer()).collect()
}

/// Returns buffers with about equal total size of births and deaths at each step: most cuts have
/// equal sums.
pub(crate) fn replaced_buffers(random: &mut Random) -> Vec<Buffer> {
    let mut live = vec![(0, 20)];
    let mut buffers = Vec::new();
    for step in 0..9 {
        let mut room = u64::from(random.below(8) == 0);
        for _ in 0..=random.below(3).min(live.len() - 1) {
            let (start, size) = live.swap_remove(random.below(live.len()));
            if start < step {
                let live = LiveRange::new(start, step).unwrap();
                buffers.push(Buffer::new(size, live));
            }
            room += size;
        }
        while room > 0 {
            let size = room.min(1 + u64::from(number(random.below(9))));
            live.push((step, size));
            room -= size;
        }
    }
    let last = |(start, size)| Buffer::new(size, LiveRange::new(start, 9).unwrap());
    buffers.extend(live.into_iter().map(last));
    buffers
}
