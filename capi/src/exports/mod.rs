//! The functions that C programs call; the only `unsafe` of the crate.
//!
//! Handles arrive as `Option<&T>`, `Option<&mut T>` and `Option<Box<T>>`, which have the layout of a
//! C pointer that may be null. The head of `arenaplan.h` (in `cbindgen.toml`) states the contract of C
//! programs, to which the proofs below refer:
//!
//! 1. A pointer is null, or points to an object of its type for the whole call.
//! 2. No other thread writes to the object meanwhile, or reads an object that the call writes.
//! 3. A handle is one that a function of this interface made, and that was not freed.
//! 4. A string ends with a zero; an array has as many elements as the argument beside it says.
//! 5. A struct that begins with `size` has as many bytes as that field says.

#![allow(unsafe_code, reason = "C programs call by name, and pass addresses")]
#![allow(clippy::missing_safety_doc, reason = "the contract of all exported functions is above")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use crate::arena::Arena;
use crate::error::{Code, Failure, Result, guarded, last, required};
use crate::model::Model;
use crate::plan::{self, Plan};
use crate::problem::{Packing, Problem};
use crate::types::{
    Buffer, Dim, Gap, Memory, ModelInfo, ModelShape, Options, PlanInfo, PlanSpace, PlanStep,
    PlanValue, Space, SpacePacking, Status, StepMemory, position,
};

/// Version of the header. It is compatible with libraries of the same major version (of the same
/// minor version while the major one is 0) that are not older.
pub const VERSION_MAJOR: u32 = 0;
/// Second number of the version.
pub const VERSION_MINOR: u32 = 1;
/// Third number of the version.
pub const VERSION_PATCH: u32 = 0;

/// Puts the handle that `make` returns into a slot; a null pointer if there is none.
fn make<T>(
    slot: Option<&mut MaybeUninit<Option<Box<T>>>>,
    make: impl FnOnce() -> Result<T>,
) -> Code {
    guarded(|| {
        let slot = required(slot, "the pointer for the result")?.write(None);
        *slot = Some(Box::new(make()?));
        Ok(())
    })
}

/// A struct that C programs may have compiled with fewer or more fields.
///
/// # Safety
///
/// The type is `repr(C)`, and its first field is a `u32`, its size.
unsafe trait Versioned: Copy {
    /// Bytes in the first version that had the struct.
    const FIRST: usize = size_of::<Self>();
}

/// A struct that C programs fill.
///
/// # Safety
///
/// Any bytes are a value of the type: all fields are integers and raw pointers.
unsafe trait Input: Versioned + Default {}

macro_rules! versioned {
    ($($name:ty),*) => {$(
        const _: () = assert!(std::mem::offset_of!($name, size) == 0);

        // SAFETY: `repr(C)`, as all structs of `types.rs`; `size` is first, as just tested, and a
        // `u32`, as the next line would not compile otherwise.
        unsafe impl Versioned for $name {}
        const _: fn(&$name) -> &u32 = |it| &it.size;
    )*};
}

versioned!(
    Options,
    Space,
    Buffer,
    SpacePacking,
    PlanInfo,
    PlanSpace,
    PlanValue,
    PlanStep,
    StepMemory,
    ModelInfo,
    ModelShape
);

// SAFETY: all fields are integers.
unsafe impl Input for Options {}
// SAFETY: all fields are integers.
unsafe impl Input for Space {}
// SAFETY: all fields are integers and a raw pointer.
unsafe impl Input for Buffer {}

/// Bytes that no struct of any version exceeds: a larger `size` was never set.
const MAX_STRUCT: usize = 4096;

/// Returns the size of a struct of the caller.
///
/// # Safety
///
/// `pointer` follows rules 1 and 2.
unsafe fn size_at<T: Versioned>(pointer: *const T, name: &str) -> Result<usize> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: the pointer is not null, so it points to a `T` (rule 1), whose first field is a
    // `u32` (`Versioned`). No alignment is needed.
    let size = unsafe { pointer.cast::<u32>().read_unaligned() };
    let size = position(size);
    if (T::FIRST..=MAX_STRUCT).contains(&size) {
        return Ok(size);
    }
    Err(Failure::argument(format!("the field size of {name} is {size}: set it to sizeof")))
}

/// Returns a struct of the caller; fields that the caller did not compile are zero.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 5.
unsafe fn input<T: Input>(pointer: *const T, name: &str) -> Result<T> {
    // SAFETY: the same contract.
    let size = unsafe { size_at(pointer, name) }?;
    let known = size.min(size_of::<T>());
    let mut value = T::default();
    // SAFETY: `known` bytes are there to read, as `size` says (rule 5), and to write, since `value`
    // has at least as many. The two do not overlap, and any bytes are a `T` (`Input`).
    unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), known) };
    let rest = pointer.cast::<u8>().wrapping_add(known);
    // SAFETY: the rest of the `size` bytes (rule 5), which nobody writes (rule 2). Structs have no
    // padding behind their first version, so all bytes are initialized.
    let rest = unsafe { slice::from_raw_parts(rest, size - known) };
    if rest.iter().all(|&byte| byte == 0) {
        return Ok(value);
    }
    let text = format!("{name} has fields that this library does not know: it is too old");
    Err(Failure::new(Code::UnsupportedVersion, text))
}

/// Writes the fields of a struct that the caller compiled, behind `size`; fields that this library
/// does not know become zero.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 5.
unsafe fn output<T: Versioned>(
    pointer: *mut T,
    name: &str,
    value: impl FnOnce() -> Result<T>,
) -> Result<()> {
    // SAFETY: the same contract.
    let size = unsafe { size_at(pointer.cast_const(), name) }?;
    let value = value()?;
    let known = size.min(size_of::<T>());
    let (start, head) = (pointer.cast::<u8>(), size_of::<u32>());
    let from = (&raw const value).cast::<u8>().wrapping_add(head);
    // SAFETY: `known` bytes are there to write, as `size` says (rule 5), and to read, since `value`
    // has at least as many. The two do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, start.wrapping_add(head), known - head) };
    // SAFETY: the rest of the `size` bytes (rule 5).
    unsafe { ptr::write_bytes(start.wrapping_add(known), 0, size - known) };
    Ok(())
}

/// Returns an array of the caller; none if there are no elements.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 4, for `count` elements, and nobody writes them during `'a`.
unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Failure::argument(format!("{count} {name} are more than memory holds")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::argument(format!("{name} begin at an address that is not aligned")));
    }
    // SAFETY: not null and aligned, as tested; `count` elements are there (rule 4), which take at
    // most `isize::MAX` bytes, as tested, and which nobody writes meanwhile (rule 2).
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Returns a string of the caller.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 4, and nobody writes the string during `'a`.
unsafe fn string<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, as tested; it ends with a zero (rule 4), and nobody writes it (rule 2).
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Returns a path of the caller.
///
/// # Safety
///
/// As [`string`].
unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a str> {
    // SAFETY: the same contract.
    let path = unsafe { string(pointer, "path") }?;
    path.to_str().map_err(|_| Failure::argument("path is not UTF-8"))
}

// -- general -----------------------------------------------------------------------------------

/// Returns the version of the library: `major << 16 | minor << 8 | patch`.
///
/// `AP_VERSION_MAJOR` and its neighbors are the version of the header.
#[unsafe(no_mangle)]
pub extern "C" fn ap_version() -> u32 {
    VERSION_MAJOR << 16 | VERSION_MINOR << 8 | VERSION_PATCH
}

/// Returns the reason of the last call that failed on this thread: text for people, in UTF-8, at
/// most 1023 bytes; an empty string if no call failed.
///
/// The string is valid until the next call that fails on this thread. A successful call leaves it
/// as it is.
#[unsafe(no_mangle)]
pub extern "C" fn ap_last_error() -> *const c_char {
    last()
}

// -- packing -----------------------------------------------------------------------------------

/// Returns a problem without buffers, for the caller to free with `ap_problem_free`.
///
/// Space 0 is unlimited until `ap_problem_set_space` describes it.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_new() -> Box<Problem> {
    Box::new(Problem::new())
}

/// Frees a problem; does nothing if it is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_free(problem: Option<Box<Problem>>) {
    drop(problem);
}

/// Describes space `index`: one that was described before, or the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_problem_set_space(
    problem: Option<&mut Problem>,
    index: u32,
    space: *const Space,
) -> Code {
    guarded(|| {
        // SAFETY: the contract of C programs.
        let space = unsafe { input(space, "space") }?;
        required(problem, "problem")?.set_space(index, space)
    })
}

/// Adds a buffer of `bytes` bytes to space 0, needed in the steps from `lower` up to, and without,
/// `upper`, at an offset that is a multiple of `alignment`, a power of two; 0 counts as 1.
///
/// The first buffer has number 0, the next number 1. Steps are at most 4,294,967,295; a call that
/// fails adds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_add(
    problem: Option<&mut Problem>,
    lower: u64,
    upper: u64,
    bytes: u64,
    alignment: u64,
) -> Code {
    let buffer = Buffer { lower, upper, bytes, alignment, ..Buffer::default() };
    guarded(|| required(problem, "problem")?.add(buffer, &[]))
}

/// Adds a buffer that has a space, gaps, or an offset that is fixed or tried first.
///
/// The gaps are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_problem_add_buffer(
    problem: Option<&mut Problem>,
    buffer: *const Buffer,
) -> Code {
    guarded(|| {
        // SAFETY: the contract of C programs.
        let buffer = unsafe { input(buffer, "buffer") }?;
        // SAFETY: the contract of C programs (rule 4), of the array in the struct.
        let gaps = unsafe { array::<Gap>(buffer.gaps, position(buffer.gap_count), "gaps") }?;
        required(problem, "problem")?.add(buffer, gaps)
    })
}

/// Returns the number of buffers; 0 if `problem` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_count(problem: Option<&Problem>) -> usize {
    problem.map_or(0, Problem::len)
}

/// Searches offsets for all buffers, so that buffers of one space that are needed in the same step
/// share no byte, and the highest byte is as low as possible.
///
/// `options` may be null: the search then ends when the packing is proven optimal, or after an
/// effort that grows with the problem. A packing past the capacity is a result, too, with
/// `AP_STATUS_UNKNOWN` or `AP_STATUS_INFEASIBLE`. On failure `*packing` is null. The problem is
/// not changed, and any number of threads may solve it at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_solve(
    problem: Option<&Problem>,
    options: *const Options,
    packing: Option<&mut MaybeUninit<Option<Box<Packing>>>>,
) -> Code {
    make(packing, || {
        let options = if options.is_null() {
            Options::default()
        } else {
            // SAFETY: the contract of C programs.
            unsafe { input(options, "options") }?
        };
        required(problem, "problem")?.solve(options)
    })
}

/// Frees a packing; does nothing if it is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_free(packing: Option<Box<Packing>>) {
    drop(packing);
}

/// Returns what is proven about the packing: the weakest status of all spaces.
/// `AP_STATUS_UNKNOWN` if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_status(packing: Option<&Packing>) -> Status {
    packing.map_or(Status::Unknown, Packing::status)
}

/// Returns the bytes that the memories of all spaces need; 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_peak(packing: Option<&Packing>) -> u64 {
    packing.map_or(0, Packing::peak)
}

/// Returns the bytes that all spaces need under any offsets: proven. 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_lower_bound(packing: Option<&Packing>) -> u64 {
    packing.map_or(0, Packing::lower_bound)
}

/// Returns the offsets of all buffers, in bytes, by number; null if `packing` is null.
///
/// The array has `ap_packing_count` elements and belongs to the packing.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_offsets(packing: Option<&Packing>) -> *const u64 {
    packing.map_or(ptr::null(), |packing| packing.offsets().as_ptr())
}

/// Returns the number of offsets; 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_count(packing: Option<&Packing>) -> usize {
    packing.map_or(0, |packing| packing.offsets().len())
}

/// Describes the packing of one space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_packing_space(
    packing: Option<&Packing>,
    index: u32,
    space: *mut SpacePacking,
) -> Code {
    let value = || required(packing, "packing")?.space(index);
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(space, "space", value) })
}

/// Verifies a packing against its problem, with code that the search does not use.
///
/// Fails with `AP_CODE_CHECK_FAILED`, which would be a defect of this library.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_check(packing: Option<&Packing>) -> Code {
    guarded(|| required(packing, "packing")?.check())
}

// -- plans -------------------------------------------------------------------------------------

/// Reads a plan file, as `arenaplan plan -o` writes it, of at most `max_bytes` bytes; 0 stands for
/// 1 GiB, which is the limit in any case.
///
/// A plan whose bytes are outside of its memory is refused. Whether it is the right plan for a
/// graph is verified by `arenaplan check`: a plan from an untrusted source may let values share
/// bytes that must not. On failure `*plan` is null.
///
/// `path` is in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_load(
    path: *const c_char,
    max_bytes: u64,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || {
        // SAFETY: the contract of C programs.
        let path = unsafe { self::path(path) }?;
        Plan::parse(&plan::read(path, max_bytes)?)
    })
}

/// Reads a plan from the `bytes` bytes of `text`, which is the content of a plan file. Otherwise as
/// `ap_plan_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_parse(
    text: *const c_char,
    bytes: usize,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || {
        // SAFETY: the contract of C programs.
        Plan::parse(unsafe { array(text.cast::<u8>(), bytes, "text") }?)
    })
}

/// Frees a plan; does nothing if it is null. Arenas of the plan stay valid; strings and arrays of
/// the plan do not.
#[unsafe(no_mangle)]
pub extern "C" fn ap_plan_free(plan: Option<Box<Plan>>) {
    drop(plan);
}

/// Describes a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_describe(plan: Option<&Plan>, info: *mut PlanInfo) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(info, "info", || required(plan, "plan")?.info()) })
}

/// Describes the space `index` of a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_space(
    plan: Option<&Plan>,
    index: u32,
    space: *mut PlanSpace,
) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(space, "space", || required(plan, "plan")?.space(index)) })
}

/// Describes the place of a value, by the number that the value has in its graph.
///
/// Fails with `AP_CODE_NOT_FOUND` if the value has no place: constants have none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_value(
    plan: Option<&Plan>,
    value: u32,
    place: *mut PlanValue,
) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(place, "place", || required(plan, "plan")?.value(value)) })
}

/// Finds the number of a value by its name, in UTF-8; in constant time.
///
/// Fails with `AP_CODE_NOT_FOUND` if no value with a place has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_find(
    plan: Option<&Plan>,
    name: *const c_char,
    value: Option<&mut MaybeUninit<u32>>,
) -> Code {
    guarded(|| {
        let value = required(value, "value")?.write(crate::types::NONE);
        // SAFETY: the contract of C programs.
        let name = unsafe { string(name, "name") }?;
        *value = required(plan, "plan")?.find(name)?;
        Ok(())
    })
}

/// Describes the step `index` of a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_step(
    plan: Option<&Plan>,
    index: u32,
    step: *mut PlanStep,
) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(step, "step", || required(plan, "plan")?.step(index)) })
}

/// Verifies a plan against its graph, the `bytes` bytes of `graph`: the content of a graph file, as
/// `arenaplan export --to graph` writes it.
///
/// Fails with `AP_CODE_CHECK_FAILED` if values that are needed at the same time share bytes, or the
/// plan is that of another graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_check(
    plan: Option<&Plan>,
    graph: *const c_char,
    bytes: usize,
) -> Code {
    guarded(|| {
        // SAFETY: the contract of C programs.
        let graph = unsafe { array(graph.cast::<u8>(), bytes, "graph") }?;
        required(plan, "plan")?.check(graph)
    })
}

// -- models ------------------------------------------------------------------------------------

/// Reads a model file, as `arenaplan plan --bind -o` writes it, of at most `max_bytes` bytes, and
/// checks each of its plans against its graph; 0 stands for 1 GiB, which is the limit in any case.
///
/// On failure `*model` is null. `path` is in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_load(
    path: *const c_char,
    max_bytes: u64,
    model: Option<&mut MaybeUninit<Option<Box<Model>>>>,
) -> Code {
    make(model, || {
        // SAFETY: the contract of C programs.
        let path = unsafe { self::path(path) }?;
        Model::parse(&plan::read(path, max_bytes)?)
    })
}

/// Reads a model from the `bytes` bytes of `text`. Otherwise as `ap_model_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_parse(
    text: *const c_char,
    bytes: usize,
    model: Option<&mut MaybeUninit<Option<Box<Model>>>>,
) -> Code {
    make(model, || {
        // SAFETY: the contract of C programs.
        Model::parse(unsafe { array(text.cast::<u8>(), bytes, "text") }?)
    })
}

/// Frees a model; does nothing if it is null. Plans of the model stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn ap_model_free(model: Option<Box<Model>>) {
    drop(model);
}

/// Describes a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_describe(model: Option<&Model>, info: *mut ModelInfo) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(info, "info", || required(model, "model")?.info()) })
}

/// Describes the shape `index` of a model: its sizes, and the bytes that it needs. Takes no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_shape(
    model: Option<&Model>,
    index: u32,
    shape: *mut ModelShape,
) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(shape, "shape", || required(model, "model")?.shape(index)) })
}

/// Finds the shape for `count` dimensions and their sizes; `flags` is 0 or `AP_FIND_PADDED`.
///
/// A dimension that has one size in all shapes may be left out. Fails with `AP_CODE_NOT_FOUND` if
/// no shape serves; the text names the nearest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_find(
    model: Option<&Model>,
    dims: *const Dim,
    count: usize,
    flags: u32,
    shape: Option<&mut MaybeUninit<u32>>,
) -> Code {
    guarded(|| {
        let shape = required(shape, "shape")?.write(crate::types::NONE);
        // SAFETY: the contract of C programs.
        let dims = unsafe { array(dims, count, "dims") }?;
        let sizes = dims.iter().map(|dim| {
            // SAFETY: the contract of C programs, of the string in the struct.
            let name = unsafe { string(dim.name, "name") }?;
            let name = name.to_str().map_err(|_| Failure::argument("name is not UTF-8"))?;
            Ok((name, dim.size))
        });
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        *shape = required(model, "model")?.find(&sizes, flags)?;
        Ok(())
    })
}

/// Returns the plan of the shape `index`, whose steps have their operators. On failure `*plan` is
/// null. A program makes each plan once and keeps it: the call copies the plan.
#[unsafe(no_mangle)]
pub extern "C" fn ap_model_plan(
    model: Option<&Model>,
    index: u32,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || required(model, "model")?.plan(index))
}

// -- arenas ------------------------------------------------------------------------------------

/// Uses `bytes` bytes at `memory` as the memory of a plan with one space.
///
/// Fails with `AP_CODE_MEMORY_TOO_SMALL` or `AP_CODE_MEMORY_MISALIGNED` if the memory is not as
/// `ap_plan_space` describes it. The memory stays the caller's: it must outlive all use of the
/// addresses, and its content is neither read nor written here. On failure `*arena` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_bind(
    plan: Option<&Plan>,
    memory: *mut c_void,
    bytes: usize,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || Arena::bind(required(plan, "plan")?, &[Memory { pointer: memory, bytes }]))
}

/// Uses `count` memories as those of all spaces of a plan, in order. Otherwise as `ap_arena_bind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_arena_bind_spaces(
    plan: Option<&Plan>,
    memories: *const Memory,
    count: usize,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || {
        // SAFETY: the contract of C programs.
        let memories = unsafe { array(memories, count, "memories") }?;
        Arena::bind(required(plan, "plan")?, memories)
    })
}

/// Allocates zeroed memory for all spaces of a plan, which `ap_arena_free` frees.
///
/// Fails with `AP_CODE_OUT_OF_MEMORY`. On failure `*arena` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_allocate(
    plan: Option<&Plan>,
    arena: Option<&mut MaybeUninit<Option<Box<Arena>>>>,
) -> Code {
    make(arena, || Arena::allocate(required(plan, "plan")?))
}

/// Frees an arena, and its memory if `ap_arena_allocate` made it; does nothing if it is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_arena_free(arena: Option<Box<Arena>>) {
    drop(arena);
}

/// Returns the bytes of a value, by the number that the value has in its graph.
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

/// Returns the memory of the step `index`: inputs, outputs and workspaces.
///
/// All addresses were settled when the arena was made; this call allocates nothing. Operands share
/// bytes only as the shares of `ap_plan_step` say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_arena_step(
    arena: Option<&Arena>,
    index: u32,
    step: *mut StepMemory,
) -> Code {
    // SAFETY: the contract of C programs.
    guarded(|| unsafe { output(step, "step", || required(arena, "arena")?.step(index)) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A struct whose last field came in a later version.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Grown {
        size: u32,
        old: u32,
        new: u64,
    }

    // SAFETY: `repr(C)`, `size: u32` first.
    unsafe impl Versioned for Grown {
        const FIRST: usize = 8;
    }
    // SAFETY: its fields are integers.
    unsafe impl Input for Grown {}

    #[test]
    fn a_program_of_an_older_version_has_its_fields_alone_read_and_written() {
        let mut theirs = [8_u32, 7, 0xAAAA, 0xBBBB];
        // SAFETY: `theirs` has the 8 bytes that its size says, and no other pointer exists.
        let read = unsafe { input::<Grown>(theirs.as_ptr().cast(), "grown") }.unwrap();
        assert_eq!(read, Grown { size: 8, old: 7, new: 0 });
        let value = || Ok(Grown { size: 0, old: 9, new: 5 });
        // SAFETY: as above.
        unsafe { output::<Grown>(theirs.as_mut_ptr().cast(), "grown", value) }.unwrap();
        assert_eq!(theirs, [8, 9, 0xAAAA, 0xBBBB]);
    }

    #[test]
    fn a_program_of_a_newer_version_gets_zeros() {
        let mut theirs = [24_u32, 7, 1, 0, 0, 0];
        // SAFETY: `theirs` has the 24 bytes that its size says, and no other pointer exists.
        let read = unsafe { input::<Grown>(theirs.as_ptr().cast(), "grown") }.unwrap();
        assert_eq!(read, Grown { size: 24, old: 7, new: 1 });
        theirs[5] = 1;
        // SAFETY: as above.
        assert!(unsafe { input::<Grown>(theirs.as_ptr().cast(), "grown") }.is_err());
        let value = || Ok(Grown { size: 0, old: 9, new: 5 });
        // SAFETY: as above.
        unsafe { output::<Grown>(theirs.as_mut_ptr().cast(), "grown", value) }.unwrap();
        assert_eq!(theirs, [24, 9, 5, 0, 0, 0]);
    }
}
