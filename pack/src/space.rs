//! Memories: capacity, alignment and reserved bytes.

use alloc::{string::String, vec, vec::Vec};
use core::ops::Range;

use crate::base::{Alignment, Error, Result};

/// One memory that offsets count in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    pub(super) name: String,
    pub(super) capacity: Option<u64>,
    pub(super) alignment: Alignment,
    /// A number that divides every offset, besides the alignment: 1 for none.
    pub(super) multiple: u64,
    cost: u64,
    /// Bytes that no buffer may have.
    pub(super) reserved: Vec<Range<u64>>,
}

impl Space {
    /// Returns an unlimited space called `name`, in which moving bytes costs nothing.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            capacity: None,
            alignment: Alignment::BYTE,
            multiple: 1,
            cost: 0,
            reserved: vec![],
        }
    }

    /// Limits the space to `bytes`.
    #[must_use]
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Makes every buffer in the space start at a multiple of `alignment`.
    #[must_use]
    pub fn with_alignment(mut self, alignment: Alignment) -> Self {
        self.alignment = alignment;
        self
    }

    /// Makes every buffer in the space start at a multiple of `bytes`, which need not be a power of
    /// two.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidAlignment`] if the number is 0 or more than 2^62.
    ///
    /// ```
    /// use arenaplan_pack::base::LiveRange;
    /// use arenaplan_pack::{Buffer, Space};
    /// use arenaplan_pack::{Budget, Problem, solve};
    /// let live = LiveRange::new(0, 1)?;
    /// let space = Space::default().with_multiple_of(48)?;
    /// let problem = Problem::new(vec![Buffer::new(16, live), Buffer::new(50, live)], vec![space])?;
    /// assert_eq!(solve(&problem, &Budget::default())?.peak(), 48 + 50);
    /// # Ok::<(), arenaplan_pack::Error>(())
    /// ```
    pub fn with_multiple_of(mut self, bytes: u64) -> Result<Self> {
        check_multiple(bytes)?;
        if bytes.is_power_of_two() {
            return Ok(self.with_alignment(Alignment::new(bytes)?));
        }
        self.multiple = bytes;
        Ok(self)
    }

    /// Keeps some bytes free: no buffer in the space has any of these bytes. An empty range keeps
    /// no bytes free.
    #[must_use]
    pub fn with_reserved(mut self, bytes: Range<u64>) -> Self {
        self.reserved.extend(Some(bytes).filter(|bytes| !bytes.is_empty()));
        self
    }

    /// Sets the cost of reading or writing one byte, in any unit that all spaces share.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Returns the same space with another name.
    #[must_use]
    pub fn renamed(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the cost to read or write one byte.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the capacity in bytes, or `None` if unlimited.
    pub const fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// Returns the bytes that no buffer may have.
    pub fn reserved(&self) -> &[Range<u64>] {
        &self.reserved
    }

    /// Returns the alignment for every offset in the space.
    pub const fn alignment(&self) -> Alignment {
        self.alignment
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::new("arena")
    }
}

/// Refuses a multiple that divides no offset, or only the first offset.
pub(super) fn check_multiple(bytes: u64) -> Result<()> {
    if (1..=1 << 62).contains(&bytes) {
        return Ok(());
    }
    Err(Error::InvalidAlignment { what: "an offset".into(), bytes })
}
