//! Memory of a plan: addresses, settled once.
//!
//! An arena of this interface holds addresses and no references: C programs write to the memory at
//! any time, and memory of theirs may be uninitialized. No byte of it is read or written here.

use std::ffi::c_void;
use std::sync::Arc;

use arenaplan::base::{Alignment, SpaceId, ValueId};
use arenaplan::pool::LeasedArena;

use crate::error::{Code, Failure, Result};
use crate::plan::{Plan, bytes_of, count, no_step};
use crate::pool::Tables;
use crate::types::{Access, Memory, NONE, Operand, ShareRule, StepMemory, position};

/// Memory that a plan was bound to, and the address of every operand of every step.
///
/// An arena never changes after it was made; any number of threads may ask it for addresses. Two
/// runs at the same time need two memories.
#[derive(Debug)]
pub struct Arena {
    table: Table,
    memory: MemorySource,
}

/// Where the memory of an arena comes from.
#[derive(Debug)]
enum MemorySource {
    Caller,
    Own { _arena: arenaplan::Arena<'static> },
    Pool { _leased: LeasedArena, tables: Arc<Tables> },
}

/// The address of every operand of every step of a plan.
#[derive(Debug)]
pub(crate) struct Table {
    plan: Plan,
    /// Address and size of each space.
    spaces: Vec<Memory>,
    steps: Vec<StepRow>,
    /// The inputs and outputs of all steps.
    operands: Vec<Operand>,
    workspaces: Vec<Memory>,
}

/// Where the memory of a step begins in the tables of an arena.
#[derive(Clone, Copy, Debug)]
struct StepRow {
    inputs: usize,
    outputs: usize,
    workspaces: usize,
    input_count: u32,
    output_count: u32,
    workspace_count: u32,
}

impl Arena {
    /// Uses the caller's memory, one stretch per space.
    pub(crate) fn bind(plan: &Plan, memories: &[Memory]) -> Result<Self> {
        let spaces = plan.inner.plan.spaces();
        if memories.len() != spaces.len() {
            let (spaces, given) = (spaces.len(), memories.len());
            let text = format!("the plan has {spaces} spaces, and {given} memories were given");
            return Err(Failure::argument(text));
        }
        for (index, (space, memory)) in spaces.iter().zip(memories).enumerate() {
            let needed = bytes_of(space)?;
            if memory.bytes < needed {
                let text =
                    format!("memory {index} has {} bytes, and {needed} are needed", memory.bytes);
                return Err(Failure::new(Code::MemoryTooSmall, text));
            }
            if needed == 0 {
                continue;
            }
            if memory.pointer.is_null() {
                return Err(Failure::argument(format!("memory {index} is null")));
            }
            let address = u64::try_from(memory.pointer.addr()).unwrap_or(u64::MAX);
            if !Alignment::new(space.alignment)?.divides(address) {
                let text = format!(
                    "memory {index} begins at {address:#x}, which is no multiple of {}",
                    space.alignment
                );
                return Err(Failure::new(Code::MemoryMisaligned, text));
            }
            if memory.pointer.addr().checked_add(needed).is_none() {
                return Err(Failure::argument(format!(
                    "memory {index} ends past the last address"
                )));
            }
        }
        let mut order: Vec<_> = memories.iter().filter(|memory| memory.bytes > 0).collect();
        order.sort_unstable_by_key(|memory| memory.pointer.addr());
        let shared = order
            .windows(2)
            .find(|pair| pair[1].pointer.addr() - pair[0].pointer.addr() < pair[0].bytes);
        if shared.is_some() {
            return Err(Failure::argument("two memories share bytes"));
        }
        Ok(Self { table: Table::new(plan, memories.to_vec())?, memory: MemorySource::Caller })
    }

    /// Allocates zeroed memory for all spaces.
    pub(crate) fn allocate(plan: &Plan) -> Result<Self> {
        let mut arena = plan.inner.plan.commit()?;
        let table = Table::new(plan, addresses(plan, &mut arena)?)?;
        Ok(Self { table, memory: MemorySource::Own { _arena: arena } })
    }

    /// Uses leased memory; the table is taken from `tables` if there is one, and given back.
    pub(crate) fn leased(
        plan: &Plan,
        mut leased: LeasedArena,
        tables: &Arc<Tables>,
    ) -> Result<Self> {
        let spaces = addresses(plan, leased.arena_mut())?;
        let table = match tables.find(|table| table.is_of(plan, &spaces)) {
            Some(table) => table,
            None => Table::new(plan, spaces)?,
        };
        Ok(Self {
            table,
            memory: MemorySource::Pool { _leased: leased, tables: Arc::clone(tables) },
        })
    }

    /// Returns the bytes of a value.
    pub(crate) fn value(&self, value: u32) -> Result<Memory> {
        self.table.value(value)
    }

    /// Returns the memory of a step.
    pub(crate) fn step(&self, index: u32) -> Result<StepMemory> {
        self.table.step(index)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let MemorySource::Pool { tables, .. } = &self.memory {
            tables.keep(self.table.taken());
        }
    }
}

/// Returns the address and size of each space of an arena.
fn addresses(plan: &Plan, arena: &mut arenaplan::Arena<'static>) -> Result<Vec<Memory>> {
    let spaces = plan.inner.plan.spaces().iter().enumerate().map(|(index, space)| {
        let bytes = bytes_of(space)?;
        let address = arena.as_mut_ptr(SpaceId::new(index)).filter(|_| bytes > 0);
        let pointer = address.map_or(std::ptr::null_mut(), |it| it.as_ptr().cast::<c_void>());
        Ok(Memory { pointer, bytes })
    });
    spaces.collect()
}

impl Table {
    /// Settles the address of every operand.
    fn new(plan: &Plan, spaces: Vec<Memory>) -> Result<Self> {
        let (plan, steps) = (plan.clone(), Vec::with_capacity(plan.inner.steps.len()));
        let (operands, workspaces) = (Vec::new(), Vec::new());
        let mut table = Self { plan, spaces, steps, operands, workspaces };
        for index in 0..table.plan.inner.steps.len() {
            let row = table.settle(index)?;
            table.steps.push(row);
        }
        Ok(table)
    }

    /// Returns whether the table is that of a plan in this memory.
    fn is_of(&self, plan: &Plan, spaces: &[Memory]) -> bool {
        let same = |(own, other): (&Memory, &Memory)| {
            own.pointer == other.pointer && own.bytes == other.bytes
        };
        Arc::ptr_eq(&self.plan.inner, &plan.inner) && self.spaces.iter().zip(spaces).all(same)
    }

    /// Moves the table out of an arena that ends.
    fn taken(&mut self) -> Self {
        Self {
            plan: self.plan.clone(),
            spaces: std::mem::take(&mut self.spaces),
            steps: std::mem::take(&mut self.steps),
            operands: std::mem::take(&mut self.operands),
            workspaces: std::mem::take(&mut self.workspaces),
        }
    }

    /// Appends the operands of a step to the tables.
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

    /// Returns an operand of a step.
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

    /// Returns the bytes of a value.
    fn value(&self, value: u32) -> Result<Memory> {
        let place = self.plan.place(value)?;
        Ok(memory(&self.spaces, place.space, place.offset, place.bytes))
    }

    /// Returns the memory of a step.
    fn step(&self, index: u32) -> Result<StepMemory> {
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

/// Returns bytes of a space. Plans whose bytes are outside of their spaces were refused.
fn memory(spaces: &[Memory], space: u32, offset: u64, bytes: u64) -> Memory {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let start = spaces[position(space)].pointer.cast::<u8>();
    // Bytes of no size may be in a space without memory.
    let pointer = if start.is_null() { start } else { start.wrapping_add(size(offset)) };
    Memory { pointer: pointer.cast(), bytes: size(bytes) }
}

/// Returns whether the bytes of an operand are bytes of another one.
fn within(inner: &Operand, outer: &Operand) -> bool {
    let start = inner.pointer.addr().checked_sub(outer.pointer.addr());
    let end = start.and_then(|start| start.checked_add(inner.bytes));
    !outer.pointer.is_null() && end.is_some_and(|end| end <= outer.bytes)
}
