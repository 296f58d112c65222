//! The numbers in plans, and the names of all numbers: JSON Pointers into documents.

use alloc::string::String;
use core::fmt;

use crate::base::{Number, Result};
use crate::graph::{Graph, GraphNumber, WorkspaceChoice};
use crate::plan::Plan;

/// A number's place in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanNumber {
    NaiveBytes,
    Floor,
    Nanoseconds,
    FastestNanoseconds,
    MoveCost,
    MoveBound,
    ArenaBytes { space: usize },
    LowerBound { space: usize },
    Offset { value: usize },
    Bytes { value: usize },
    Start { value: usize },
    End { value: usize },
    WorkspaceChoice { workspace: usize },
    WorkspaceOffset { workspace: usize },
    WorkspaceBytes { workspace: usize },
}

/// A number's place, shown as a JSON Pointer (RFC 6901) into the owner's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Graph(GraphNumber),
    Plan(PlanNumber),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Graph(GraphNumber::Dim { value, axis }) => {
                write!(f, "/values/{value}/shape/{axis}")
            }
            Self::Graph(GraphNumber::Offset { node, view }) => {
                write!(f, "/nodes/{node}/views/{view}/offset")
            }
            Self::Graph(GraphNumber::Pieces { node, flow }) => {
                write!(f, "/nodes/{node}/flows/{flow}/pieces")
            }
            Self::Graph(GraphNumber::Distance { node, overlap }) => {
                write!(f, "/nodes/{node}/overlaps/{overlap}/distance")
            }
            Self::Graph(GraphNumber::Work { node }) => write!(f, "/nodes/{node}/cost"),
            Self::Graph(GraphNumber::Bytes(choice)) => write_choice(f, choice, "bytes"),
            Self::Graph(GraphNumber::Cost(choice)) => write_choice(f, choice, "cost"),
            Self::Plan(number) => write_plan(f, number),
        }
    }
}

/// Writes the pointer to a workspace number.
fn write_choice(f: &mut fmt::Formatter<'_>, choice: WorkspaceChoice, field: &str) -> fmt::Result {
    let WorkspaceChoice { node, is_staging, slot, choice } = choice;
    let list = if is_staging { "staging" } else { "workspaces" };
    write!(f, "/nodes/{node}/{list}/{slot}/choices/{choice}/{field}")
}

/// Writes the pointer to a plan number.
fn write_plan(f: &mut fmt::Formatter<'_>, number: PlanNumber) -> fmt::Result {
    match number {
        PlanNumber::NaiveBytes => f.write_str("/naive_bytes"),
        PlanNumber::Floor => f.write_str("/search/floor"),
        PlanNumber::Nanoseconds => f.write_str("/search/estimate/nanoseconds"),
        PlanNumber::FastestNanoseconds => f.write_str("/search/estimate/fastest_nanoseconds"),
        PlanNumber::MoveCost => f.write_str("/move_cost/cost"),
        PlanNumber::MoveBound => f.write_str("/move_cost/lower_bound"),
        PlanNumber::ArenaBytes { space } => write!(f, "/spaces/{space}/arena_bytes"),
        PlanNumber::LowerBound { space } => write!(f, "/spaces/{space}/lower_bound"),
        PlanNumber::Offset { value } => write!(f, "/values/{value}/offset"),
        PlanNumber::Bytes { value } => write!(f, "/values/{value}/bytes"),
        PlanNumber::Start { value } => write!(f, "/values/{value}/live/0"),
        PlanNumber::End { value } => write!(f, "/values/{value}/live/1"),
        PlanNumber::WorkspaceChoice { workspace } => write!(f, "/workspaces/{workspace}/choice"),
        PlanNumber::WorkspaceOffset { workspace } => write!(f, "/workspaces/{workspace}/offset"),
        PlanNumber::WorkspaceBytes { workspace } => write!(f, "/workspaces/{workspace}/bytes"),
    }
}

/// A graph or a plan that differs between some shapes only in numbers.
pub(super) trait Numbered: Clone {
    /// Calls `edit` with every number, in an order that depends on the other properties alone.
    fn edit(&mut self, edit: &mut dyn FnMut(Place, Number<'_>));

    /// Completes an edit, and refuses numbers that contradict each other.
    fn settle(&mut self) -> Result<()>;

    /// Returns a digest of everything but numbers.
    fn outline(&self) -> String;
}

impl Numbered for Graph {
    fn edit(&mut self, edit: &mut dyn FnMut(Place, Number<'_>)) {
        self.edit_numbers(&mut |place, number| edit(Place::Graph(place), number));
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
    fn edit(&mut self, edit: &mut dyn FnMut(Place, Number<'_>)) {
        let mut whole = |place, number| edit(Place::Plan(place), Number::Whole(number));
        if let Some(bytes) = &mut self.naive_bytes {
            whole(PlanNumber::NaiveBytes, bytes);
        }
        if let Some(search) = &mut self.search {
            whole(PlanNumber::Floor, &mut search.floor);
            if let Some(estimate) = &mut search.estimate {
                whole(PlanNumber::Nanoseconds, &mut estimate.nanoseconds);
                whole(PlanNumber::FastestNanoseconds, &mut estimate.fastest_nanoseconds);
            }
        }
        if let Some(moved) = &mut self.move_cost {
            whole(PlanNumber::MoveCost, &mut moved.cost);
            whole(PlanNumber::MoveBound, &mut moved.lower_bound);
        }
        for (space, row) in self.spaces.iter_mut().enumerate() {
            whole(PlanNumber::ArenaBytes { space }, &mut row.arena_bytes);
            whole(PlanNumber::LowerBound { space }, &mut row.lower_bound);
        }
        for (value, row) in self.placements.iter_mut().enumerate() {
            let [start, end] = &mut row.live;
            edit(Place::Plan(PlanNumber::Offset { value }), Number::Whole(&mut row.offset));
            edit(Place::Plan(PlanNumber::Bytes { value }), Number::Whole(&mut row.bytes));
            edit(Place::Plan(PlanNumber::Start { value }), Number::Small(start));
            edit(Place::Plan(PlanNumber::End { value }), Number::Small(end));
        }
        for (workspace, row) in self.workspaces.iter_mut().enumerate() {
            let choice = PlanNumber::WorkspaceChoice { workspace };
            let offset = PlanNumber::WorkspaceOffset { workspace };
            let bytes = PlanNumber::WorkspaceBytes { workspace };
            edit(Place::Plan(choice), Number::Small(&mut row.choice));
            edit(Place::Plan(offset), Number::Whole(&mut row.offset));
            edit(Place::Plan(bytes), Number::Whole(&mut row.bytes));
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
