//! Free stretches between allocations that share no byte.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{format, vec::Vec};
use core::str::FromStr;

use crate::error::{Error, Result};
use arenaplan::Error as Core;
use arenaplan::base::{Alignment, quoted};

/// The rule by which the gap for an allocation is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapRule {
    /// The shortest gap that fits; the lowest gap if several are equal.
    #[default]
    Shortest,
    /// As `LiteRt`: gaps by address; a gap replaces the best gap so far if the bytes *behind the
    /// gap's aligned start* are fewer than *all* bytes in the best gap.
    LiteRt,
}

impl GapRule {
    /// Every rule with a name, the same in Rust and in Python.
    pub const NAMES: [(&'static str, Self); 2] =
        [("shortest", Self::Shortest), ("litert", Self::LiteRt)];
}

impl FromStr for GapRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|&(_, rule)| rule).ok_or_else(|| {
            let reason = format!("{} is neither 'shortest' nor 'litert'", quoted(text));
            Error::Core(Core::InvalidOption { option: "rule", reason })
        })
    }
}

/// The gaps between allocations, and the room behind the last allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// Start to end.
    by_address: BTreeMap<u64, u64>,
    /// Length and start.
    by_length: BTreeSet<(u64, u64)>,
    /// The last allocation's end.
    end: u64,
}

impl Gaps {
    /// Returns the gaps between `taken`, or `None` if two spans share a byte.
    pub(super) fn between(taken: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let mut taken: Vec<(u64, u64)> = taken.into_iter().collect();
        taken.sort_unstable();
        let mut gaps = Self::default();
        for (start, end) in taken {
            if start < gaps.end {
                return None;
            }
            if gaps.end < start {
                gaps.insert(gaps.end, start);
            }
            gaps.end = end;
        }
        Some(gaps)
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.by_address.insert(start, end);
        self.by_length.insert((end - start, start));
    }

    fn remove(&mut self, start: u64) {
        if let Some(end) = self.by_address.remove(&start) {
            self.by_length.remove(&(end - start, start));
        }
    }

    /// Returns the offset for `bytes` bytes, or `None` if they end past any memory.
    pub(super) fn find(&self, bytes: u64, alignment: Alignment, rule: GapRule) -> Option<u64> {
        let fits = |start: u64, end: u64| {
            alignment.round_up(start).filter(|at| at.checked_add(bytes).is_some_and(|to| to <= end))
        };
        let found = match rule {
            GapRule::Shortest => self
                .by_length
                .range((bytes, 0)..)
                .find_map(|&(length, start)| fits(start, start + length)),
            GapRule::LiteRt => {
                let mut best: Option<(u64, u64)> = None;
                for (&start, &end) in &self.by_address {
                    let Some(at) = fits(start, end) else { continue };
                    if best.is_none_or(|(_, length)| end - at < length) {
                        best = Some((at, end - start));
                    }
                }
                best.map(|(at, _)| at)
            }
        };
        found.or_else(|| alignment.round_up(self.end))
    }

    /// Notes that the bytes from `start` to `end`, which were free, are taken.
    pub(super) fn take(&mut self, start: u64, end: u64) {
        if start >= self.end {
            if self.end < start {
                self.insert(self.end, start);
            }
            self.end = end;
            return;
        }
        let found = self.by_address.range(..=start).next_back().map(|(&at, &to)| (at, to));
        let (from, to) = found.expect("the bytes were free");
        self.remove(from);
        if from < start {
            self.insert(from, start);
        }
        if end < to {
            self.insert(end, to);
        }
    }

    /// Notes that the bytes from `start` to `end`, which were taken, are free.
    pub(super) fn free(&mut self, start: u64, end: u64) {
        let mut from = start;
        if let Some((&before, &to)) = self.by_address.range(..start).next_back()
            && to == start
        {
            self.remove(before);
            from = before;
        }
        if end == self.end {
            // No byte is taken behind the previous gap.
            self.end = from;
            return;
        }
        let to = self.by_address.get(&end).copied();
        self.remove(end);
        self.insert(from, to.unwrap_or(end));
    }
}
