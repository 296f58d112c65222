//! Propagation over chained intervals: bounds of one side follow from bounds of the other.

use super::state::{Change, Conflict, SkylineState};
use crate::base::Result;
use crate::solve::model::arith::{index, number};

impl SkylineState {
    /// Applies the rule to all intervals whose items have moved.
    ///
    /// `done` is the room lost by the move so far; returned is the room lost with this propagation.
    pub(crate) fn follow_chains(&mut self, done: Result<f64, Conflict>) -> Result<f64, Conflict> {
        let mut done = done;
        self.uncovered.clear();
        while let Ok(loss) = done
            && let Some(kind) = self.chains.next_moved()
        {
            for at in self.chains.of(kind) {
                let link = index(self.chains.of_kinds[at]);
                self.work += 1;
                done = self.follow(link).map(|()| loss);
                if done.is_err() {
                    break;
                }
            }
        }
        self.chains.forget();
        if self.uncovered.is_empty() {
            return done;
        }
        done.and_then(|loss| Ok(loss + self.cover()?))
    }

    /// Makes the bounds of all kinds of an interval consistent.
    ///
    /// With *p* the offset of the interval and *P* its size, each kind of size *s* starts between
    /// *p* and *p* + *P* − *s*, and on both sides some kind starts at *p*.
    fn follow(&mut self, link: usize) -> Result<(), Conflict> {
        let room = &self.chains.list[link];
        let (whole, mut low, mut high) = (room.size, room.low, room.high);
        for side in &room.sides {
            let mut least = u64::MAX;
            for &kind in side {
                let at = index(kind);
                low = low.max((self.low[at] + self.kinds[at].size).saturating_sub(whole));
                high = high.min(self.high[at]);
                least = least.min(self.low[at]);
            }
            low = low.max(least);
        }
        if (low, high) == (room.low, room.high) {
            return Ok(());
        }
        let change = Change::Room { link: number(link), low: room.low, high: room.high };
        self.trail.push(change);
        self.chains.reset(number(link), low, high);
        for side in 0..2 {
            for position in 0..self.chains.list[link].sides[side].len() {
                let kind = self.chains.list[link].sides[side][position];
                let size = self.kinds[index(kind)].size;
                self.raise(kind, low)?;
                self.lower(kind, high.saturating_add(whole - size))?;
            }
        }
        Ok(())
    }

    /// Raises the low of a kind to `to`.
    fn raise(&mut self, kind: u32, to: u64) -> Result<(), Conflict> {
        let low = self.low[index(kind)];
        if low >= to {
            return Ok(());
        }
        let it = &self.kinds[index(kind)];
        let sections = it.sections();
        if to > self.ceiling(it).min(self.high[index(kind)]) {
            return Err(Conflict { section: it.left });
        }
        self.trail.push(Change::Low { kind, low });
        self.low[index(kind)] = to;
        self.chains.note(kind);
        for section in sections {
            if self.floor[section] == low {
                self.drop_count(section);
            } else {
                self.sums.suspect(section);
            }
        }
        Ok(())
    }

    /// Lowers the high of a kind to `to`.
    fn lower(&mut self, kind: u32, to: u64) -> Result<(), Conflict> {
        let high = self.high[index(kind)];
        if high <= to {
            return Ok(());
        }
        if to < self.low[index(kind)] {
            return Err(Conflict { section: self.kinds[index(kind)].left });
        }
        self.trail.push(Change::High { kind, high });
        self.high[index(kind)] = to;
        self.chains.note(kind);
        Ok(())
    }
}
