//! Strips: the nodes in a step run some rows at a time.

use alloc::vec::Vec;

/// The strips in which the nodes of a step run.
///
/// A strip is some rows of the last node's output. For each strip, every node, in node order, makes
/// the rows that its readers need for the strip and that are not there yet. Rows that a later strip
/// needs stay in a *line buffer*, so each row is made once.
///
/// A line buffer holds the rows of one value from the first row that the strip needs, with one
/// place per row in every plane. Before a strip, rows that stay are moved to the front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Strips {
    /// Rows of the output that are made at once; the last strip may have fewer.
    pub rows: u64,
    /// The line buffers, in the order in which the values are made.
    pub buffers: Vec<LineBuffer>,
    /// Values whose rows are made in another value's rows.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub in_place: Vec<RowsInPlace>,
}

/// Memory for some rows of a value inside a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LineBuffer {
    /// Value index in the graph.
    pub value: u32,
    /// First byte in workspace 0 of the step's last node.
    pub offset: u64,
    /// Number of rows in the buffer.
    pub rows: u64,
}

/// A value inside a step whose rows are taken over by another value's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RowsInPlace {
    /// Value index in the graph.
    pub value: u32,
    /// Index of the value that takes over the rows and is made later: a value with a line buffer,
    /// the step's output, or a value that is made in place itself.
    pub of: u32,
}
