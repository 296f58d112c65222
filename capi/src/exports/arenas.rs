//! Memory for plans.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use super::raw::{array, make, output};
use crate::arena::Arena;
use crate::error::{Code, guarded, required};
use crate::plan::Plan;
use crate::types::{Memory, StepMemory};

/// Uses `bytes` bytes at `memory` as the memory of a plan with one space.
///
/// Fails with `AP_CODE_MEMORY_TOO_SMALL` or `AP_CODE_MEMORY_MISALIGNED` if the memory is not as
/// `ap_plan_space` describes. The memory stays the caller's: the memory must outlive all use of the
/// addresses, and the call neither reads nor writes the content. On failure `*arena` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_bind(
    plan: Option<&Plan>,
    memory: *mut c_void,
    bytes: usize,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || Arena::bind(required(plan, "plan")?, &[Memory { pointer: memory, bytes }]))
}

/// Uses `count` memories for all spaces of a plan, in order. Otherwise as `ap_arena_bind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_arena_bind_spaces(
    plan: Option<&Plan>,
    memories: *const Memory,
    count: usize,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || {
        // SAFETY: the C contract.
        let memories = unsafe { array(memories, count, "memories") }?;
        Arena::bind(required(plan, "plan")?, memories)
    })
}

/// Allocates zeroed memory for all spaces of a plan. `ap_arena_free` frees the memory.
///
/// Fails with `AP_CODE_OUT_OF_MEMORY`. On failure `*arena` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_allocate(
    plan: Option<&Plan>,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || Arena::allocate(required(plan, "plan")?))
}

/// Frees an arena, and memory from `ap_arena_allocate`; gives leased memory back to its pool. Does
/// nothing if the arena is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_free(arena: Option<Box<Arena>>) {
    drop(arena);
}

/// Returns a value's bytes, by the value's number in the graph.
///
/// Fails with `AP_CODE_NOT_FOUND` if the value has no place.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_value(
    arena: Option<&Arena>,
    value: u32,
    memory: Option<&mut MaybeUninit<Memory>>,
) -> Code {
    guarded(|| {
        let memory = required(memory, "memory")?;
        memory.write(required(arena, "arena")?.value(value)?);
        Ok(())
    })
}

/// Returns the memory of step `index`: inputs, outputs and workspaces.
///
/// All addresses were settled when the arena was made; this call allocates nothing. Operands share
/// bytes only as the shares in `ap_plan_step` say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_arena_step(
    arena: Option<&Arena>,
    index: u32,
    step: *mut StepMemory,
) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(step, "step", || required(arena, "arena")?.step(index)) })
}
