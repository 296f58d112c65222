//! Searches of one core for one target, in several views of it.

use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::join::{Belief, Hints, Joined, join};
use super::model::Model;
use crate::error::Result;

/// What is believed in each view. Nothing that is found in one is less true than in another, but
/// only the last one proves that there is nothing.
const VIEWS: [Hints; 5] = [
    Hints { belief: Belief::Whole, fill: false, link: false },
    Hints { belief: Belief::Parts, fill: false, link: false },
    Hints { belief: Belief::Whole, fill: true, link: true },
    Hints { belief: Belief::Certain, fill: false, link: true },
    Hints { belief: Belief::Certain, fill: false, link: false },
];
/// The view in which nothing but what is certain is believed.
const CERTAIN: usize = VIEWS.len() - 1;

/// Turns that each view has before the most promising one has more.
const SEVERAL: usize = 4;

/// Views of one core that take turns in a search for one target.
#[derive(Debug)]
pub(super) struct Views {
    target: u64,
    seed: u64,
    /// The number of the thread.
    worker: usize,
    turn: usize,
    slots: [Slot; VIEWS.len()],
}

/// What has become of a view.
#[derive(Debug, Default)]
enum Slot {
    /// It had no turn yet.
    #[default]
    New,
    /// Something is searched in it.
    Open(Box<View>),
    /// There is nothing to be seen in it, or too much.
    Closed,
}

/// A core, with items joined or not, and its searches.
#[derive(Debug)]
struct View {
    /// Joined items, unless there are none.
    joined: Option<Joined>,
    search: Restarts,
    turns: Turns,
}

impl Views {
    /// Returns views of a core in which packings below byte `target` are looked for.
    pub(super) fn new(target: u64, seed: u64, worker: usize) -> Self {
        Self { target, seed, worker, turn: worker, slots: Default::default() }
    }

    /// Starts over with another target, if it is another one.
    pub(super) fn aim_at(&mut self, target: u64) {
        if self.target != target {
            *self = Self::new(target, self.seed, self.worker);
        }
    }

    /// Returns the view whose turn it is: each has one in order, and once all had several, every
    /// second turn is that of the view in which a search has come farthest.
    fn next(&mut self) -> usize {
        self.turn += 1;
        let turn = self.turn - 1;
        if turn < SEVERAL * VIEWS.len() {
            return turn % VIEWS.len();
        }
        if turn.is_multiple_of(2) {
            return turn / 2 % VIEWS.len();
        }
        let open = |&view: &usize| self.slots[view].least_open();
        (0..VIEWS.len()).min_by(|a, b| open(a).total_cmp(&open(b))).unwrap_or(CERTAIN)
    }

    /// Searches once in the next view, and returns the offsets if a packing is found.
    pub(super) fn step(&mut self, core: &Model, clock: &Clock<'_>) -> Result<(Outcome, Vec<u64>)> {
        for _ in 0..2 * VIEWS.len() {
            let number = self.next();
            let slot = &mut self.slots[number];
            if let Slot::New = slot {
                let view = match join(core, self.target, VIEWS[number])? {
                    None if number != CERTAIN => None,
                    joined => View::new(core, joined, self.seed, self.worker)?,
                };
                *slot = view.map(Box::new).map_or(Slot::Closed, Slot::Open);
            }
            let Slot::Open(view) = slot else { continue };
            let (outcome, offsets) = view.step(core, self.target, clock)?;
            if outcome == Outcome::Impossible && number != CERTAIN {
                *slot = Slot::Closed; // what is believed in it is wrong
                return Ok((Outcome::Undecided, offsets));
            }
            return Ok((outcome, offsets));
        }
        // The core is too large to be searched: that is not to go on for ever.
        clock.tick(core.items.len());
        Ok((Outcome::Undecided, Vec::new()))
    }
}

impl Slot {
    /// Returns the least share of the core that was left open in the view.
    fn least_open(&self) -> f64 {
        match self {
            Self::Open(view) => view.search.least_open(),
            Self::New | Self::Closed => f64::INFINITY,
        }
    }
}

impl View {
    /// Returns a view of a core, or nothing if it is too large to be searched.
    fn new(core: &Model, joined: Option<Joined>, seed: u64, worker: usize) -> Result<Option<Self>> {
        let model = joined.as_ref().map_or(core, Joined::model);
        let links = joined.as_ref().map_or(&[][..], Joined::links);
        let turns = Turns::new(model, worker);
        let search = Restarts::new(model, links, seed)?;
        Ok(search.map(|search| Self { joined, search, turns }))
    }

    /// Searches once, and returns the offsets if a packing is found.
    fn step(
        &mut self,
        core: &Model,
        target: u64,
        clock: &Clock<'_>,
    ) -> Result<(Outcome, Vec<u64>)> {
        let model = self.joined.as_ref().map_or(core, Joined::model);
        let outcome = self.search.step(model, target, &mut self.turns, clock)?;
        if outcome != Outcome::Found {
            return Ok((outcome, Vec::new()));
        }
        let offsets = self.search.offsets(model)?;
        match &self.joined {
            Some(joined) => Ok((outcome, joined.offsets(&offsets)?)),
            None => Ok((outcome, offsets)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::Budget;
    use super::super::arith::number;
    use super::super::random::Random;
    use super::*;
    use crate::problem::Buffer;
    use crate::units::LiveRange;

    /// Returns buffers of which what is born is about as large as what dies just then,
    /// wherever that may be.
    fn some_buffers(random: &mut Random) -> Vec<Buffer> {
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

    #[test]
    fn joins_and_hints_change_nothing_but_how_soon_it_is_decided() {
        let mut random = Random::new(5);
        let budget = Budget::default();
        let mut count = [0, 0];
        for round in 0..1000 {
            let clock = Clock::new(&budget);
            let model = Model::of_buffers(some_buffers(&mut random));
            let target = model.bound + u64::from(random.below(3) == 0);
            let mut plain = View::new(&model, None, 7, 0).unwrap().unwrap();
            let expected = loop {
                let (outcome, _) = plain.step(&model, target, &clock).unwrap();
                if outcome != Outcome::Undecided {
                    break outcome;
                }
            };
            let mut views = Views::new(target, 7, 0);
            let (outcome, offsets) = loop {
                let (outcome, offsets) = views.step(&model, &clock).unwrap();
                if outcome != Outcome::Undecided {
                    break (outcome, offsets);
                }
            };
            assert_eq!(outcome, expected, "round {round}");
            if outcome == Outcome::Found {
                model.assert_packed(&offsets, target);
            }
            count[usize::from(outcome == Outcome::Found)] += 1;
        }
        assert!(count.iter().all(|&many| many > 20), "of both outcomes there are many: {count:?}");
    }
}
