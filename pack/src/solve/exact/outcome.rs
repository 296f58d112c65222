//! A search's result.

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All items are placed.
    Found,
    /// No packing below the target exists: every possibility was tried.
    Impossible,
    /// The limit was reached.
    Undecided,
}
