//! Branching: the choice of a skyline point, and the order of the children.

use alloc::vec::Vec;
use core::ops::Range;

use super::state::{Conflict, SkylineState};
use crate::solve::model::arith::{index, number, real};
use crate::solve::options::Methods;
use crate::solve::tuning;

/// A child of a node: a decision about a point just above the skyline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// An item of the kind covers the point.
    Cover(u32),
    /// No item covers the point: the section is given up to the floor.
    GiveUp { section: u32, floor: u64 },
}

/// A section's score; the section with the least score is branched on.
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

/// Weights for a child's score, beside the room that the child loses.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchWeights {
    /// Candidates whose consequences are tried before the choice.
    pub(super) tried: usize,
    /// How much the place in a fixed order counts.
    pub(super) rank: f64,
    /// Weight of each skyline step that the child creates or levels.
    pub(super) fit: f64,
    /// Weight of a saved phase with the same offset.
    pub(super) phase: f64,
}

impl BranchWeights {
    /// The standard weights.
    pub(super) const STANDARD: Self =
        Self { tried: tuning::exact::CANDIDATES, rank: tuning::exact::RANK, fit: 0.0, phase: 0.0 };
}

/// Chooses the point and orders the children.
#[derive(Debug)]
pub(super) struct Chooser {
    pub(super) preferences: BranchWeights,
    tried: Vec<(f64, u32)>,
    /// Weight that a section gains per failure.
    pub(super) failure: f64,
    /// Whether children are tried before the choice.
    looks_ahead: bool,
}

/// Preferences that are fixed during a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guide<'a> {
    /// Each kind's rank in a fixed order, from 0 to 1.
    pub(super) ranks: &'a [f64],
    /// The kinds' offsets where an earlier search came far; may be empty.
    pub(super) offsets: &'a [u64],
}

impl Guide<'_> {
    /// Returns whether the saved phase of `kind` is `offset`.
    fn recalls(&self, kind: u32, offset: u64) -> bool {
        self.offsets.get(index(kind)) == Some(&offset)
    }
}

impl Chooser {
    /// Returns a chooser with the standard weights.
    pub(super) const fn new(methods: &Methods) -> Self {
        Self {
            preferences: BranchWeights::STANDARD,
            tried: Vec::new(),
            failure: if methods.failure_weights { tuning::exact::FAILURE } else { 0.0 },
            looks_ahead: methods.look_ahead,
        }
    }

    /// Appends a component's children to `children`, best first.
    ///
    /// The point is on a *local minimum* of the skyline: a run of equal floors between higher
    /// floors. An item that covers the point lies on the run with all its sections, so no room
    /// below the item is lost. Hence, if there is a packing below this node, there is a packing
    /// below one of its children. If an item covers the point, the item starts on the floor. If no
    /// item covers the point, the lowest item of the section above the floor starts at its low, or
    /// on top of an item that is not live in the section.
    pub(super) fn choose(
        &mut self,
        state: &mut SkylineState,
        sections: Range<usize>,
        rule: SectionRule,
        weights: &mut [f64],
        guide: Guide<'_>,
        children: &mut Vec<Child>,
    ) {
        let section =
            best_section(state, sections.clone(), rule, weights, tuning::exact::CHILDREN_OFFSET);
        let floor = state.floor[section];
        self.tried.clear();
        for &kind in state.open_in(section) {
            if state.low[index(kind)] == floor {
                let phase = if guide.recalls(kind, floor) { self.preferences.phase } else { 0.0 };
                self.tried.push((self.preferences.rank * guide.ranks[index(kind)] - phase, kind));
            }
        }
        let give_up = next_floor(state, sections.clone(), section);
        self.tried.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        if self.looks_ahead && (self.tried.len() > 1 || give_up.is_some()) {
            self.look_ahead(state, sections, weights);
        }
        children.extend(self.tried.iter().map(|&(_, kind)| Child::Cover(kind)));
        children.extend(give_up.map(|floor| Child::GiveUp { section: number(section), floor }));
    }

    /// Tries the first children. Children that fail at once are dropped. The others are sorted by
    /// lost room, skyline steps, and initial score.
    fn look_ahead(
        &mut self,
        state: &mut SkylineState,
        sections: Range<usize>,
        weights: &mut [f64],
    ) {
        let BranchWeights { tried, fit, .. } = self.preferences;
        let tried = self.tried.len().min(tried);
        let mut kept = 0;
        for position in 0..tried {
            let (bias, kind) = self.tried[position];
            let mark = state.mark();
            match state.place(kind) {
                Ok(loss) => {
                    // Steps are counted only if they have a weight.
                    let steps = if fit > 0.0 { state.steps(sections.clone()) } else { 0 };
                    self.tried[kept] = (loss + fit * f64::from(steps) + bias, kind);
                    kept += 1;
                }
                Err(Conflict { section }) => weights[index(section)] += self.failure,
            }
            state.undo(mark);
        }
        self.tried[..kept].sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.tried.drain(kept..tried);
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

/// Returns the lowest floor above the present floor at which an item of the section can start if no
/// item covers the point, unless too little room is left.
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
