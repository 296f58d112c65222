//! What to decide next: which point of the skyline, and in which order what covers it.

use std::ops::Range;

use super::state::{Conflict, State};
use crate::solve::model::arith::{index, number, real};
use crate::solve::options::Methods;
use crate::solve::tuning::ExactTuning;

/// One way to go on at a point just above the skyline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// An item of the kind covers the point.
    Cover(u32),
    /// Nothing covers the point: the section is given up to the floor.
    GiveUp { section: u32, floor: u64 },
}

/// How to choose a section; each is a score of which the least wins.
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

/// What makes one candidate better than another, besides the room that it loses.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchWeights {
    /// Candidates whose consequences are tried before one is chosen.
    pub(super) tried: usize,
    /// How much the place in a fixed order counts.
    pub(super) rank: f64,
    /// How much each step of the skyline counts that it makes or levels.
    pub(super) fit: f64,
    /// How much it counts that an earlier search came far with it at the same offset.
    pub(super) phase: f64,
}

impl BranchWeights {
    /// Returns the weights of a search that wants no others.
    pub(super) const fn standard(tuning: &ExactTuning) -> Self {
        Self { tried: tuning.candidates, rank: tuning.rank, fit: 0.0, phase: 0.0 }
    }
}

/// Chooses, and has scratch space for that.
#[derive(Debug)]
pub(super) struct Chooser {
    pub(super) preferences: BranchWeights,
    tried: Vec<(f64, u32)>,
    tuning: ExactTuning,
    /// Whether children are tried before one is chosen.
    looks_ahead: bool,
}

/// What is known before a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guide<'a> {
    /// The place of each kind in a fixed order, from 0 to 1.
    pub(super) ranks: &'a [f64],
    /// The offsets of the kinds where an earlier search came far; may be empty.
    pub(super) offsets: &'a [u64],
}

impl Guide<'_> {
    /// Returns whether an earlier search came far with `kind` at `offset`.
    fn recalls(&self, kind: u32, offset: u64) -> bool {
        self.offsets.get(index(kind)) == Some(&offset)
    }
}

impl Chooser {
    /// Returns a chooser with some taste.
    pub(super) const fn new(tuning: ExactTuning, methods: &Methods) -> Self {
        let preferences = BranchWeights::standard(&tuning);
        Self { preferences, tried: Vec::new(), tuning, looks_ahead: methods.look_ahead }
    }

    /// Appends the ways to go on in a component to `children`, the best ones first.
    ///
    /// The point is on a *local minimum* of the skyline: a run of equal floors between
    /// higher ones. An item that covers it then lies on the run with all its sections,
    /// so that nothing is buried under it. Hence if there is a packing from here, there
    /// is one in which one of the children is taken: whoever covers the point starts
    /// on the floor; and if nobody does, the lowest item of the section above the
    /// floor starts at its low, or on top of an item that is not in the section.
    pub(super) fn choose(
        &mut self,
        state: &mut State,
        sections: Range<usize>,
        rule: SectionRule,
        weights: &mut [f64],
        guide: Guide<'_>,
        children: &mut Vec<Child>,
    ) {
        let section =
            best_section(state, sections.clone(), rule, weights, self.tuning.children_offset);
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

    /// Tries the first candidates: drops those that fail at once, and sorts the others by
    /// the room that is given up for them, by how well they fit the skyline, and by what
    /// spoke for them before.
    fn look_ahead(&mut self, state: &mut State, sections: Range<usize>, weights: &mut [f64]) {
        let BranchWeights { tried, fit, .. } = self.preferences;
        let tried = self.tried.len().min(tried);
        let mut kept = 0;
        for position in 0..tried {
            let (bias, kind) = self.tried[position];
            let mark = state.mark();
            match state.place(kind) {
                Ok(loss) => {
                    // What is not wanted is not counted.
                    let steps = if fit > 0.0 { state.steps(sections.clone()) } else { 0 };
                    self.tried[kept] = (loss + fit * f64::from(steps) + bias, kind);
                    kept += 1;
                }
                Err(Conflict { section }) => weights[index(section)] += self.tuning.failure,
            }
            state.undo(mark);
        }
        self.tried[..kept].sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.tried.drain(kept..tried);
    }
}

/// Returns the section with the least score on a local minimum of the skyline.
fn best_section(
    state: &State,
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
    state: &State,
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

/// Returns the lowest floor above the present one at which an item of the section can
/// start if nobody covers the point on its floor, unless that leaves too little room.
fn next_floor(state: &State, sections: Range<usize>, section: usize) -> Option<u64> {
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
    // Those with their low on the floor must rest on somebody beside the section.
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
