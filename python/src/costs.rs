//! The step costs that a Python backend states.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use arenaplan::base::Alignment;
use arenaplan::choose::{RowCost, RowKernel, RowMoveCost, StepCost, StepForm, Way};
use arenaplan::graph::{Choice, Workspace};
use arenaplan::{Budget, NodeId, ValueId};
use pyo3::prelude::*;

use crate::call::{self, Moment};
use crate::error::OrRaise as _;
use crate::results::Strips;

/// Bytes and nanoseconds.
type WayRow = (u64, u64);
/// The sizes of each scratch buffer with costs, and all scratch memory together.
type StepRow = (Vec<Vec<(u64, f64)>>, Vec<WayRow>);
/// Nodes, the operand whose rows the first node takes over, and the costs by rows.
type KernelRow = (Vec<u32>, Option<u32>, Vec<(u64, Vec<WayRow>)>);

/// A backend's costs. A question that raises ends the search: the later answers are empty, and
/// [`failure`](Self::failure) is raised in place of a result.
#[derive(Debug)]
pub(crate) struct Costs {
    object: Py<PyAny>,
    cancel: &'static AtomicBool,
    failure: Mutex<Option<PyErr>>,
}

impl Costs {
    pub(crate) const fn new(object: Py<PyAny>, cancel: &'static AtomicBool) -> Self {
        Self { object, cancel, failure: Mutex::new(None) }
    }

    /// Returns the exception that a question raised.
    pub(crate) fn failure(self) -> Option<PyErr> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T: Default>(&self, question: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> T {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_some() {
            return T::default();
        }
        match Python::attach(|py| question(self.object.bind(py))) {
            Ok(answer) => answer,
            Err(error) => {
                *failure = Some(error);
                self.cancel.store(true, Ordering::Relaxed);
                T::default()
            }
        }
    }
}

impl arenaplan::choose::Costs for Costs {
    fn step(&self, nodes: &[NodeId], form: StepForm<'_>) -> Option<StepCost> {
        let nodes = indices(nodes);
        let last = nodes.last().copied().unwrap_or(u32::MAX);
        let row: Option<StepRow> = self.ask(|costs| {
            let cost = match form {
                StepForm::Strips(strips) => {
                    costs.call_method1("step", (nodes, Strips::of(last, strips)))
                }
                StepForm::Staged => costs.call_method1("step", (nodes, "staged")),
                StepForm::Continued => costs.call_method1("step", (nodes, "continued")),
                _ => costs.call_method1("step", (nodes, "whole")),
            };
            cost?.extract()
        });
        let (slots, ways) = row?;
        let slot = |sizes: Vec<(u64, f64)>| Workspace {
            choices: sizes.into_iter().map(|(bytes, cost)| Choice { bytes, cost }).collect(),
            alignment: Alignment::BYTE,
        };
        let workspaces = slots.into_iter().map(slot).collect();
        Some(StepCost { workspaces, ways: ways_of(ways) })
    }

    fn groupings(&self) -> Vec<Vec<Vec<NodeId>>> {
        let found: Vec<Vec<Vec<u32>>> =
            self.ask(|costs| costs.call_method0("groupings")?.extract());
        let step = |nodes: Vec<u32>| nodes.into_iter().map(NodeId::from).collect();
        found.into_iter().map(|steps| steps.into_iter().map(step).collect()).collect()
    }

    fn row_moves(&self) -> Option<RowMoveCost> {
        let row: Option<WayRow> = self.ask(|costs| costs.getattr("row_moves")?.extract());
        row.map(|(call, thousand_bytes)| RowMoveCost { call, thousand_bytes })
    }

    fn row_kernels(&self, nodes: &[NodeId]) -> Vec<RowKernel> {
        let nodes = indices(nodes);
        let rows: Vec<KernelRow> =
            self.ask(|costs| costs.call_method1("row_kernels", (nodes,))?.extract());
        let kernel = |(nodes, takes, costs): KernelRow| RowKernel {
            nodes: nodes.into_iter().map(NodeId::from).collect(),
            takes: takes.map(ValueId::from),
            costs: costs
                .into_iter()
                .map(|(rows, ways)| RowCost { rows, ways: ways_of(ways) })
                .collect(),
        };
        rows.into_iter().map(kernel).collect()
    }
}

fn indices(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|&id| id.into()).collect()
}

fn ways_of(rows: Vec<WayRow>) -> Vec<Way> {
    rows.into_iter().map(|(bytes, time)| Way { bytes, time }).collect()
}

/// Runs `work` with the costs that a backend states, if there are any, and raises the exception of a
/// question to the backend.
pub(crate) fn costed<T: Send + 'static>(
    py: Python<'_>,
    items: usize,
    costs: Option<Py<PyAny>>,
    on_progress: Option<&Bound<'_, PyAny>>,
    time_limit: Option<f64>,
    work: impl FnOnce(Budget<'_>, Option<&dyn arenaplan::choose::Costs>) -> arenaplan::Result<T>
    + Send
    + 'static,
) -> PyResult<T> {
    let mut hear = |moment: Moment| call::told(py, on_progress, moment);
    let ended = call::watch(py, items, &mut hear, move |cancel, tell| {
        let budget = || call::budget(cancel, tell, time_limit);
        let Some(object) = costs else { return (work(budget(), None), None) };
        let costs = Costs::new(object, cancel);
        // The interpreter knows the thread from here on: it would otherwise set the thread up, and
        // map memory, for each question.
        let made = Python::attach(|py| py.detach(|| work(budget(), Some(&costs))));
        (made, costs.failure())
    })?;
    let (made, failure) = ended.finished()?;
    match failure {
        Some(error) => Err(error),
        None => made.or_raise(py),
    }
}
