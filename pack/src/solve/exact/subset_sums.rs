//! Sections in which subset-sum pruning may apply.

use alloc::vec::Vec;

use crate::base::Result;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::filled;

/// Queue of sections to prune.
#[derive(Debug)]
pub(super) struct SubsetSums {
    /// Whether the rule is on in this search: it prunes many nodes, and takes as much time.
    pub(super) wanted: bool,
    pub(super) suspects: Vec<u32>,
    pub(super) is_suspect: Vec<bool>,
    pub(super) sums: Vec<u64>,
}

impl SubsetSums {
    pub(super) fn new(sections: usize) -> Result<Self> {
        let is_suspect = filled(false, sections, "sections")?;
        Ok(Self { wanted: false, suspects: Vec::new(), is_suspect, sums: Vec::new() })
    }

    /// Queues a section whose floor has risen, or on whose floor fewer items stand.
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
