//! Errors in this crate.

/// Operands that no kernel can work on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Operand sizes contradict each other.
    #[error("{what} has {found} elements where {needed} are needed")]
    WrongSize {
        /// The operand.
        what: &'static str,
        /// Elements in the operand.
        found: usize,
        /// Elements that the kernel needs.
        needed: usize,
    },
    /// The elements in a plane, or in a row, are not beside each other in memory.
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
    /// A result's memory is an operand's memory.
    #[error("the result shares memory with {what}")]
    Overlap {
        /// The operand.
        what: &'static str,
    },
}

/// The result of a fallible function in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Fails unless an operand has the elements that a kernel needs.
pub(crate) fn check(what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found == needed { Ok(()) } else { Err(Error::WrongSize { what, found, needed }) }
}

/// Fails if an operand has fewer elements than a kernel needs.
pub(crate) fn check_at_least(what: &'static str, found: usize, needed: usize) -> Result<()> {
    if found >= needed { Ok(()) } else { Err(Error::WrongSize { what, found, needed }) }
}
