//! Strips: how the nodes of a step run some rows at a time.

use alloc::vec::Vec;

/// How the nodes of a step run strip by strip.
///
/// A strip is some rows of the output of the last node. For each strip, every node makes the rows
/// of its result that its readers need for the strip and that are not there yet, in the order of
/// the nodes. Rows that a later strip needs stay in a *line buffer*; so each row is made once.
///
/// A line buffer holds the rows of one value from the first one that the strip needs, one place for
/// each row in every plane of the value. Before a strip, rows that stay are moved to the front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Strips {
    /// Rows of the output that are made at once; the last strip may have fewer.
    pub rows: u64,
    /// The line buffers, in the order in which the values are made.
    pub buffers: Vec<LineBuffer>,
    /// Values whose rows are made in the rows of another one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub in_place: Vec<RowsInPlace>,
}

/// Memory for some rows of a value inside of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LineBuffer {
    /// Position of the value in its graph.
    pub value: u32,
    /// First byte in workspace 0 of the step's last node.
    pub offset: u64,
    /// Rows that it holds.
    pub rows: u64,
}

/// A value inside of a step whose rows are made in the rows of another one, which takes them over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RowsInPlace {
    /// Position of the value in its graph.
    pub value: u32,
    /// The other one, which is made later: one with a line buffer, the output of the step, or one
    /// that is made in place itself.
    pub of: u32,
}
