//! Addresses of the operands in every step, settled once per plan and memory.

use std::sync::{Arc, Mutex, PoisonError};

use arenaplan::base::ValueId;

use crate::error::Result;
use crate::plan::{Plan, count, no_step};
use crate::types::{Access, Memory, NONE, Operand, ShareRule, StepMemory, position};

/// Most address tables that a pool keeps.
const MOST_TABLES: usize = 64;

/// A plan's operand addresses, by step.
#[derive(Debug)]
pub(crate) struct Table {
    plan: Plan,
    /// Address and size by space.
    spaces: Vec<Memory>,
    steps: Vec<StepRow>,
    /// All steps' inputs and outputs.
    operands: Vec<Operand>,
    workspaces: Vec<Memory>,
}

/// The start of a step's memory in the arena's tables.
#[derive(Clone, Copy, Debug)]
struct StepRow {
    inputs: usize,
    outputs: usize,
    workspaces: usize,
    input_count: u32,
    output_count: u32,
    workspace_count: u32,
}

impl Table {
    /// Settles every operand address.
    pub(crate) fn new(plan: &Plan, spaces: Vec<Memory>) -> Result<Self> {
        let (plan, steps) = (plan.clone(), Vec::with_capacity(plan.inner.steps.len()));
        let (operands, workspaces) = (Vec::new(), Vec::new());
        let mut table = Self { plan, spaces, steps, operands, workspaces };
        for index in 0..table.plan.inner.steps.len() {
            let row = table.settle(index)?;
            table.steps.push(row);
        }
        Ok(table)
    }

    /// Returns whether the table belongs to a plan in this memory.
    pub(crate) fn is_of(&self, plan: &Plan, spaces: &[Memory]) -> bool {
        let same = |(own, other): (&Memory, &Memory)| {
            own.pointer == other.pointer && own.bytes == other.bytes
        };
        Arc::ptr_eq(&self.plan.inner, &plan.inner) && self.spaces.iter().zip(spaces).all(same)
    }

    /// Moves the table out of an arena that ends.
    pub(crate) fn taken(&mut self) -> Self {
        Self {
            plan: self.plan.clone(),
            spaces: std::mem::take(&mut self.spaces),
            steps: std::mem::take(&mut self.steps),
            operands: std::mem::take(&mut self.operands),
            workspaces: std::mem::take(&mut self.workspaces),
        }
    }

    /// Appends a step's operands to the tables.
    fn settle(&mut self, index: usize) -> Result<StepRow> {
        let inner = &*self.plan.inner;
        let (row, step) = (&inner.plan.steps()[index], &inner.steps[index]);
        let inputs = self.operands.len();
        for &value in &row.inputs {
            let operand = value.map_or(ABSENT, |value| self.operand(value, Access::Read));
            self.operands.push(operand);
        }
        let outputs = self.operands.len();
        for &value in &row.outputs {
            let operand = value.map_or(ABSENT, |value| self.operand(value, Access::Write));
            self.operands.push(operand);
        }
        let views = step.shares().iter().filter(|share| share.rule == ShareRule::View);
        for share in views {
            let input = self.operands[inputs + position(share.input)];
            let output = &mut self.operands[outputs + position(share.output)];
            // A larger output is written around the input.
            if within(output, &input) {
                output.access = Access::View;
            }
        }
        let workspaces = self.workspaces.len();
        for work in inner.plan.workspaces_in(row) {
            self.workspaces.push(memory(&self.spaces, work.space, work.offset, work.bytes));
        }
        Ok(StepRow {
            inputs,
            outputs,
            workspaces,
            input_count: count(row.inputs.len())?,
            output_count: count(row.outputs.len())?,
            workspace_count: count(self.workspaces.len() - workspaces)?,
        })
    }

    /// Returns a step's operand.
    fn operand(&self, value: u32, access: Access) -> Operand {
        match self.plan.inner.plan.placement(ValueId::from(value)) {
            None => Operand { value, access: Access::External, ..ABSENT },
            Some(place) => {
                let Memory { pointer, bytes } =
                    memory(&self.spaces, place.space, place.offset, place.bytes);
                Operand { pointer, bytes, value, access }
            }
        }
    }

    /// Returns a value's bytes.
    pub(crate) fn value(&self, value: u32) -> Result<Memory> {
        let place = self.plan.place(value)?;
        Ok(memory(&self.spaces, place.space, place.offset, place.bytes))
    }

    /// Returns a step's memory.
    pub(crate) fn step(&self, index: u32) -> Result<StepMemory> {
        let row = self.steps.get(position(index)).ok_or_else(|| no_step(index))?;
        Ok(StepMemory {
            size: 0,
            input_count: row.input_count,
            output_count: row.output_count,
            workspace_count: row.workspace_count,
            inputs: self.operands[row.inputs..].as_ptr(),
            outputs: self.operands[row.outputs..].as_ptr(),
            workspaces: self.workspaces[row.workspaces..].as_ptr(),
        })
    }
}

/// An operand that is left out.
const ABSENT: Operand =
    Operand { pointer: std::ptr::null_mut(), bytes: 0, value: NONE, access: Access::Absent };

/// Returns bytes in a space. Plans whose bytes are outside their spaces were refused.
fn memory(spaces: &[Memory], space: u32, offset: u64, bytes: u64) -> Memory {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let start = spaces[position(space)].pointer.cast::<u8>();
    // Empty bytes may be in a space without memory.
    let pointer = if start.is_null() { start } else { start.wrapping_add(size(offset)) };
    Memory { pointer: pointer.cast(), bytes: size(bytes) }
}

/// Returns whether an operand's bytes are within another operand's bytes.
fn within(inner: &Operand, outer: &Operand) -> bool {
    let start = inner.pointer.addr().checked_sub(outer.pointer.addr());
    let end = start.and_then(|start| start.checked_add(inner.bytes));
    !outer.pointer.is_null() && end.is_some_and(|end| end <= outer.bytes)
}

/// Address tables from arenas that were given back. A later lease for the same plan at the same
/// addresses uses the table again.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    kept: Mutex<Vec<Table>>,
}

impl Tables {
    /// Keeps a table, in place of the longest kept table if there are too many.
    pub(crate) fn keep(&self, table: Table) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MOST_TABLES {
            kept.remove(0);
        }
        kept.push(table);
    }

    /// Takes out a table that fits.
    pub(crate) fn find(&self, fits: impl Fn(&Table) -> bool) -> Option<Table> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().rposition(fits)?;
        Some(kept.remove(at))
    }
}
