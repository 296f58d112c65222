//! Several graphs in one arena.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::base::{Error, Result, quoted};
use crate::pack::Status;
use crate::plan::Plan;

/// Rule for the runs of graphs that share an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Together {
    /// The graphs run one after the other, in any order: models that are called in turn, or
    /// branches that exclude each other. Values are lost when another graph has run, except states.
    #[cfg_attr(feature = "serde", serde(rename = "never-together"))]
    Never,
    /// The graphs run at the same time, at any step: no graph may touch another graph's bytes.
    Concurrent,
}

impl Together {
    /// Returns the name used in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never-together",
            Self::Concurrent => "concurrent",
        }
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Together {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "never-together" => Ok(Self::Never),
            "concurrent" => Ok(Self::Concurrent),
            _ => Err(Error::unknown_name("way to share", text, "never-together,concurrent")),
        }
    }
}

/// A graph in a shared arena.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedMember {
    /// First byte of the plan's arena in the shared arena.
    pub base: u64,
    /// The plan; offsets count from `base`.
    pub plan: Plan,
}

/// Plans of several graphs for one arena, made by
/// [`Planner::plan_together`](crate::Planner::plan_together).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlan {
    pub(crate) together: Together,
    pub(crate) members: Vec<SharedMember>,
    pub(crate) lower_bound: u64,
    pub(crate) capacity: Option<u64>,
}

impl SharedPlan {
    /// Returns when the graphs run.
    pub const fn together(&self) -> Together {
        self.together
    }

    /// Returns the plans in graph order.
    pub fn members(&self) -> &[SharedMember] {
        &self.members
    }

    /// Returns the bytes that the shared arena must have.
    pub fn arena_bytes(&self) -> u64 {
        let ends = self.members.iter().map(|one| one.base.saturating_add(one.plan.arena_bytes()));
        ends.max().unwrap_or(0)
    }

    /// Returns the alignment for the arena's first address.
    pub fn alignment(&self) -> u64 {
        let spaces = self.members.iter().flat_map(|one| one.plan.spaces());
        spaces.map(|space| space.alignment).max().unwrap_or(1)
    }

    /// Returns the bytes that the arena needs under any offsets: proven, for these orders and
    /// this sharing.
    pub const fn lower_bound(&self) -> u64 {
        self.lower_bound
    }

    /// Returns the permitted bytes of the arena, if limited.
    pub const fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// Returns the status of the arena size.
    pub fn status(&self) -> Status {
        Status::of(self.arena_bytes(), self.lower_bound, self.capacity)
    }

    /// Returns whether the arena fits its capacity.
    ///
    /// # Errors
    ///
    /// [`Error::CapacityExceeded`] if the arena is larger than its capacity.
    pub fn fits(&self) -> Result<()> {
        let needed = self.arena_bytes();
        match self.capacity.filter(|&capacity| capacity < needed) {
            None => Ok(()),
            Some(capacity) => Err(Error::CapacityExceeded {
                space: quoted("shared"),
                capacity,
                needed,
                lower_bound: self.lower_bound,
            }),
        }
    }
}
