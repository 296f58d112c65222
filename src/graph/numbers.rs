//! A graph's numbers: graphs for several shapes of one model often differ in numbers alone.

use alloc::format;
use core::fmt;

use super::{Graph, builder};
use crate::base::{Error, Number, Result, quoted};

impl Graph {
    /// Calls `edit` with every number, in an order that depends on the other properties of the
    /// graph alone. Each number comes with its place: a JSON Pointer (RFC 6901) into the graph's
    /// document.
    ///
    /// An edited graph is valid only after [`settle`](Self::settle).
    pub(crate) fn edit_numbers(&mut self, edit: &mut dyn FnMut(fmt::Arguments<'_>, Number<'_>)) {
        for (value, row) in self.values.iter_mut().enumerate() {
            for (axis, dim) in row.shape.iter_mut().enumerate() {
                edit(format_args!("/values/{value}/shape/{axis}"), Number::Whole(dim));
            }
        }
        for (node, row) in self.nodes.iter_mut().enumerate() {
            let effects = &mut row.effects;
            for (view, row) in effects.views.iter_mut().enumerate() {
                let number = Number::Whole(&mut row.offset);
                edit(format_args!("/nodes/{node}/views/{view}/offset"), number);
            }
            for (flow, row) in effects.flows.iter_mut().enumerate() {
                let number = Number::Whole(&mut row.pieces);
                edit(format_args!("/nodes/{node}/flows/{flow}/pieces"), number);
            }
            for (overlap, row) in effects.overlaps.iter_mut().enumerate() {
                let number = Number::Whole(&mut row.distance);
                edit(format_args!("/nodes/{node}/overlaps/{overlap}/distance"), number);
            }
            edit(format_args!("/nodes/{node}/cost"), Number::Whole(&mut row.cost));
            let staging = effects.staging.as_deref_mut().unwrap_or_default();
            for (list, all) in [("workspaces", &mut effects.workspaces[..]), ("staging", staging)] {
                for (slot, workspace) in all.iter_mut().enumerate() {
                    for (at, row) in workspace.choices.iter_mut().enumerate() {
                        let (bytes, cost) = (&mut row.bytes, &mut row.cost);
                        edit(
                            format_args!("/nodes/{node}/{list}/{slot}/choices/{at}/bytes"),
                            Number::Whole(bytes),
                        );
                        edit(
                            format_args!("/nodes/{node}/{list}/{slot}/choices/{at}/cost"),
                            Number::Real(cost),
                        );
                    }
                }
            }
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
