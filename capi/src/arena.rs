//! A plan's memory: addresses, settled once.
//!
//! An arena in this interface holds addresses and no references: C programs write to the memory at
//! any time, and the programs' memory may be uninitialized. Nothing here reads or writes the
//! memory.

use std::ffi::c_void;
use std::sync::Arc;

use arenaplan::base::{Alignment, SpaceId};
use arenaplan::pool::LeasedArena;

use crate::error::{Code, Failure, Result};
use crate::plan::{Plan, bytes_of};
use crate::table::{Table, Tables};
use crate::types::{Memory, StepMemory};

/// Memory that a plan was bound to, and the address of every operand in every step.
///
/// An arena never changes; any number of threads may ask for addresses. Two runs at the same time
/// need two memories.
#[derive(Debug)]
pub struct Arena {
    table: Table,
    memory: MemorySource,
}

/// An arena's memory source.
#[derive(Debug)]
enum MemorySource {
    Caller,
    Own { _arena: arenaplan::Arena<'static> },
    Pool { _leased: LeasedArena, tables: Arc<Tables> },
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
                    "memory {index} begins at {address:#x}, which must be a multiple of {}",
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

    /// Uses leased memory; the table is taken from `tables` if present, and given back.
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

    /// Returns a value's bytes.
    pub(crate) fn value(&self, value: u32) -> Result<Memory> {
        self.table.value(value)
    }

    /// Returns a step's memory.
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

/// Returns each space's address and size in an arena.
fn addresses(plan: &Plan, arena: &mut arenaplan::Arena<'static>) -> Result<Vec<Memory>> {
    let spaces = plan.inner.plan.spaces().iter().enumerate().map(|(index, space)| {
        let bytes = bytes_of(space)?;
        let address = arena.as_mut_ptr(SpaceId::new(index)).filter(|_| bytes > 0);
        let pointer = address.map_or(std::ptr::null_mut(), |it| it.as_ptr().cast::<c_void>());
        Ok(Memory { pointer, bytes })
    });
    spaces.collect()
}
