//! Notices cracks that nothing fills: between the floor and what cannot come down to it.

use super::super::arith::{align_up, index, number};
use super::super::memory::filled;
use super::state::{Change, State, Stuck};
use crate::error::Result;

/// Sections in which there may be a crack now.
#[derive(Debug)]
pub(super) struct Cracks {
    /// Whether to look for any: it prunes much, and costs as much time.
    pub(super) wanted: bool,
    suspects: Vec<u32>,
    is_suspect: Vec<bool>,
    sums: Vec<u64>,
}

/// Kinds on the floor of a section up to which their sums are looked at.
const FEW: u32 = 4;
/// A section with more slack than this part of what is open is not looked at.
const TIGHT: u64 = 16;

impl Cracks {
    pub(super) fn new(sections: usize) -> Result<Self> {
        let is_suspect = filled(false, sections, "sections")?;
        Ok(Self { wanted: false, suspects: Vec::new(), is_suspect, sums: Vec::new() })
    }

    /// Notes that fewer items stand on the floor of a section, or that it has risen.
    pub(super) fn suspect(&mut self, section: usize) {
        if self.wanted && !self.is_suspect[section] {
            self.is_suspect[section] = true;
            self.suspects.push(number(section));
        }
    }

    /// Forgets all suspects.
    pub(super) fn forget(&mut self) {
        for section in self.suspects.drain(..) {
            self.is_suspect[index(section)] = false;
        }
    }
}

impl State {
    /// Raises lows over cracks that nothing fills, wherever there may be some now.
    ///
    /// `done` is how much room what has happened before gave up; returned is what this
    /// gives up besides.
    pub(super) fn close_cracks(&mut self, done: Result<f64, Stuck>) -> Result<f64, Stuck> {
        let mut done = done;
        while let Ok(loss) = done
            && let Some(section) = self.cracks.suspects.pop()
        {
            let section = index(section);
            self.cracks.is_suspect[section] = false;
            done = self.close_crack(section).map(|more| loss + more);
        }
        self.cracks.forget();
        done
    }

    /// Raises the lows of what can only be above a crack in a section.
    ///
    /// Some items of the section have their low on its floor. The others can be at `next`
    /// at the earliest. Below the lowest of the others there are only some of the former
    /// and no more than the slack of empty room: so its height above the floor is a sum of
    /// their sizes, and at most the slack more.
    fn close_crack(&mut self, section: usize) -> Result<f64, Stuck> {
        let (floor, slack) = (self.floor[section], self.slack(section));
        let standing = self.count[section];
        if standing == 0 || standing > FEW || slack.saturating_mul(TIGHT) > self.total[section] {
            return Ok(0.0);
        }
        self.cracks.sums.clear();
        self.cracks.sums.push(0);
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
                let sums = &mut self.cracks.sums;
                if sums.len() > 1 << FEW {
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
        let sums = self.cracks.sums.iter().filter(|&&sum| sum + slack >= crack);
        let Some(least) = sums.map(|&sum| sum.max(crack)).min() else {
            return Err(Stuck { section: number(section) });
        };
        if least == crack {
            return Ok(0.0);
        }
        self.lift(section, floor + least)
    }

    /// Raises the lows of the items of a section that are above its floor to `to` at least.
    fn lift(&mut self, section: usize, to: u64) -> Result<f64, Stuck> {
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
                return Err(Stuck { section: number(section) });
            }
            self.trail.push(Change::Low { kind, low });
            self.low[index(kind)] = higher;
            for other in sections {
                if self.floor[other] == low {
                    self.drop_count(other);
                } else {
                    self.cracks.suspect(other);
                }
            }
        }
        self.cover()
    }
}
