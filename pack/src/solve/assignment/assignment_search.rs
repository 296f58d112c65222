//! Branch and bound over the spaces of buffers.

use alloc::{format, string::String, vec, vec::Vec};
use core::cmp::Reverse;

use super::leaves::{Answer, Cost, Leaf, Leaves, PackSpace};
use super::pairs::exclusive;
use super::space_loads::{SpaceLoad, SpaceSections};
use crate::base::{BufferId, Error, Result, SpaceId};
use crate::packing::{ChoiceProof, Packing};
use crate::problem::{Problem, check_in};
use crate::solve::budget::Budget;
use crate::space::Space;

/// Nodes of passes that only look for a good answer, beyond two per buffer.
const SHORT_PASS: usize = 2_000;
/// Nodes visited after all limits while there is no answer, beyond one per buffer.
const GRACE: usize = 10_000;
/// Memory accesses per node, by space and rectangle of a buffer.
const EFFORT: usize = 64;

/// A space for a buffer, with the least cost of the rest.
#[derive(Clone, Copy, Debug)]
struct Choice {
    least: Cost,
    space: usize,
}

/// The spaces that are tried for a buffer.
#[derive(Debug)]
struct Frame {
    buffer: usize,
    choices: Vec<Choice>,
    next: usize,
    /// Space that the buffer is in now.
    chosen: Option<usize>,
    /// The trail's length before.
    trail: usize,
    /// Position in the buffer order up to which all buffers have a space.
    position: usize,
}

/// A buffer without a remaining space, and the buffers that take its spaces.
#[derive(Debug)]
struct DeadEnd {
    depth: usize,
    buffer: usize,
    others: Vec<usize>,
}

/// A search for every buffer's space.
pub(super) struct SpaceSearch<'a> {
    problem: &'a Problem,
    leaves: Leaves<'a>,
    /// By buffer: the spaces that are left, as bits.
    domains: Vec<u64>,
    /// By buffer: the space, if decided.
    places: Vec<Option<usize>>,
    /// By buffer: sections and bytes of the rectangles.
    rectangles: Vec<Vec<(usize, usize, u128)>>,
    /// By buffer: the buffers that must be in other spaces.
    exclusive: Vec<Vec<usize>>,
    /// Buffers with a choice that are in pairs.
    paired: Vec<usize>,
    loads: Vec<SpaceLoad>,
    /// By space: the number of buffers.
    members: Vec<usize>,
    /// By space: an earlier space that is equal for every buffer.
    twins: Vec<Option<usize>>,
    /// Buffers, with the bits that the domains lost.
    trail: Vec<(usize, u64)>,
    /// Bytes that all spaces together need under any choice.
    root: u128,
    best: Option<Answer>,
    /// The least cost that complete assignments may have which are not decided.
    open: Option<Cost>,
    /// Whether assignments were refused, and whether any without a proof.
    refused: (bool, bool),
    dead_end: Option<DeadEnd>,
}

impl<'a> SpaceSearch<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        budget: &'a Budget<'a>,
        pack: PackSpace<'a>,
    ) -> Result<Self> {
        let buffers = problem.buffers();
        let spaces = problem.spaces();
        let sections =
            SpaceSections::new(buffers.iter().flat_map(|it| it.rectangles().map(|it| it.1)));
        let exclusive = exclusive(problem);
        // Bytes that a pair may share do not add up.
        let mut counts = vec![true; buffers.len()];
        for &(one, other) in &problem.rules().may_overlap {
            (counts[one.index()], counts[other.index()]) = (false, false);
        }
        let rectangles = |index: usize| {
            let all = buffers[index].rectangles().filter(|_| counts[index]);
            let of = |(bytes, live): (core::ops::Range<u64>, _)| {
                let (start, end) = sections.of(live);
                (start, end, u128::from(bytes.end - bytes.start))
            };
            all.map(of).collect::<Vec<_>>()
        };
        let rectangles: Vec<_> = (0..buffers.len()).map(rectangles).collect();
        let mut total = SpaceLoad::new(sections.len())?;
        for &(start, end, bytes) in rectangles.iter().flatten() {
            total.add(start, end, bytes);
        }
        let domain = |(index, buffer): (usize, &crate::Buffer)| {
            let possible = buffer.spaces().iter().filter(|it| {
                !buffer.has_choice() || check_in(index, buffer, &spaces[it.index()]).is_ok()
            });
            // Spaces past the 64th belong only to buffers without a choice, which are decided at
            // once.
            possible.fold(0, |bits, it| bits | bit(it.index()))
        };
        let domains: Vec<u64> = buffers.iter().enumerate().map(domain).collect();
        let has_pair = |&it: &usize| buffers[it].has_choice() && !exclusive[it].is_empty();
        let paired = (0..buffers.len()).filter(has_pair).collect();
        let loads = spaces.iter().map(|_| SpaceLoad::new(sections.len())).collect::<Result<_>>()?;
        let twins = twins(spaces, &domains);
        let mut search = Self {
            problem,
            leaves: Leaves::new(problem, budget, pack),
            domains,
            places: vec![None; buffers.len()],
            rectangles,
            exclusive,
            paired,
            loads,
            members: vec![0; spaces.len()],
            twins,
            trail: Vec::new(),
            root: total.largest(),
            best: None,
            open: None,
            refused: (false, false),
            dead_end: None,
        };
        for (index, buffer) in buffers.iter().enumerate() {
            if !buffer.has_choice() {
                search.assign(index, buffer.space().index());
            }
        }
        Ok(search)
    }

    /// Searches until the answer is proven to be the best, or the limits are reached.
    pub(super) fn run(mut self) -> Result<(Packing, usize)> {
        let choosing: Vec<usize> =
            (0..self.places.len()).filter(|&it| self.places[it].is_none()).collect();
        let buffer = |it: usize| &self.problem.buffers()[it];
        let mut by_size = choosing.clone();
        by_size.sort_by_key(|&it| (Reverse(buffer(it).bytes()), it));
        let mut by_area = choosing;
        by_area.sort_by_key(|&it| {
            let live = buffer(it).live();
            let steps = u128::from(live.end().get() - live.start().get());
            (Reverse(u128::from(buffer(it).bytes()) * steps), it)
        });
        let short = 2 * by_size.len() + SHORT_PASS;
        let mut is_exhausted = false;
        for (order, limit) in [(&by_size, short), (&by_area, short), (&by_size, usize::MAX)] {
            is_exhausted = self.pass(order, limit)?;
            if is_exhausted || self.is_done() || self.leaves.are_over() {
                break;
            }
        }
        self.finish(is_exhausted)
    }

    /// Returns whether no answer can improve on the best answer.
    fn is_done(&self) -> bool {
        let fits = |best: &Answer| best.cost.0 == 0;
        self.best
            .as_ref()
            .is_some_and(|best| fits(best) && (self.leaves.is_limited || best.cost.1 == self.root))
    }

    /// Returns whether a cost is no improvement.
    fn is_no_better(&self, cost: Cost) -> bool {
        self.best.as_ref().is_some_and(|best| best.cost <= cost)
    }

    /// Searches depth first within so many nodes; returns whether all choices were tried or excluded.
    fn pass(&mut self, order: &[usize], limit: usize) -> Result<bool> {
        let mut frames: Vec<Frame> = Vec::new();
        let (mut nodes, mut next) = (0_usize, 0);
        let is_exhausted = loop {
            while order.get(next).is_some_and(|&it| self.places[it].is_some()) {
                next += 1;
            }
            if let Some(buffer) = self.most_constrained().or_else(|| order.get(next).copied()) {
                let frame = self.frame(buffer, frames.len(), next);
                frames.push(frame);
            } else {
                self.complete()?;
                if self.is_done() {
                    break false;
                }
            }
            if !self.advance(&mut frames) {
                break true;
            }
            next = frames.last().map_or(0, |frame| frame.position);
            nodes += 1;
            let has_answer = self.best.is_some() || nodes >= order.len() + GRACE;
            if nodes >= limit || has_answer && self.leaves.are_over() {
                break false;
            }
        };
        for frame in frames.into_iter().rev() {
            self.retract(&frame);
        }
        Ok(is_exhausted)
    }

    /// Moves to the next choice that is not excluded; returns whether there is such a choice.
    fn advance(&mut self, frames: &mut Vec<Frame>) -> bool {
        while let Some(frame) = frames.last_mut() {
            self.retract(frame);
            frame.chosen = None;
            let choice = frame.choices.get(frame.next).copied();
            frame.next += 1;
            match choice {
                Some(choice) if self.is_no_better(choice.least) => {}
                Some(choice) => {
                    frame.chosen = Some(choice.space);
                    self.assign(frame.buffer, choice.space);
                    return true;
                }
                None => {
                    frames.pop();
                }
            }
        }
        false
    }

    /// Returns the open buffer of a pair with the fewest spaces; among equals, the largest.
    fn most_constrained(&self) -> Option<usize> {
        let open = self.paired.iter().copied().filter(|&it| self.places[it].is_none());
        open.min_by_key(|&it| {
            let bytes = self.problem.buffers()[it].bytes();
            (self.domains[it].count_ones(), Reverse(self.exclusive[it].len()), Reverse(bytes), it)
        })
    }

    /// Returns a buffer's spaces, least cost first.
    fn frame(&mut self, buffer: usize, depth: usize, position: usize) -> Frame {
        let domain = self.domains[buffer];
        let is_new = |search: &Self, space: usize| {
            // Two equal, empty spaces are a single choice.
            let mut twins = core::iter::successors(search.twins[space], |&it| search.twins[it]);
            search.members[space] > 0
                || !twins.any(|it| search.members[it] == 0 && domain & bit(it) != 0)
        };
        let mut choices = Vec::new();
        for space in (0..self.loads.len()).filter(|&it| domain & bit(it) != 0) {
            if is_new(self, space) {
                self.load(buffer, space, true);
                choices.push(Choice { least: self.least_cost(), space });
                self.load(buffer, space, false);
            }
        }
        let accesses = EFFORT * (1 + self.rectangles[buffer].len()) * (1 + choices.len());
        self.leaves.spend(1, accesses + self.paired.len());
        if choices.is_empty() && self.dead_end.as_ref().is_none_or(|it| it.depth < depth) {
            let placed = |&it: &usize| self.places[it].is_some();
            let others = self.exclusive[buffer].iter().copied().filter(placed).collect();
            self.dead_end = Some(DeadEnd { depth, buffer, others });
        }
        choices.sort_by_key(|it| (it.least, it.space));
        Frame { buffer, choices, next: 0, chosen: None, trail: self.trail.len(), position }
    }

    /// Returns a lower bound of the cost of all assignments that contain the current assignment.
    fn least_cost(&self) -> Cost {
        let spaces = self.loads.iter().zip(self.problem.spaces());
        let (over, sum) = spaces.fold((0, 0), |(over, sum), (load, space)| {
            let bytes = load.largest();
            let beyond = space.capacity().map_or(0, |it| bytes.saturating_sub(it.into()));
            (over + beyond, sum + bytes)
        });
        (over, sum.max(self.root))
    }

    /// Adds a buffer's bytes to a space, or removes them.
    fn load(&mut self, buffer: usize, space: usize, is_more: bool) {
        for &(start, end, bytes) in &self.rectangles[buffer] {
            let load = &mut self.loads[space];
            if is_more { load.add(start, end, bytes) } else { load.remove(start, end, bytes) }
        }
    }

    fn assign(&mut self, buffer: usize, space: usize) {
        self.load(buffer, space, true);
        self.places[buffer] = Some(space);
        self.members[space] += 1;
        for &other in &self.exclusive[buffer] {
            let lost = self.domains[other] & bit(space);
            if self.places[other].is_none() && lost != 0 {
                self.domains[other] &= !lost;
                self.trail.push((other, lost));
            }
        }
    }

    /// Takes back a frame's choice, if made.
    fn retract(&mut self, frame: &Frame) {
        let Some(space) = frame.chosen else { return };
        self.load(frame.buffer, space, false);
        self.places[frame.buffer] = None;
        self.members[space] -= 1;
        for (buffer, lost) in self.trail.drain(frame.trail..) {
            self.domains[buffer] |= lost;
        }
    }

    /// Packs the current assignment, which is complete.
    fn complete(&mut self) -> Result<()> {
        let places: Vec<SpaceId> =
            self.places.iter().flatten().map(|&space| SpaceId::new(space)).collect();
        let bound = self.least_cost();
        match self.leaves.pack(&places)? {
            Leaf::Packed { answer, least } => {
                let least = least.max(bound);
                if least < answer.cost && least.0 == 0 {
                    self.open = Some(self.open.map_or(least, |it| it.min(least)));
                }
                if !self.is_no_better(answer.cost) {
                    self.best = Some(answer);
                }
            }
            Leaf::Refused { proven } => {
                self.refused = (true, self.refused.1 || !proven);
                if !proven {
                    self.open = Some(self.open.map_or(bound, |it| it.min(bound)));
                }
            }
        }
        Ok(())
    }

    /// Returns the best packing with its proof.
    fn finish(self, is_exhausted: bool) -> Result<(Packing, usize)> {
        let (nodes, effort) = (self.leaves.nodes, self.leaves.effort());
        let is_several = self.problem.spaces().len() > 1;
        let Some(best) = self.best else {
            let is_proven = is_exhausted && !self.refused.1;
            return Err(Error::PinConflict { reason: self.no_spaces(is_proven) });
        };
        let fits = best.cost.0 == 0;
        let proven = if is_exhausted && fits {
            self.open.map_or(best.cost.1, |open| open.1.min(best.cost.1))
        } else {
            self.root
        };
        let lower_bound = proven.max(self.root).min(best.cost.1);
        let choice = ChoiceProof {
            lower_bound: u64::try_from(lower_bound).unwrap_or(u64::MAX),
            is_infeasible: is_exhausted && !fits && self.open.is_none(),
        };
        let Answer { places, offsets, spaces, .. } = best;
        let places = if is_several { places } else { Vec::new() };
        Ok((Packing { offsets, places, spaces, nodes, choice: Some(choice) }, effort))
    }

    /// Returns the message that no spaces obey the rules, or that none were found.
    fn no_spaces(&self, is_proven: bool) -> String {
        let result = if is_proven { "exist" } else { "were found" };
        if self.refused.0 {
            return format!("no spaces and offsets {result} that obey all rules");
        }
        let none = DeadEnd { depth: 0, buffer: 0, others: Vec::new() };
        let DeadEnd { buffer, others, .. } = self.dead_end.as_ref().unwrap_or(&none);
        let names = |ids: &[usize]| {
            let ids: Vec<_> = ids.iter().map(|&it| format!("{}", BufferId::new(it))).collect();
            ids.join(", ")
        };
        format!(
            "no spaces {result} that keep all pairs separate: buffer {buffer} has none beside buffers {}",
            names(others)
        )
    }
}

/// Returns a space's bit; 0 past the 64th space, which no buffer with a choice can use.
const fn bit(space: usize) -> u64 {
    if space < 64 { 1 << space } else { 0 }
}

/// Returns, by space, an earlier space that differs at most in name and cost, and is open to the
/// same buffers.
fn twins(spaces: &[Space], domains: &[u64]) -> Vec<Option<usize>> {
    let is_same = |one: usize, other: usize| {
        let plain = |space: &Space| space.clone().renamed("").with_cost(0);
        plain(&spaces[one]) == plain(&spaces[other])
            && domains.iter().all(|it| (it & bit(one) == 0) == (it & bit(other) == 0))
    };
    let twin = |space: usize| (0..space.min(64)).rev().find(|&earlier| is_same(earlier, space));
    (0..spaces.len()).map(twin).collect()
}
