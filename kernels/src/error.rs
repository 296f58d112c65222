//! Errors of this crate.

/// Operands that no kernel can work on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Sizes of operands contradict each other.
    #[error("{what} has {found} elements where {needed} are needed")]
    WrongSize {
        /// The operand.
        what: &'static str,
        /// Elements of the operand.
        found: usize,
        /// Elements that the kernel needs.
        needed: usize,
    },
    /// The elements of a plane, or of a row, are not beside each other in memory.
    #[error("{what} is not contiguous")]
    NotContiguous {
        /// The operand.
        what: &'static str,
    },
    /// A size is zero, or a product of sizes does not fit the address space.
    #[error("{what} is out of range")]
    OutOfRange {
        /// The size.
        what: &'static str,
    },
    /// The memory of a result is that of an operand.
    #[error("the result shares memory with {what}")]
    Overlap {
        /// The operand.
        what: &'static str,
    },
}

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Fails unless an operand has the elements that a kernel needs.
pub(crate) fn check(what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found == needed { Ok(()) } else { Err(Error::WrongSize { what, found, needed }) }
}

/// Fails if an operand has fewer elements than a kernel needs.
pub(crate) fn check_at_least(what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found >= needed { Ok(()) } else { Err(Error::WrongSize { what, found, needed }) }
}
