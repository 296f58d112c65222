//! Branching: the choice of a point of the skyline, and the order of its children.

use alloc::vec::Vec;
use core::ops::Range;

use super::state::SkylineState;
use crate::solve::model::arith::{index, number, real};
use crate::solve::tuning::ExactTuning;

/// A child of a node: a decision about a point just above the skyline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// An item of the kind covers the point.
    Cover(u32),
    /// Nothing covers the point: the section is given up to the floor.
    GiveUp { section: u32, floor: u64 },
}

/// Score of a section; the section with the least score is branched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionRule {
    /// Few children, often stuck, and much to place.
    FewLoaded,
    /// Few children, often stuck.
    Few,
    /// Few children, often stuck, little room to give up.
    FewTight,
    /// The lowest floor, then few children.
    Lowest,
    /// Little decided, often stuck.
    Emptiest,
    /// Little room to give up, often stuck.
    Tight,
}

/// Chooses the point and orders its children.
#[derive(Debug)]
pub(super) struct Chooser {
    tried: Vec<(f64, u32)>,
    children_offset: f64,
}

impl Chooser {
    /// Returns a chooser.
    pub(super) const fn new(tuning: &ExactTuning) -> Self {
        Self { tried: Vec::new(), children_offset: tuning.children_offset }
    }

    /// Appends the children of a component to `children`, the best ones first.
    ///
    /// The point is on a *local minimum* of the skyline: a run of equal floors between higher ones.
    /// An item that covers the point lies on the run with all its sections, so no room below the
    /// item is lost. Hence, if there is a packing below this node, there is one below one of its
    /// children. If an item covers the point, the item starts on the floor. If no item covers the
    /// point, the lowest item of the section above the floor starts at its low, or on top of an
    /// item that is not live in the section.
    ///
    /// # Arguments
    ///
    /// * `ranks`: the place of each kind in a fixed order, from 0 to 1.
    pub(super) fn choose(
        &mut self,
        state: &SkylineState,
        sections: Range<usize>,
        rule: SectionRule,
        weights: &[f64],
        ranks: &[f64],
        children: &mut Vec<Child>,
    ) {
        let section = best_section(state, sections.clone(), rule, weights, self.children_offset);
        let floor = state.floor[section];
        self.tried.clear();
        for &kind in state.open_in(section) {
            if state.low[index(kind)] == floor {
                self.tried.push((ranks[index(kind)], kind));
            }
        }
        self.tried.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        children.extend(self.tried.iter().map(|&(_, kind)| Child::Cover(kind)));
        let give_up = next_floor(state, sections, section);
        children.extend(give_up.map(|floor| Child::GiveUp { section: number(section), floor }));
    }
}

/// Returns the section with the least score on a local minimum of the skyline.
fn best_section(
    state: &SkylineState,
    sections: Range<usize>,
    rule: SectionRule,
    weights: &[f64],
    children_offset: f64,
) -> usize {
    let mut best = (f64::INFINITY, f64::INFINITY, sections.start);
    let mut start = sections.start;
    while start < sections.end {
        let floor = state.floor[start];
        let mut end = start + 1;
        while end < sections.end && state.floor[end] == floor {
            end += 1;
        }
        let left_higher = start == sections.start || state.floor[start - 1] > floor;
        let right_higher = end == sections.end || state.floor[end] > floor;
        if left_higher && right_higher {
            for (section, &weight) in weights.iter().enumerate().take(end).skip(start) {
                let (first, second) = score(state, section, rule, weight, children_offset);
                if first < best.0 || (first <= best.0 && second < best.1) {
                    best = (first, second, section);
                }
            }
        }
        start = end;
    }
    best.2
}

/// Returns how attractive a section is, and a second number to break ties.
fn score(
    state: &SkylineState,
    section: usize,
    rule: SectionRule,
    weight: f64,
    children_offset: f64,
) -> (f64, f64) {
    let slack = state.slack(section);
    let children = f64::from(state.count[section] + u32::from(slack > 0));
    let few = children - children_offset;
    let total = real(state.total[section]);
    match rule {
        SectionRule::FewLoaded => (few / weight / total, 0.0),
        SectionRule::Few => (few / weight, -total),
        SectionRule::FewTight => (real(slack + 1) * children / weight, -total),
        SectionRule::Lowest => (real(state.floor[section]), children / weight),
        SectionRule::Emptiest => {
            (real(state.roof[section] - state.total[section]) / weight, children)
        }
        SectionRule::Tight => (real(slack + 1) / weight, children),
    }
}

/// Returns the lowest floor above the present one at which an item of the section can start if no
/// item covers the point, unless that leaves too little room.
fn next_floor(state: &SkylineState, sections: Range<usize>, section: usize) -> Option<u64> {
    let (floor, slack) = (state.floor[section], state.slack(section));
    if slack == 0 {
        return None;
    }
    let mut next = u64::MAX;
    let (mut from, mut to) = (section, section + 1);
    for &kind in state.open_in(section) {
        let low = state.low[index(kind)];
        if low > floor {
            next = next.min(low);
        } else {
            let it = &state.kinds[index(kind)];
            from = from.min(index(it.left));
            to = to.max(index(it.right));
        }
    }
    // An item with its low on the floor rests on an item beside the section.
    for beside in from.max(sections.start)..to.min(sections.end) {
        for &kind in state.open_in(beside) {
            let it = &state.kinds[index(kind)];
            if !it.is_live(number(section)) {
                let top = state.low[index(kind)] + it.size;
                if top > floor {
                    next = next.min(top);
                }
            }
        }
    }
    (next - floor <= slack).then_some(next)
}
