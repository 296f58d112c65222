//! The pairs of buffers that cannot be in the same space.

use alloc::vec::Vec;

use crate::base::BufferId;
use crate::problem::{Buffer, Problem};

/// Most buffers in a group that are compared pairwise; packing refuses larger contradictions.
const MOST_OF_GROUP: usize = 1_000;

/// Returns by buffer, ascending, the buffers that cannot be in the same space: the pairs in
/// [`Rules::separate`](crate::Rules), and pairs for which pins or a group demand the same bytes.
pub(super) fn exclusive(problem: &Problem) -> Vec<Vec<usize>> {
    let mut others = alloc::vec![Vec::new(); problem.buffers().len()];
    let mut add = |one: usize, other: usize| {
        others[one].push(other);
        others[other].push(one);
    };
    for &(one, other) in &problem.rules().separate {
        add(one.index(), other.index());
    }
    let buffers = problem.buffers();
    let end = |it: usize| buffers[it].pin().unwrap_or(0).saturating_add(buffers[it].bytes());
    let mut pinned: Vec<usize> =
        (0..buffers.len()).filter(|&it| buffers[it].pin().is_some()).collect();
    pinned.sort_by_key(|&it| buffers[it].pin());
    for (place, &one) in pinned.iter().enumerate() {
        let above = pinned[place + 1..].iter();
        for &other in above.take_while(|&&other| buffers[other].pin() < Some(end(one))) {
            let ats = [one, other].map(|it| buffers[it].pin().unwrap_or(0));
            if may_choose(&buffers[one], &buffers[other]) && clash(problem, [one, other], ats) {
                add(one, other);
            }
        }
    }
    let mut grouped: Vec<(u32, usize)> = Vec::new();
    for (index, buffer) in buffers.iter().enumerate() {
        grouped.extend(buffer.group().map(|group| (group, index)));
    }
    grouped.sort_unstable();
    for group in grouped.chunk_by(|one, other| one.0 == other.0) {
        for (place, &(_, one)) in group.iter().enumerate().take(MOST_OF_GROUP) {
            for &(_, other) in group.iter().take(MOST_OF_GROUP).skip(place + 1) {
                if may_choose(&buffers[one], &buffers[other])
                    && clash(problem, [one, other], [0; 2])
                {
                    add(one, other);
                }
            }
        }
    }
    for others in &mut others {
        others.sort_unstable();
        others.dedup();
    }
    others
}

/// Returns whether two buffers may be outside their spaces without a choice.
fn may_choose(one: &Buffer, other: &Buffer) -> bool {
    one.has_choice() || other.has_choice()
}

/// Returns whether two buffers share bytes at some step, if placed at these offsets in the same
/// space.
fn clash(problem: &Problem, pair: [usize; 2], ats: [u64; 2]) -> bool {
    let [one, other] = pair.map(BufferId::new);
    if problem.rules().permits(one, other) {
        return false;
    }
    problem.buffer(one).rectangles().any(|(bytes, live)| {
        problem.buffer(other).rectangles().any(|(its, of_other)| {
            let (start, end) =
                (ats[0].saturating_add(bytes.start), ats[0].saturating_add(bytes.end));
            let (low, high) = (ats[1].saturating_add(its.start), ats[1].saturating_add(its.end));
            live.overlaps(of_other) && start.max(low) < end.min(high)
        })
    })
}
