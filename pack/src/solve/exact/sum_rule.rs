//! Subset-sum pruning: an item's height above a floor is a subset sum of the items standing there.
//!
//! # References
//!
//! Subset sums as reachable heights are the "normal patterns" of Herz (IBM Journal, 1972) and
//! Christofides and Whitlock, "An algorithm for two-dimensional cutting problems", Operations
//! Research 25, 1977. New, as far as known: the sums are formed per section, over the items on the
//! floor, plus the slack.

use super::state::{Change, Conflict, SkylineState};
use crate::base::Result;
use crate::solve::model::arith::{align_up, index, number};
use crate::solve::tuning;

impl SkylineState {
    /// Applies the rule to all queued sections.
    ///
    /// `done` is the room lost by the move so far; returned is the room lost with this propagation.
    pub(super) fn prune_by_sums(&mut self, done: Result<f64, Conflict>) -> Result<f64, Conflict> {
        let mut done = done;
        while let Ok(loss) = done
            && let Some(section) = self.sums.suspects.pop()
        {
            let section = index(section);
            self.sums.is_suspect[section] = false;
            done = self.prune_section(section).map(|more| loss + more);
        }
        self.sums.forget();
        done
    }

    /// Raises the lows of a section's items that cannot start directly above the standing items.
    ///
    /// Some of the section's items have their low on the floor. The other items' lows are at least
    /// `next`. Below the lowest other item there are only standing items, and empty room of at most
    /// the slack. So this item's height above the floor is a subset sum of the standing sizes, plus
    /// at most the slack.
    fn prune_section(&mut self, section: usize) -> Result<f64, Conflict> {
        let (floor, slack) = (self.floor[section], self.slack(section));
        let (standing, few) = (self.count[section], tuning::exact::SUM_ITEMS);
        if standing == 0
            || standing > few
            || slack.saturating_mul(tuning::exact::SUM_SLACK_DIVISOR) > self.total[section]
        {
            return Ok(0.0);
        }
        self.sums.sums.clear();
        self.sums.sums.push(0);
        let mut next = u64::MAX;
        let first = self.first_member[section];
        for &kind in &self.members[first..first + index(self.open[section])] {
            let low = self.low[index(kind)];
            self.work += 1;
            if low > floor {
                next = next.min(low);
                continue;
            }
            for _ in 0..self.left_over[index(kind)] {
                let sums = &mut self.sums.sums;
                if sums.len() > 1 << few.min(16) {
                    return Ok(0.0); // copies are too many
                }
                sums.extend_from_within(..);
                let half = sums.len() / 2;
                let size = self.kinds[index(kind)].size;
                sums[half..].iter_mut().for_each(|sum| *sum += size);
            }
        }
        let crack = next - floor;
        if next == u64::MAX || crack <= slack {
            return Ok(0.0);
        }
        // The least height from `next` on that is a sum, and at most the slack more.
        let sums = self.sums.sums.iter().filter(|&&sum| sum + slack >= crack);
        let Some(least) = sums.map(|&sum| sum.max(crack)).min() else {
            return Err(Conflict { section: number(section) });
        };
        if least == crack {
            return Ok(0.0);
        }
        self.lift(section, floor + least)
    }

    /// Raises the lows of a section's items above the floor to at least `to`.
    fn lift(&mut self, section: usize, to: u64) -> Result<f64, Conflict> {
        let floor = self.floor[section];
        self.uncovered.clear();
        for position in 0..index(self.open[section]) {
            let kind = self.members[self.first_member[section] + position];
            let low = self.low[index(kind)];
            if low <= floor || low >= to {
                continue;
            }
            let it = &self.kinds[index(kind)];
            let (sections, higher) = (it.sections(), align_up(to, it.mask));
            if higher > self.ceiling(it) {
                return Err(Conflict { section: number(section) });
            }
            self.trail.push(Change::Low { kind, low });
            self.low[index(kind)] = higher;
            for other in sections {
                if self.floor[other] == low {
                    self.drop_count(other);
                } else {
                    self.sums.suspect(other);
                }
            }
        }
        self.cover()
    }
}
