//! A walk through time over all assignments at once, merged by the spaces of live items.
//!
//! The future depends only on the spaces of the live items. So all assignments of the items born so
//! far that agree on these spaces form a *state*, and only the cheapest assignment counts: a
//! shortest path.

use alloc::{boxed::Box, vec, vec::Vec};

use hashbrown::HashMap;

use super::space_model::{Crowd, Picks, SpaceModel};
use super::work::SpaceWork;
use crate::base::Step;

/// Marks an option that does not fit.
const NONE: u32 = u32::MAX;

/// The walk's result.
#[derive(Debug)]
pub(super) enum Outcome {
    /// States reach to the end.
    Done(SweepTable),
    /// No assignment: the live items at some step have no room.
    Dead { crowd: Crowd, exact: bool },
    /// There were too many states.
    GaveUp,
}

/// All states, item by item, with each state's remaining cost.
#[derive(Debug)]
pub(super) struct SweepTable {
    /// Whether no state was dropped.
    pub(super) exact: bool,
    /// By item, state and option: the next state.
    next: Vec<Vec<u32>>,
    /// By item and state: the least cost of this and all later items; `u64::MAX` if there is no way
    /// on. An additional entry for the end.
    ahead: Vec<Vec<u64>>,
    /// By item: the number of options.
    widths: Vec<usize>,
    picks: Picks,
}

impl SweepTable {
    /// Returns the state after putting `item` into an option, if the item fits.
    pub(super) fn after(&self, item: usize, state: u32, pick: u8) -> Option<u32> {
        let next = self.next[item][index(state) * self.widths[item] + usize::from(pick)];
        (next != NONE && self.ahead[item + 1][index(next)] != u64::MAX).then_some(next)
    }

    /// Returns the least cost of `item` and all later items.
    pub(super) fn ahead(&self, item: usize, state: u32) -> u64 {
        self.ahead[item][index(state)]
    }

    /// Returns the cheapest assignment whose loads fit.
    pub(super) fn cheapest(&self) -> &Picks {
        &self.picks
    }
}

/// States between two items: the picks of live items, with the least cost so far.
struct Front {
    /// Items that are live, by birth.
    alive: Vec<usize>,
    states: Vec<(Box<[u8]>, u64)>,
}

/// A walk's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct SweepLimits {
    /// Most states side by side; above, only the cheapest are kept.
    pub(super) widest: usize,
    /// Most states in total; above, the walk ends.
    pub(super) states: usize,
    /// Strict upper bound of an assignment's cost.
    pub(super) below: u64,
}

/// Walks through the problem.
pub(super) fn run(model: &SpaceModel<'_>, work: SpaceWork<'_>, limits: SweepLimits) -> Outcome {
    let count = model.items.len();
    let mut table = SweepTable {
        exact: true,
        next: Vec::with_capacity(count),
        ahead: Vec::new(),
        widths: model.items.iter().map(|item| item.options.len()).collect(),
        picks: Vec::new(),
    };
    // Least cost of all later items, which bounds the cost of the earlier items.
    let mut least: u64 = model.items.iter().map(|item| item.options[0].cost).sum();
    let below = limits.below.saturating_sub(model.cost_of(&Picks::new()));
    let mut front = Front { alive: Vec::new(), states: vec![(Box::default(), 0)] };
    let mut total = 0;
    for (item, about) in model.items.iter().enumerate() {
        least -= about.options[0].cost;
        let (mut next, after) = extend(model, item, &front, below.saturating_sub(least));
        let step = about.live.start();
        if after.states.is_empty() {
            let crowd = model.crowd(step, &model.live_at(step));
            return Outcome::Dead { crowd, exact: table.exact };
        }
        front = after;
        let until = model.items.get(item + 1).map(|next| next.live.start());
        if let Some(step) = advance(model, &mut front, step, until, &mut next) {
            let crowd = model.crowd(step, &model.live_at(step));
            return Outcome::Dead { crowd, exact: table.exact };
        }
        total += front.states.len();
        if total > limits.states {
            return Outcome::GaveUp;
        }
        work.spend(next.len().saturating_mul(1 + front.alive.len()));
        let widest = if work.is_over() { 1 } else { limits.widest };
        if front.states.len() > widest {
            table.exact = false;
            drop_dearest(&mut front, &mut next, widest);
        }
        table.next.push(next);
    }
    table.look_back(model, front.states.len());
    Outcome::Done(table)
}

/// Puts `item` into each option, from each state, as long as the cost is below `below`.
fn extend(model: &SpaceModel<'_>, item: usize, front: &Front, below: u64) -> (Vec<u32>, Front) {
    let about = &model.items[item];
    let step = about.live.start();
    let bytes = about.bytes_at(step);
    let sizes: Vec<_> = front.alive.iter().map(|&item| model.items[item].bytes_at(step)).collect();
    let mut next = Vec::with_capacity(front.states.len() * about.options.len());
    let mut states = Vec::new();
    for (picks, cost) in &front.states {
        let loads = loads(model, &front.alive, &sizes, picks);
        for (pick, option) in about.options.iter().enumerate() {
            let room = model.capacities[option.space].saturating_sub(loads[option.space]);
            if bytes > room || cost + option.cost >= below {
                next.push(NONE);
                continue;
            }
            next.push(narrow(states.len()));
            let mut picks = picks.to_vec();
            picks.push(u8::try_from(pick).expect("there are at most 64 spaces"));
            states.push((picks.into_boxed_slice(), cost + option.cost));
        }
    }
    let mut alive = front.alive.clone();
    alive.push(item);
    (next, Front { alive, states })
}

/// Returns how many bytes each space holds.
fn loads(model: &SpaceModel<'_>, alive: &[usize], sizes: &[u64], picks: &[u8]) -> Vec<u64> {
    let mut loads = vec![0_u64; model.capacities.len()];
    for ((&item, &bytes), &pick) in alive.iter().zip(sizes).zip(picks) {
        let load = &mut loads[model.picked(item, pick).space];
        *load = load.saturating_add(bytes);
    }
    loads
}

/// Keeps the `widest` cheapest states.
fn drop_dearest(front: &mut Front, next: &mut [u32], widest: usize) {
    let mut order: Vec<_> = (0..front.states.len()).collect();
    order.sort_by_key(|&state| (front.states[state].1, state));
    order.truncate(widest);
    order.sort_unstable();
    let mut renamed = vec![NONE; front.states.len()];
    for (new, &old) in order.iter().enumerate() {
        renamed[old] = narrow(new);
    }
    rename(next, &renamed);
    front.states =
        order.into_iter().map(|state| core::mem::take(&mut front.states[state])).collect();
}

/// Advances time from `step` to `until`: dead items are forgotten, and newborn parts must fit.
/// Returns the step at which no state is left, if any.
fn advance(
    model: &SpaceModel<'_>,
    front: &mut Front,
    step: Step,
    until: Option<Step>,
    next: &mut [u32],
) -> Option<Step> {
    if until == Some(step) {
        return None;
    }
    let first = model.moments.partition_point(|&moment| moment <= step);
    let past = until.map_or(model.moments.len(), |until| {
        model.moments.partition_point(|&moment| moment <= until)
    });
    let mut alive: Vec<bool> = vec![true; front.states.len()];
    for &moment in &model.moments[first..past] {
        // Only parts can be born without an item.
        if front.alive.iter().all(|&item| model.items[item].is_solid()) {
            break;
        }
        let sizes: Vec<_> =
            front.alive.iter().map(|&item| model.items[item].bytes_at(moment)).collect();
        for ((picks, _), alive) in front.states.iter().zip(&mut alive) {
            let loads = loads(model, &front.alive, &sizes, picks);
            *alive &= loads.iter().zip(&model.capacities).all(|(load, capacity)| load <= capacity);
        }
        if !alive.contains(&true) {
            return Some(moment);
        }
    }
    let kept: Vec<_> = front
        .alive
        .iter()
        .map(|&item| until.is_some_and(|until| until < model.items[item].live.end()))
        .collect();
    let mut known: HashMap<Box<[u8]>, u32> = HashMap::new();
    let mut states: Vec<(Box<[u8]>, u64)> = Vec::new();
    let mut renamed = vec![NONE; front.states.len()];
    for (old, (picks, cost)) in front.states.iter().enumerate() {
        if !alive[old] {
            continue;
        }
        let key: Box<[u8]> =
            picks.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(&pick, _)| pick).collect();
        let state = *known.entry(key.clone()).or_insert_with(|| {
            states.push((key, *cost));
            narrow(states.len() - 1)
        });
        let least = &mut states[index(state)].1;
        *least = (*least).min(*cost);
        renamed[old] = state;
    }
    rename(next, &renamed);
    front.states = states;
    let mut kept = kept.into_iter();
    front.alive.retain(|_| kept.next().unwrap_or(false));
    None
}

/// Gives states new numbers.
fn rename(next: &mut [u32], renamed: &[u32]) {
    for state in next.iter_mut().filter(|state| **state != NONE) {
        *state = renamed[index(*state)];
    }
}

impl SweepTable {
    /// Computes each state's remaining cost, from the end.
    fn look_back(&mut self, model: &SpaceModel<'_>, last: usize) {
        let count = self.next.len();
        self.ahead = vec![Vec::new(); count + 1];
        self.ahead[count] = vec![0; last];
        for item in (0..count).rev() {
            let options = &model.items[item].options;
            let later = &self.ahead[item + 1];
            let ahead = self.next[item].chunks(options.len()).map(|next| {
                let ways = next.iter().zip(options).filter(|(next, _)| **next != NONE);
                ways.map(|(next, option)| later[index(*next)].saturating_add(option.cost))
                    .min()
                    .unwrap_or(u64::MAX)
            });
            self.ahead[item] = ahead.collect();
        }
        let mut state = 0;
        for (item, about) in model.items.iter().enumerate() {
            let (pick, next) = (0..about.options.len())
                .filter_map(|pick| {
                    let pick = u8::try_from(pick).ok()?;
                    Some((pick, self.after(item, state, pick)?))
                })
                .min_by_key(|&(pick, next)| {
                    let later = self.ahead(item + 1, next);
                    (later.saturating_add(model.picked(item, pick).cost), pick)
                })
                .expect("a way leads to the end");
            self.picks.push(pick);
            state = next;
        }
    }
}

/// Returns a state's position.
fn index(state: u32) -> usize {
    usize::try_from(state).expect("pointers have at least 32 bits")
}

/// Returns a position as a state.
fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("states are limited in number")
}
