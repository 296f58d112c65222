//! The numbers in graphs and plans, each with its place: a JSON Pointer (RFC 6901) into the
//! document of the graph or the plan.

use alloc::string::String;
use core::fmt;

use crate::base::{Number, Result};
use crate::graph::Graph;
use crate::plan::Plan;

/// A graph or a plan that differs between some shapes only in numbers.
pub(super) trait Numbered: Clone {
    /// Calls `edit` with every number, in an order that depends on the other properties alone.
    fn edit(&mut self, edit: &mut dyn FnMut(fmt::Arguments<'_>, Number<'_>));

    /// Completes an edit, and refuses numbers that contradict each other.
    fn settle(&mut self) -> Result<()>;

    /// Returns a digest of everything but numbers.
    fn outline(&self) -> String;
}

impl Numbered for Graph {
    fn edit(&mut self, edit: &mut dyn FnMut(fmt::Arguments<'_>, Number<'_>)) {
        self.edit_numbers(edit);
    }

    fn settle(&mut self) -> Result<()> {
        Self::settle(self)
    }

    fn outline(&self) -> String {
        let mut graph = self.clone();
        graph.edit(&mut |_, mut number| {
            number.set_bits(0);
        });
        crate::format::checksum(&crate::format::GraphDocument::unsealed(&graph))
    }
}

impl Numbered for Plan {
    fn edit(&mut self, edit: &mut dyn FnMut(fmt::Arguments<'_>, Number<'_>)) {
        if let Some(bytes) = &mut self.naive_bytes {
            edit(format_args!("/naive_bytes"), Number::Whole(bytes));
        }
        if let Some(search) = &mut self.search {
            edit(format_args!("/search/floor"), Number::Whole(&mut search.floor));
            if let Some(it) = &mut search.estimate {
                let fastest = Number::Whole(&mut it.fastest_nanoseconds);
                edit(
                    format_args!("/search/estimate/nanoseconds"),
                    Number::Whole(&mut it.nanoseconds),
                );
                edit(format_args!("/search/estimate/fastest_nanoseconds"), fastest);
            }
        }
        if let Some(moved) = &mut self.move_cost {
            edit(format_args!("/move_cost/cost"), Number::Whole(&mut moved.cost));
            edit(format_args!("/move_cost/lower_bound"), Number::Whole(&mut moved.lower_bound));
        }
        for (at, row) in self.spaces.iter_mut().enumerate() {
            edit(format_args!("/spaces/{at}/arena_bytes"), Number::Whole(&mut row.arena_bytes));
            edit(format_args!("/spaces/{at}/lower_bound"), Number::Whole(&mut row.lower_bound));
        }
        for (at, row) in self.placements.iter_mut().enumerate() {
            let [start, end] = &mut row.live;
            edit(format_args!("/values/{at}/offset"), Number::Whole(&mut row.offset));
            edit(format_args!("/values/{at}/bytes"), Number::Whole(&mut row.bytes));
            edit(format_args!("/values/{at}/live/0"), Number::Small(start));
            edit(format_args!("/values/{at}/live/1"), Number::Small(end));
        }
        for (at, row) in self.workspaces.iter_mut().enumerate() {
            edit(format_args!("/workspaces/{at}/choice"), Number::Small(&mut row.choice));
            edit(format_args!("/workspaces/{at}/offset"), Number::Whole(&mut row.offset));
            edit(format_args!("/workspaces/{at}/bytes"), Number::Whole(&mut row.bytes));
        }
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outline(&self) -> String {
        let mut plan = self.clone();
        plan.digest.clear();
        plan.edit(&mut |_, mut number| {
            number.set_bits(0);
        });
        crate::format::checksum(&crate::format::PlanDocument::unsealed(&plan))
    }
}
