//! Searches of one core for one target, in several views of it.

use super::clock::Clock;
use super::exact::{Outcome, Restarts, Turns};
use super::join::{Belief, Hints, Joined, join};
use super::model::Model;
use crate::error::Result;

/// What is believed in each view. Nothing that is found in one is less true than in another, but
/// only the last one proves that there is nothing.
const VIEWS: [Hints; 5] = [
    Hints { belief: Belief::Parts, fill: false, link: false },
    Hints { belief: Belief::Whole, fill: false, link: false },
    Hints { belief: Belief::Whole, fill: true, link: true },
    Hints { belief: Belief::Certain, fill: false, link: true },
    Hints { belief: Belief::Certain, fill: false, link: false },
];
/// The view in which nothing but what is certain is believed.
const CERTAIN: usize = VIEWS.len() - 1;

/// Views of one core that take turns in a search for one target.
#[derive(Debug)]
pub(super) struct Views {
    target: u64,
    seed: u64,
    /// The number of the thread.
    worker: usize,
    turn: usize,
    views: [Slot; VIEWS.len()],
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
        Self { target, seed, worker, turn: worker, views: Default::default() }
    }

    /// Starts over with another target, if it is another one.
    pub(super) fn aim_at(&mut self, target: u64) {
        if self.target != target {
            *self = Self::new(target, self.seed, self.worker);
        }
    }

    /// Searches once in the next view, and returns the offsets if a packing is found.
    pub(super) fn step(
        &mut self,
        core: &Model,
        clock: &Clock<'_>,
    ) -> Result<(Outcome, Vec<u64>)> {
        for _ in 0..VIEWS.len() {
            let number = self.turn % VIEWS.len();
            self.turn += 1;
            let slot = &mut self.views[number];
            if let Slot::New = slot {
                let view = View::new(core, self.target, VIEWS[number], self.seed, self.worker)?;
                let is_any = |view: &View| number == CERTAIN || view.joined.is_some();
                let view = view.filter(is_any).map(Box::new);
                *slot = view.map_or(Slot::Closed, Slot::Open);
            }
            let Slot::Open(view) = slot else { continue };
            let (outcome, offsets) = view.step(core, self.target, clock)?;
            if outcome == Outcome::Impossible && number != CERTAIN {
                *slot = Slot::Closed; // what is believed in it is wrong
                return Ok((Outcome::Undecided, offsets));
            }
            return Ok((outcome, offsets));
        }
        // It is too large to be searched: that is not to go on for ever.
        clock.tick(core.items.len());
        Ok((Outcome::Undecided, Vec::new()))
    }
}

impl View {
    /// Returns a view of a core, or nothing if it is too large to be searched.
    fn new(
        core: &Model,
        target: u64,
        hints: Hints,
        seed: u64,
        worker: usize,
    ) -> Result<Option<Self>> {
        let joined = join(core, target, hints)?;
        let model = joined.as_ref().map_or(core, Joined::model);
        let links = joined.as_ref().map_or(&[][..], Joined::links);
        let turns = Turns::from(model, worker);
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
