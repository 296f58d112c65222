//! Rules for buffer pairs.

use alloc::{format, vec::Vec};

use crate::base::{BufferId, Error, Result};

/// Rules for buffer pairs in a [`Problem`](crate::Problem).
///
/// Without rules, two buffers share no byte while both are live, and may share all bytes otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Pairs that may share bytes although both are live, such as an operand that is read element
    /// by element and the result that replaces the operand. The largest load is no bound for such
    /// problems: the bound comes from sets of buffers that are all apart.
    pub may_overlap: Vec<(BufferId, BufferId)>,
    /// Pairs that share no byte although never live together, such as the source of a transfer that
    /// is still on the way.
    pub apart: Vec<(BufferId, BufferId)>,
    /// Pairs that are in different spaces, such as two operands that are read in the same cycle
    /// from separate banks. [`Buffer::with_spaces`](crate::Buffer::with_spaces) lists the permitted
    /// spaces.
    pub separate: Vec<(BufferId, BufferId)>,
}

impl Rules {
    /// Returns whether two buffers may share bytes while both are live.
    pub(crate) fn permits(&self, one: BufferId, other: BufferId) -> bool {
        self.may_overlap.binary_search(&(one.min(other), one.max(other))).is_ok()
    }

    /// Returns the same rules with ordered pairs in order, for so many buffers.
    pub(crate) fn checked(mut self, buffers: usize) -> Result<Self> {
        for pairs in [&mut self.may_overlap, &mut self.apart, &mut self.separate] {
            for (one, other) in &mut *pairs {
                if one > other {
                    core::mem::swap(one, other);
                }
                let refuse = |reason| Err(Error::InvalidBuffer { buffer: one.index(), reason });
                if one == other {
                    return refuse("a rule for pairs names it twice".into());
                }
                if other.index() >= buffers {
                    return refuse(format!(
                        "a rule pairs it with buffer {other}, which is not there"
                    ));
                }
            }
            pairs.sort_unstable();
            pairs.dedup();
        }
        if let Some((one, other)) = self.apart.iter().copied().find(|&(a, b)| self.permits(a, b)) {
            let reason = format!("it may overlap buffer {other}, and must be apart from it");
            return Err(Error::InvalidBuffer { buffer: one.index(), reason });
        }
        Ok(self)
    }
}
