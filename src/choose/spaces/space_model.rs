//! The problem in time order: items by birth, and the moments at which loads grow.

use alloc::{vec, vec::Vec};

use super::work::SpaceWork;
use super::{AssignmentProblem, Floor, NoRoom};
use crate::base::{Alignment, BufferId, LiveRange, Step};

/// Most states in the test of a moment.
const MOMENT_STATES: usize = 20_000;

/// A permitted space of an item.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceChoice {
    pub(super) space: usize,
    pub(super) cost: u64,
}

/// A buffer with bytes.
#[derive(Debug)]
pub(super) struct Item {
    /// Position in the problem.
    pub(super) buffer: usize,
    pub(super) live: LiveRange,
    pub(super) bytes: u64,
    /// Fixed offset.
    pub(super) pin: Option<u64>,
    /// By option: the offset's alignment.
    pub(super) alignments: Vec<Alignment>,
    /// Bytes and live ranges; a single rectangle for nearly every item.
    rectangles: Vec<(u64, LiveRange)>,
    /// Spaces that are large enough, from cheap to dear.
    pub(super) options: Vec<SpaceChoice>,
}

impl Item {
    /// Returns how many bytes are needed at `step`.
    pub(super) fn bytes_at(&self, step: Step) -> u64 {
        let alive = |live: LiveRange| live.start() <= step && step < live.end();
        self.rectangles.iter().filter(|(_, live)| alive(*live)).map(|(bytes, _)| bytes).sum()
    }

    /// Returns whether all bytes are needed all the time.
    pub(super) fn is_solid(&self) -> bool {
        self.rectangles.len() == 1
    }
}

/// Items that are live at a step.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    pub(super) step: Step,
    /// Buffer positions in the problem.
    pub(super) members: Vec<usize>,
}

/// An assignment of items: each item's option, by position.
pub(super) type Picks = Vec<u8>;

/// The problem's buffers with bytes, by birth.
#[derive(Debug)]
pub(super) struct SpaceModel<'a> {
    problem: &'a AssignmentProblem,
    pub(super) items: Vec<Item>,
    /// By space; `u64::MAX` if unlimited.
    pub(super) capacities: Vec<u64>,
    /// Steps at which something is born, ascending.
    pub(super) moments: Vec<Step>,
    /// By buffer without bytes: the cheapest space.
    empty: Vec<(usize, SpaceChoice)>,
}

impl<'a> SpaceModel<'a> {
    /// Orders the buffers of `problem`, unless a buffer is too large for every space.
    pub(super) fn new(problem: &'a AssignmentProblem) -> Result<Self, NoRoom> {
        let capacities: Vec<u64> =
            problem.spaces.iter().map(|space| space.capacity().unwrap_or(u64::MAX)).collect();
        let mut items = Vec::with_capacity(problem.candidates.len());
        let mut empty = Vec::new();
        let mut moments = Vec::new();
        for (index, candidate) in problem.candidates.iter().enumerate() {
            let buffer = &candidate.buffer;
            let end = buffer.pin().unwrap_or(0).saturating_add(buffer.bytes());
            let mut options: Vec<_> = (0..problem.spaces.len())
                .filter(|&space| candidate.home.is_none_or(|home| home.index() == space))
                .filter(|&space| end <= capacities[space])
                .map(|space| SpaceChoice { space, cost: problem.cost(index, space) })
                .collect();
            options.sort_by_key(|option| (option.cost, option.space));
            let live = buffer.live();
            let Some(&cheapest) = options.first() else {
                let (step, buffers) = (live.start(), vec![BufferId::new(index)]);
                return Err(NoRoom { floor: Floor::Buffer, step, buffers, proven: true });
            };
            if buffer.bytes() == 0 {
                empty.push((index, cheapest));
                continue;
            }
            let rectangles: Vec<_> =
                buffer.rectangles().map(|(bytes, live)| (bytes.end - bytes.start, live)).collect();
            moments.extend(rectangles.iter().map(|(_, live)| live.start()));
            let alignment = |choice: &SpaceChoice| {
                buffer.alignment().max(problem.spaces[choice.space].alignment())
            };
            items.push(Item {
                buffer: index,
                live,
                bytes: buffer.bytes(),
                pin: buffer.pin(),
                alignments: options.iter().map(alignment).collect(),
                rectangles,
                options,
            });
        }
        items.sort_by_key(|item| (item.live.start(), item.buffer));
        moments.sort_unstable();
        moments.dedup();
        Ok(Self { problem, items, capacities, moments, empty })
    }

    /// Returns how many spaces an item may be in.
    pub(super) fn options(&self, item: usize) -> u8 {
        u8::try_from(self.items[item].options.len()).expect("there are at most 64 spaces")
    }

    /// Returns the space that an item is picked for.
    pub(super) fn picked(&self, item: usize, pick: u8) -> SpaceChoice {
        self.items[item].options[usize::from(pick)]
    }

    /// Returns the cost of moving all bytes.
    pub(super) fn cost_of(&self, picks: &Picks) -> u64 {
        let items: u64 =
            picks.iter().enumerate().map(|(item, &pick)| self.picked(item, pick).cost).sum();
        items + self.empty.iter().map(|(_, option)| option.cost).sum::<u64>()
    }

    /// Returns each buffer's space.
    pub(super) fn spaces_of(&self, picks: &Picks) -> Vec<usize> {
        let mut spaces = vec![0; self.problem.candidates.len()];
        for &(buffer, option) in &self.empty {
            spaces[buffer] = option.space;
        }
        for (item, &pick) in picks.iter().enumerate() {
            spaces[self.items[item].buffer] = self.picked(item, pick).space;
        }
        spaces
    }

    /// Returns the problem's buffers in `space` according to `picks`.
    pub(super) fn members_of(&self, picks: &Picks, space: usize) -> Vec<usize> {
        let mut members: Vec<_> = picks
            .iter()
            .enumerate()
            .filter(|&(item, &pick)| self.picked(item, pick).space == space)
            .map(|(item, _)| self.items[item].buffer)
            .collect();
        members.sort_unstable();
        members
    }

    /// Returns the live items at `step`, by position, with bytes.
    pub(super) fn live_at(&self, step: Step) -> Vec<(usize, u64)> {
        let born = self.items.partition_point(|item| item.live.start() <= step);
        (0..born)
            .filter(|&item| step < self.items[item].live.end())
            .map(|item| (item, self.items[item].bytes_at(step)))
            .collect()
    }

    /// Calls `visit` with every moment and its live items, in time order, until a call returns a
    /// result.
    fn visit_moments<T>(
        &self,
        mut visit: impl FnMut(Step, &[(usize, u64)]) -> Option<T>,
    ) -> Option<T> {
        let mut alive: Vec<usize> = Vec::new();
        let mut next = 0;
        for &step in &self.moments {
            alive.retain(|&item| step < self.items[item].live.end());
            while self.items.get(next).is_some_and(|item| item.live.start() == step) {
                alive.push(next);
                next += 1;
            }
            let live: Vec<_> =
                alive.iter().map(|&item| (item, self.items[item].bytes_at(step))).collect();
            if let Some(found) = visit(step, &live) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the items as buffers of the problem, largest first.
    pub(super) fn crowd(&self, step: Step, live: &[(usize, u64)]) -> Crowd {
        let mut members: Vec<_> = live.iter().filter(|(_, bytes)| *bytes > 0).copied().collect();
        members.sort_by_key(|&(item, bytes)| (core::cmp::Reverse(bytes), item));
        let members = members.into_iter().map(|(item, _)| self.items[item].buffer).collect();
        Crowd { step, members }
    }

    /// Returns the moment with the largest load.
    pub(super) fn largest_crowd(&self) -> Crowd {
        let mut largest = (0, Crowd { step: Step::default(), members: Vec::new() });
        self.visit_moments(|step, live| {
            let load = live.iter().map(|&(_, bytes)| u128::from(bytes)).sum::<u128>();
            if load > largest.0 {
                largest = (load, self.crowd(step, live));
            }
            None::<()>
        });
        largest.1
    }

    /// Returns the first moment at which the items restricted to one space exceed the space, if
    /// there are several spaces, with the space and these items.
    pub(super) fn first_at_home(&self) -> Option<(usize, Crowd)> {
        if self.capacities.len() < 2 {
            return None;
        }
        self.visit_moments(|step, live| {
            let mut loads = vec![0_u128; self.capacities.len()];
            let only = |item: usize| match self.items[item].options[..] {
                [option] => Some(option.space),
                _ => None,
            };
            for &(item, bytes) in live {
                if let Some(space) = only(item) {
                    loads[space] += u128::from(bytes);
                }
            }
            let is_over = |space: &usize| loads[*space] > u128::from(self.capacities[*space]);
            let space = (0..loads.len()).find(is_over)?;
            let at_home: Vec<_> =
                live.iter().copied().filter(|&(item, _)| only(item) == Some(space)).collect();
            Some((space, self.crowd(step, &at_home)))
        })
    }

    /// Returns a moment whose live items cannot fit the spaces, for any past: the moment that
    /// exceeds all spaces together by most, or else the first moment.
    pub(super) fn first_crowd(&self) -> Option<Crowd> {
        let room = self.capacities.iter().map(|&bytes| u128::from(bytes)).sum::<u128>();
        let mut largest = (room, None);
        self.visit_moments(|step, live| {
            let load = live.iter().map(|&(_, bytes)| u128::from(bytes)).sum::<u128>();
            if load > largest.0 {
                largest = (load, Some(self.crowd(step, live)));
            }
            None::<()>
        });
        largest.1.or_else(|| {
            self.visit_moments(|step, live| {
                (!self.fits_at_once(live)).then(|| self.crowd(step, live))
            })
        })
    }

    /// Returns whether a crowd can be divided among the spaces; true if that is hard to say.
    fn fits_at_once(&self, live: &[(usize, u64)]) -> bool {
        let mut live = live.to_vec();
        live.sort_by_key(|&(item, bytes)| (core::cmp::Reverse(bytes), item));
        // Depth first, the largest item first: each entry is a depth and the remaining room.
        let mut open = vec![(0, self.capacities.clone())];
        for _ in 0..MOMENT_STATES {
            let Some((depth, room)) = open.pop() else { return false };
            let Some(&(item, bytes)) = live.get(depth) else { return true };
            for option in self.items[item].options.iter().rev() {
                if let Some(left) = room[option.space].checked_sub(bytes) {
                    let mut room = room.clone();
                    room[option.space] = left;
                    open.push((depth + 1, room));
                }
            }
        }
        true
    }

    /// Returns a lower bound of the cost of all assignments.
    ///
    /// The live items at a moment may exceed the space where each is cheapest. Then some items are
    /// elsewhere, and cost at least the difference to their second choice. Fractions of items are
    /// allowed, so taking the cheapest bytes first is a lower bound. Bounds of several moments add
    /// up if the earlier moment's items are free to be elsewhere later: dynamic programming finds
    /// the best chain of moments from front to back.
    pub(super) fn overflow_bound(&self, work: SpaceWork<'_>) -> u64 {
        let base: u64 = self.items.iter().map(|item| item.options[0].cost).sum();
        let empty: u64 = self.empty.iter().map(|(_, option)| option.cost).sum();
        // By moment: the most that all chains up to the moment prove.
        let mut proven: Vec<(Step, u64)> = Vec::with_capacity(self.moments.len());
        self.visit_moments(|step, live| {
            let first = proven.len().saturating_sub(work.depth.chain);
            work.spend((1 + proven.len() - first) * live.len());
            let mut most = self.overflow_at(live, None);
            if most > 0 {
                for &(before, chain) in &proven[first..] {
                    let extra = self.overflow_at(live, Some(before));
                    most = most.max(chain + extra);
                }
            }
            most = most.max(proven.last().map_or(0, |&(_, chain)| chain));
            proven.push((step, most));
            None::<()>
        });
        base + empty + proven.last().map_or(0, |&(_, most)| most)
    }

    /// Returns a lower bound of the extra cost of `live` beyond the cheapest spaces, if items that
    /// were live at the step `before` may leave their spaces for free.
    fn overflow_at(&self, live: &[(usize, u64)], before: Option<Step>) -> u64 {
        let overflows = self.capacities.iter().enumerate();
        overflows.map(|(space, &capacity)| self.overflow_of(space, capacity, live, before)).sum()
    }

    /// Returns one space's part of [`overflow_at`](Self::overflow_at).
    fn overflow_of(
        &self,
        space: usize,
        capacity: u64,
        live: &[(usize, u64)],
        before: Option<Step>,
    ) -> u64 {
        let mut load = 0_u128;
        let mut movable = Vec::new();
        for &(item, bytes) in live {
            let about = &self.items[item];
            if about.options[0].space != space || bytes == 0 {
                continue;
            }
            load += u128::from(bytes);
            if before.is_some_and(|before| about.live.start() <= before) {
                movable.push((0, bytes));
            } else if let Some(second) = about.options.get(1) {
                movable.push((second.cost - about.options[0].cost, bytes));
            }
        }
        let mut over = load.saturating_sub(u128::from(capacity));
        if over == 0 {
            return 0;
        }
        // Cheapest per byte first, compared without fractions.
        movable.sort_by(|a, b| {
            (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
        });
        let mut extra = 0;
        for (cost, bytes) in movable {
            if over == 0 {
                break;
            }
            let part = over.min(u128::from(bytes));
            extra += u128::from(cost) * part / u128::from(bytes);
            over -= part;
        }
        u64::try_from(extra).unwrap_or(0)
    }
}
