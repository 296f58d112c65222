//! A graph's numbers: graphs for several shapes of one model often differ in numbers alone.

use alloc::format;

use super::{Graph, Workspace, builder};
use crate::base::{Error, Number, Result, quoted};

/// A size of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceChoice {
    /// Node index.
    pub(crate) node: usize,
    /// Whether the workspace is a staging buffer.
    pub(crate) is_staging: bool,
    /// Position among the workspaces.
    pub(crate) slot: usize,
    /// Index among the workspace's sizes.
    pub(crate) choice: usize,
}

/// The place of a number in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphNumber {
    /// A dimension of a value.
    Dim { value: usize, axis: usize },
    /// First byte of a node's view.
    Offset { node: usize, view: usize },
    /// Number of pieces in a node's flow.
    Pieces { node: usize, flow: usize },
    /// Distance of a node's overlap.
    Distance { node: usize, overlap: usize },
    /// Run cost of a node.
    Work { node: usize },
    /// Bytes of a workspace.
    Bytes(WorkspaceChoice),
    /// Cost of a workspace.
    Cost(WorkspaceChoice),
}

impl Graph {
    /// Calls `edit` with every number, in an order that depends on the other properties of the
    /// graph alone.
    ///
    /// An edited graph is valid only after [`settle`](Self::settle).
    pub(crate) fn edit_numbers(&mut self, edit: &mut dyn FnMut(GraphNumber, Number<'_>)) {
        for (value, row) in self.values.iter_mut().enumerate() {
            for (axis, dim) in row.shape.iter_mut().enumerate() {
                edit(GraphNumber::Dim { value, axis }, Number::Whole(dim));
            }
        }
        for (node, row) in self.nodes.iter_mut().enumerate() {
            let effects = &mut row.effects;
            for (view, row) in effects.views.iter_mut().enumerate() {
                edit(GraphNumber::Offset { node, view }, Number::Whole(&mut row.offset));
            }
            for (flow, row) in effects.flows.iter_mut().enumerate() {
                edit(GraphNumber::Pieces { node, flow }, Number::Whole(&mut row.pieces));
            }
            for (overlap, row) in effects.overlaps.iter_mut().enumerate() {
                edit(GraphNumber::Distance { node, overlap }, Number::Whole(&mut row.distance));
            }
            edit(GraphNumber::Work { node }, Number::Whole(&mut row.cost));
            edit_workspaces(node, false, &mut effects.workspaces, edit);
            edit_workspaces(node, true, effects.staging.as_deref_mut().unwrap_or_default(), edit);
        }
    }

    /// Derives value sizes from shapes, and refuses numbers that contradict each other.
    ///
    /// Operands, names and the order do not depend on numbers, and are not examined again.
    ///
    /// # Errors
    ///
    /// [`Error::SizeOverflow`], and the errors about effects that
    /// [`GraphBuilder::build`](crate::GraphBuilder::build) returns.
    pub(crate) fn settle(&mut self) -> Result<()> {
        for value in &mut self.values {
            let Some(bytes) = value.dtype.array_bytes(&value.shape) else {
                return Err(Error::SizeOverflow { what: format!("value {}", quoted(&value.name)) });
            };
            value.bytes = bytes;
        }
        for node in &self.nodes {
            builder::check_effects(node, &self.values)?;
            builder::check_workspaces(node)?;
        }
        Ok(())
    }
}

/// Calls `edit` with every number in some workspaces of a node.
fn edit_workspaces(
    node: usize,
    is_staging: bool,
    workspaces: &mut [Workspace],
    edit: &mut dyn FnMut(GraphNumber, Number<'_>),
) {
    for (slot, workspace) in workspaces.iter_mut().enumerate() {
        for (choice, row) in workspace.choices.iter_mut().enumerate() {
            let place = WorkspaceChoice { node, is_staging, slot, choice };
            edit(GraphNumber::Bytes(place), Number::Whole(&mut row.bytes));
            edit(GraphNumber::Cost(place), Number::Real(&mut row.cost));
        }
    }
}
