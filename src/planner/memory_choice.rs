//! The choice among schedules and ways to share bytes, where there are several memories.
//!
//! Three sources of plans are compared, by move cost and then by bytes:
//!
//! 1. The plan without memories, placed as a whole in the cheapest memory with enough room. A
//!    memory that is large enough for that plan is therefore never refused.
//! 2. A quick assignment for each of the best schedules, with several ways to share bytes: outputs
//!    in place of inputs of any size or of the same size only, and values taken apart that share
//!    bytes in a slow memory. When all schedules had a turn, outputs overlap inputs at a distance,
//!    at the steps that exceed the fast memories.
//! 3. The same with two deeper searches, the most promising schedules first, until the counted work
//!    is spent or an earlier search has proven the cost.

use alloc::rc::Rc;
use alloc::{vec, vec::Vec};

use super::attempt::Attempt;
use super::context::Context;
use super::least::least;
use super::no_room::scoped;
use super::other_orders::floor;
use super::overlap_search::overlap_sets;
use super::pack::{Best, Placed};
use super::place::{
    FoundPlaces, Sharing, Tried, candidates, homes, place, shared_in_slow_memories,
};
use super::scope::skipped;
use super::step_schedule::ScheduleGraph;
use crate::base::{Alignment, Error, Result, SpaceId, ValueId};
use crate::choose::spaces::{Depth, SpaceWork};
use crate::choose::{Memories, SpaceAssignment};
use crate::pack::{Allowance, Buffer, Problem, Space, SpacePacking, Status};
use crate::plan::{Effort, MoveCost, ShareRule, Technique, Techniques};

/// Limits for one effort: schedules and work.
#[derive(Clone, Copy, Debug)]
struct EffortLimits {
    /// Most schedules that are placed besides the given schedule.
    placed: usize,
    /// Rounds in which values that share bytes are taken apart.
    rounds: usize,
    /// Counted work at each depth. At the first depth, the best few schedules are placed whatever
    /// the work, until a schedule fits.
    work: [u64; 3],
}

impl EffortLimits {
    const fn of(effort: Effort) -> Self {
        match effort {
            Effort::Fast => Self { placed: 8, rounds: 4, work: [1_000_000, 2_000_000, 0] },
            Effort::Default => {
                Self { placed: 8, rounds: 4, work: [20_000_000, 60_000_000, 200_000_000] }
            }
            Effort::Max => {
                Self { placed: 16, rounds: 4, work: [400_000_000, 2_000_000_000, 10_000_000_000] }
            }
        }
    }
}

/// The best placement so far.
struct Cheapest<'t, 'g> {
    attempt: &'t Attempt<'g>,
    found: Rc<FoundPlaces>,
}

/// A trial whose result is kept, so that a deeper search does not repeat settled trials.
struct Known {
    attempt: usize,
    sharing: Sharing,
    tried: Tried,
}

/// Everything that was tried for one graph.
struct Trials<'p, 't, 'g> {
    context: &'p Context<'p>,
    memories: &'p Memories,
    attempts: &'t [Attempt<'g>],
    limits: EffortLimits,
    best: Option<Cheapest<'t, 'g>>,
    failed: Option<Failure>,
    known: Vec<Known>,
}

/// Why the first trial did not fit.
struct Failure {
    error: Error,
    proven: bool,
}

/// Returns the attempt whose buffers have the lowest move cost in the memories, or else the attempt
/// that packs into the fewest bytes.
pub(super) fn best_of<'t, 'g>(
    context: &Context<'_>,
    attempts: &'t [Attempt<'g>],
) -> Result<Best<'t, 'g>> {
    match context.memories {
        Some(memories) => cheapest(context, attempts, memories),
        None => least(context, attempts),
    }
}

/// Returns the attempt whose buffers cost least in the memories.
fn cheapest<'t, 'g>(
    context: &Context<'_>,
    attempts: &'t [Attempt<'g>],
    memories: &Memories,
) -> Result<Best<'t, 'g>> {
    if context.options.capacity.is_some() {
        let reason = "each memory has a capacity of its own".into();
        return Err(Error::InvalidOption { option: "capacity", reason });
    }
    let mut trials = Trials {
        context,
        memories,
        attempts,
        limits: EffortLimits::of(context.options.effort),
        best: None,
        failed: None,
        known: Vec::new(),
    };
    trials.in_one_memory()?;
    if !trials.is_least() {
        trials.run()?;
    }
    let Trials { best, failed, .. } = trials;
    let Some(Cheapest { attempt, found }) = best else {
        let Failure { error, proven } = failed.expect("the first schedule is always tried");
        return Err(scoped(error, is_excluded(context, attempts, memories, proven)?));
    };
    let FoundPlaces { mut liveness, assignment, .. } = Rc::unwrap_or_clone(found);
    let SpaceAssignment { problem, packing, cost, lower_bound } = assignment;
    liveness.problem = problem;
    let move_cost = Some(MoveCost { cost, lower_bound });
    Ok(Best { attempt, placed: Placed { liveness, packing, move_cost } })
}

/// Returns whether a proof exists that no step order of any attempt fits, for every way to share
/// bytes that the options permit.
///
/// The bytes that one step needs by itself bound every order and every way to share, and so does
/// each single value. An omitted technique might make other steps. An excluded assignment is
/// excluded for its own buffers only: `is_alone` says that the first assignment was excluded, which
/// is a proof if no other can be tried.
fn is_excluded(
    context: &Context<'_>,
    attempts: &[Attempt<'_>],
    memories: &Memories,
    is_alone: bool,
) -> Result<bool> {
    if context.options.optimize == Techniques::NONE {
        return Ok(is_alone);
    }
    if skipped(context, attempts).without(Technique::Order) != Techniques::NONE {
        return Ok(false);
    }
    let room = |space: &Space| space.capacity().unwrap_or(u64::MAX);
    let all = memories.spaces().iter().map(room).fold(0, u64::saturating_add);
    let largest = memories.spaces().iter().map(room).max().unwrap_or(0);
    for attempt in attempts {
        let graph = &attempt.schedule.graph;
        let homes = homes(graph, memories)?;
        let options = attempt.context(context).liveness_options(false, attempt.elision)?;
        let liveness = attempt.schedule.liveness(options)?;
        let is_too_large = |index: usize| {
            let id = ValueId::new(index);
            let most = homes[index].map_or(largest, |home| room(&memories.spaces()[home.index()]));
            liveness.buffer_of(id).is_some() && graph.value(id).bytes() > most
        };
        let has_too_large = (0..graph.values().len()).any(is_too_large);
        if !has_too_large && floor(context, core::slice::from_ref(attempt))? <= all {
            return Ok(false);
        }
    }
    Ok(true)
}

impl<'t, 'g> Trials<'_, 't, 'g> {
    /// Takes the plan without memories, if a single memory holds the whole plan.
    fn in_one_memory(&mut self) -> Result<()> {
        let memories = self.memories.spaces();
        let context = self.context.without_memories();
        let mut by_cost: Vec<usize> = (0..memories.len()).collect();
        by_cost.sort_by_key(|&index| (memories[index].cost(), index));
        let mut packed: Option<Alone> = None;
        for index in by_cost {
            if self.is_barred(SpaceId::new(index))? {
                continue;
            }
            let alignment = memories[index].alignment();
            let known = packed.take().filter(|packed| packed.alignment == alignment);
            let found = match known {
                Some(packed) => packed,
                None => Alone::new(&context, self.attempts, alignment)?,
            };
            let attempt = &self.attempts[found.attempt];
            if let Some(placed) = in_memory(attempt, &found.placed, memories, index)? {
                self.consider(attempt, &Rc::new(placed));
                return Ok(());
            }
            packed = Some(found);
        }
        Ok(())
    }

    /// Returns whether some value must be in another space than `space`.
    fn is_barred(&self, space: SpaceId) -> Result<bool> {
        let Some(attempt) = self.attempts.first() else { return Ok(true) };
        let homes = homes(&attempt.schedule.graph, self.memories)?;
        Ok(homes.iter().flatten().any(|&home| home != space))
    }

    /// Returns whether the best placement cannot be improved: only one memory exists, or the move
    /// cost is zero.
    fn is_least(&self) -> bool {
        let is_only = self.memories.spaces().len() == 1;
        self.best.as_ref().is_some_and(|best| is_only || best.found.assignment.cost == 0)
    }

    fn run(&mut self) -> Result<()> {
        let EffortLimits { placed, work, .. } = self.limits;
        let attempts = self.attempts;
        let is_placed = |index: &usize| *index < placed || attempts[*index].schedule.is_given();
        let mut left: Vec<usize> = (0..attempts.len()).filter(is_placed).collect();
        for (depth, work) in [Depth::QUICK, Depth::MEDIUM, Depth::FULL].into_iter().zip(work) {
            let allowance = Allowance::new(usize::try_from(work).unwrap_or(usize::MAX));
            let mut open = Vec::new();
            let mut walks = Vec::new();
            for index in left {
                if self.is_over() {
                    return Ok(());
                }
                if self.best.is_some() && allowance.is_spent() {
                    open.push(OpenSchedule { index, cost: u64::MAX, bound: 0 });
                } else {
                    walks.push(self.in_place(index, depth, &allowance)?);
                }
            }
            // There are many sets of overlaps: the sets of one schedule must not use up the work
            // before another schedule is tried at all.
            for mut walk in walks {
                if self.is_over() {
                    return Ok(());
                }
                self.at_distances(&mut walk)?;
                let cost = walk.best.map_or(u64::MAX, |(_, found)| found.assignment.cost);
                if walk.open {
                    open.push(OpenSchedule { index: walk.index, cost, bound: walk.bound });
                }
            }
            // The most promising walks first; walks that were not reached last.
            let cost = self.best.as_ref().map_or(u64::MAX, |best| best.found.assignment.cost);
            open.retain(|open| open.bound < cost);
            open.sort_unstable_by_key(|open| (open.cost, open.bound, open.index));
            left = open.into_iter().map(|open| open.index).collect();
        }
        Ok(())
    }

    /// Returns whether the search ends with the best placement so far.
    fn is_over(&self) -> bool {
        self.is_least() || self.context.budget.exhausted() && self.best.is_some()
    }

    /// Tries the ways to share bytes in one schedule in which no output overlaps an input at a
    /// distance.
    fn in_place<'a>(
        &mut self,
        index: usize,
        depth: Depth,
        allowance: &'a Allowance,
    ) -> Result<Walk<'a>> {
        let mut walk = Walk { index, depth, allowance, bound: u64::MAX, open: false, best: None };
        let plain = Sharing::default();
        self.step(&mut walk, plain.clone())?;
        if walk.best.as_ref().is_none_or(|(_, found)| found.has_parts()) {
            self.step(&mut walk, Sharing { same_size: true, ..plain.clone() })?;
        }
        let first = walk.best.clone();
        if let Some((_, found)) = first {
            self.take_apart(&mut walk, plain, found)?;
        }
        Ok(walk)
    }

    /// Tries sets of outputs that overlap inputs at a distance, as long as the work lasts.
    fn at_distances(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        if !walk.is_improvable() {
            return Ok(());
        }
        let attempt = &self.attempts[walk.index];
        for overlapped in overlap_sets(self.context, attempt, &rooms(self.memories))? {
            if !walk.is_improvable() {
                break;
            }
            if self.best.is_some() && walk.allowance.is_spent() {
                // The other walks have a turn at the next depth.
                walk.open = true;
                walk.bound = 0;
                break;
            }
            self.step(walk, Sharing { overlapped, ..Sharing::default() })?;
        }
        let best = walk.best.clone();
        if let Some((sharing, found)) = best.filter(|(best, _)| !best.overlapped.is_empty()) {
            self.take_apart(walk, sharing, found)?;
        }
        Ok(())
    }

    /// Takes values apart that share bytes in a slow memory, as long as that lowers the cost.
    fn take_apart(
        &mut self,
        walk: &mut Walk<'_>,
        mut sharing: Sharing,
        mut found: Rc<FoundPlaces>,
    ) -> Result<()> {
        let schedule = &self.attempts[walk.index].schedule;
        for _ in 0..self.limits.rounds {
            let is_over = walk.allowance.is_spent() || self.context.budget.exhausted();
            if !walk.is_improvable() || is_over {
                break;
            }
            let shared = |rule| shared_in_slow_memories(&found, schedule, self.memories, rule);
            let (in_place, slid) = (shared(ShareRule::InPlace), shared(ShareRule::Overlap));
            if in_place.is_empty() && slid.is_empty() {
                break;
            }
            sharing.apart.extend(in_place);
            sharing.overlapped.retain(|node| !slid.contains(node));
            match self.step(walk, sharing.clone())? {
                Tried::Fits(other) if other.key() < found.key() => {
                    let is_cheaper = other.assignment.cost < found.assignment.cost;
                    found = other;
                    if !is_cheaper {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Tries one way to share bytes, and returns the result.
    fn step(&mut self, walk: &mut Walk<'_>, sharing: Sharing) -> Result<Tried> {
        let attempt = &self.attempts[walk.index];
        let known = |known: &&Known| known.attempt == walk.index && known.sharing == sharing;
        let position = self.known.iter().position(|one| known(&one));
        let budget = self.context.budget.with_allowance(walk.allowance);
        let work = SpaceWork { budget, depth: walk.depth };
        let tried = match position.map(|position| &self.known[position].tried) {
            Some(tried) if tried.is_settled() => tried.clone(),
            _ => place(self.context, attempt, self.memories, &sharing, work)?,
        };
        walk.bound = walk.bound.min(tried.bound());
        walk.open |= !tried.is_settled();
        match &tried {
            Tried::Fits(found) => {
                if walk.best.as_ref().is_none_or(|(_, best)| found.key() < best.key()) {
                    walk.best = Some((sharing.clone(), Rc::clone(found)));
                }
                self.consider(attempt, found);
            }
            Tried::NoRoom { error, proven } => {
                // The first schedule needs the fewest bytes at once.
                self.failed
                    .get_or_insert_with(|| Failure { error: error.clone(), proven: *proven });
            }
        }
        let known = tried.clone();
        if let Some(position) = position {
            self.known[position].tried = known;
        } else {
            self.known.push(Known { attempt: walk.index, sharing, tried: known });
        }
        Ok(tried)
    }

    fn consider(&mut self, attempt: &'t Attempt<'g>, found: &Rc<FoundPlaces>) {
        if self.best.as_ref().is_none_or(|best| found.key() < best.found.key()) {
            self.best = Some(Cheapest { attempt, found: Rc::clone(found) });
        }
    }
}

/// A schedule whose trials are not all settled.
struct OpenSchedule {
    index: usize,
    /// The best placement's cost so far.
    cost: u64,
    /// The least bound on the cost.
    bound: u64,
}

/// One schedule's trials.
struct Walk<'a> {
    index: usize,
    depth: Depth,
    allowance: &'a Allowance,
    /// The least bound on the cost.
    bound: u64,
    /// Whether a trial is not settled.
    open: bool,
    best: Option<(Sharing, Rc<FoundPlaces>)>,
}

impl Walk<'_> {
    /// Returns whether another way to share bytes may cost less.
    fn is_improvable(&self) -> bool {
        self.best.as_ref().is_none_or(|(_, found)| found.assignment.cost > found.least)
    }
}

/// Returns the capacity of the cheapest memory, of the two cheapest together, and so on, while
/// capacities are limited.
fn rooms(memories: &Memories) -> Vec<u64> {
    let mut by_cost: Vec<&Space> = memories.spaces().iter().collect();
    by_cost.sort_by_key(|space| space.cost());
    let mut all = 0_u64;
    let mut rooms = Vec::new();
    for space in by_cost {
        let Some(capacity) = space.capacity() else { break };
        all = all.saturating_add(capacity);
        rooms.push(all);
    }
    rooms
}

/// The best plan without memories, in a space with the alignment of a memory.
struct Alone {
    alignment: Alignment,
    /// Attempt index.
    attempt: usize,
    placed: Placed,
}

impl Alone {
    /// Packs the attempts in a space that is aligned to `alignment`, since distances between
    /// overlapping outputs and inputs depend on the alignment.
    fn new(context: &Context<'_>, attempts: &[Attempt<'_>], alignment: Alignment) -> Result<Self> {
        let is_aligned = |attempt: &Attempt<'_>| {
            let spaces = attempt.schedule.graph.spaces();
            spaces.len() == 1 && spaces[0].alignment() == alignment
        };
        let moved: Vec<Attempt<'_>>;
        let attempts = if attempts.iter().all(is_aligned) {
            attempts
        } else {
            moved = attempts.iter().map(|attempt| in_one_space(attempt, alignment)).collect();
            &moved
        };
        let Best { attempt: best, placed } = least(context, attempts)?;
        let attempt = attempts.iter().position(|attempt| core::ptr::eq(attempt, best));
        let attempt = attempt.expect("the best attempt is one of the attempts");
        Ok(Self { alignment, attempt, placed })
    }
}

/// Returns the attempt with all values in one space without limit.
fn in_one_space<'g>(attempt: &Attempt<'g>, alignment: Alignment) -> Attempt<'g> {
    let mut moved = attempt.clone();
    let spaces = vec![Space::new("any").with_alignment(alignment)];
    let graph = attempt.schedule.graph.with_spaces(spaces, |_| SpaceId::new(0), &[]);
    moved.schedule.graph = ScheduleGraph::made(graph);
    moved
}

/// Returns buffers that were packed without memories in a single memory, if the buffers fit.
fn in_memory(
    attempt: &Attempt<'_>,
    placed: &Placed,
    memories: &[Space],
    index: usize,
) -> Result<Option<FoundPlaces>> {
    let Placed { liveness, packing, .. } = placed;
    let (space, memory) = (SpaceId::new(index), &memories[index]);
    let moved = |buffer: &Buffer| buffer.clone().with_space(space);
    let buffers: Vec<_> = liveness.problem.buffers().iter().map(moved).collect();
    let problem = Problem::new(buffers, memories.to_vec())?;
    let SpacePacking { peak, lower_bound, .. } = packing.spaces[0];
    let none = SpacePacking { peak: 0, lower_bound: 0, status: Status::Optimal };
    let mut spaces = vec![none; memories.len()];
    let status = Status::of(peak, lower_bound, memory.capacity());
    spaces[index] = SpacePacking { peak, lower_bound, status };
    let several = memories.len() > 1;
    let each = if several { vec![space; packing.offsets.len()] } else { Vec::new() };
    let mut packing = packing.clone();
    (packing.places, packing.spaces) = (each, spaces);
    if memory.capacity().is_some_and(|capacity| packing.spaces[index].peak > capacity) {
        return Ok(None);
    }
    let graph = &attempt.schedule.graph;
    let all = candidates(graph, &attempt.schedule, liveness);
    let traffic = all.iter().fold(0, |sum: u64, one| sum.saturating_add(one.traffic));
    let overflow = || Error::SizeOverflow { what: "the cost of moving all bytes".into() };
    let cost = traffic.checked_mul(memory.cost()).ok_or_else(overflow)?;
    let cheapest = memories.iter().map(Space::cost).min().unwrap_or(0);
    let lower_bound = traffic.saturating_mul(cheapest);
    let assignment = SpaceAssignment { problem, packing, cost, lower_bound };
    Ok(Some(FoundPlaces { liveness: liveness.clone(), assignment, least: lower_bound }))
}
