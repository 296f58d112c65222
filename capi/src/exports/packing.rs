//! Packing problems.

use std::mem::MaybeUninit;
use std::ptr;

use super::raw::{Input as _, array, input, make, optional, output};
use super::searches::watch;
use crate::error::{Code, guarded, required};
use crate::problem::{Packing, PairRule, Problem, Subset};
use crate::types::{Buffer, Gap, Options, Space, SpacePacking, Status, position};

/// Returns a problem without buffers, for the caller to free with `ap_problem_free`.
///
/// Space 0 is unlimited until `ap_problem_set_space` describes the space.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_new() -> Box<Problem> {
    Box::new(Problem::new())
}

/// Frees a problem; does nothing if `problem` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_free(problem: Option<Box<Problem>>) {
    drop(problem);
}

/// Describes space `index`: an already described space, or the next space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_problem_set_space(
    problem: Option<&mut Problem>,
    index: u32,
    space: *const Space,
) -> Code {
    guarded(|| {
        // SAFETY: the C contract.
        let space = unsafe { input(space, "space") }?;
        required(problem, "problem")?.set_space(index, space)
    })
}

/// Adds a buffer with `bytes` bytes to space 0, needed in the steps from `lower` up to, and
/// without, `upper`, at an offset that is a multiple of `alignment`; 0 counts as 1.
///
/// The first buffer has number 0, the next number 1. Steps may be 64-bit time stamps; a call that
/// fails adds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_add(
    problem: Option<&mut Problem>,
    lower: u64,
    upper: u64,
    bytes: u64,
    alignment: u64,
) -> Code {
    let buffer = Buffer { lower, upper, bytes, alignment, ..Buffer::zeroed() };
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
        // SAFETY: the C contract.
        let buffer = unsafe { input(buffer, "buffer") }?;
        // SAFETY: the C contract (rule 4), for the array in the struct.
        let gaps = unsafe { array::<Gap>(buffer.gaps, position(buffer.gap_count), "gaps") }?;
        required(problem, "problem")?.add(buffer, gaps)
    })
}

/// Keeps a buffer inside the space's bytes from `lower` up to, and without, `upper`.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_set_range(
    problem: Option<&mut Problem>,
    buffer: u64,
    lower: u64,
    upper: u64,
) -> Code {
    guarded(|| required(problem, "problem")?.set_range(buffer, lower, upper))
}

/// Puts a buffer into a group: all buffers of a group have the same offset.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_set_group(
    problem: Option<&mut Problem>,
    buffer: u64,
    group: u32,
) -> Code {
    guarded(|| required(problem, "problem")?.set_group(buffer, group))
}

/// Permits two buffers to share bytes although both are needed: a result over the operand that the
/// result replaces.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_may_overlap(
    problem: Option<&mut Problem>,
    buffer: u64,
    other: u64,
) -> Code {
    guarded(|| required(problem, "problem")?.pair(buffer, other, PairRule::MayOverlap))
}

/// Keeps two buffers in one space apart although they are never needed in the same step.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_keep_apart(
    problem: Option<&mut Problem>,
    buffer: u64,
    other: u64,
) -> Code {
    guarded(|| required(problem, "problem")?.pair(buffer, other, PairRule::Apart))
}

/// Puts two buffers into different spaces, such as banks that are read in the same cycle.
///
/// `ap_problem_set_spaces` says between which spaces there is a choice. `ap_solve` fails if no spaces keep all
/// pairs separate, and the message has the numbers of buffers.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_keep_separate(
    problem: Option<&mut Problem>,
    buffer: u64,
    other: u64,
) -> Code {
    guarded(|| required(problem, "problem")?.pair(buffer, other, PairRule::Separate))
}

/// Permits a buffer to be in any of `count` spaces, instead of the space that the buffer was added
/// to: `ap_solve` chooses, and `ap_packing_space_of` returns the choice.
///
/// The array is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_problem_set_spaces(
    problem: Option<&mut Problem>,
    buffer: u64,
    spaces: *const u32,
    count: usize,
) -> Code {
    guarded(|| {
        // SAFETY: the C contract (rule 4).
        let spaces = unsafe { array(spaces, count, "spaces") }?;
        required(problem, "problem")?.set_spaces(buffer, spaces)
    })
}

/// Keeps a space's bytes from `lower` up to, and without, `upper` free of buffers.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_reserve(
    problem: Option<&mut Problem>,
    space: u32,
    lower: u64,
    upper: u64,
) -> Code {
    guarded(|| required(problem, "problem")?.reserve(space, lower, upper))
}

/// Returns the buffer count; 0 if `problem` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_problem_count(problem: Option<&Problem>) -> usize {
    problem.map_or(0, Problem::len)
}

/// Searches offsets for all buffers, such that buffers in one space that are needed in the same
/// step share no byte, and the highest byte is as low as possible.
///
/// `options` may be null: the search then ends when the packing is proven optimal, or after an
/// effort that grows with the problem. A packing past the capacity is a result, too, with
/// `AP_STATUS_UNKNOWN` or `AP_STATUS_INFEASIBLE`. On failure `*packing` is null. The problem does
/// not change, and any number of threads may solve the problem at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_solve(
    problem: Option<&Problem>,
    options: *const Options,
    packing: Option<&mut MaybeUninit<Option<Box<Packing>>>>,
) -> Code {
    make(packing, || {
        // SAFETY: the C contract.
        let options = unsafe { optional(options, "options") }?;
        let problem = required(problem, "problem")?;
        // SAFETY: the C contract (rules 3 and 6), for the pointers in the struct.
        let watch = unsafe { watch(options.progress, options.context, options.cancel) };
        problem.solve(options, &watch)
    })
}

/// Packs again after the problem has changed, such that few buffers leave their old offsets.
///
/// `old` has one offset per buffer, or `AP_NO_OFFSET` for a new buffer. The peak of each space is
/// at most the peak by `ap_solve`, or at most the capacity if the capacity can be met.
/// `AP_OPTIONS_COMPACT` is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_repack(
    problem: Option<&Problem>,
    old: *const u64,
    old_count: usize,
    options: *const Options,
    packing: Option<&mut MaybeUninit<Option<Box<Packing>>>>,
) -> Code {
    make(packing, || {
        // SAFETY: the C contract.
        let options = unsafe { optional(options, "options") }?;
        // SAFETY: the C contract (rule 4).
        let old = unsafe { array(old, old_count, "old") }?;
        // SAFETY: the C contract (rules 3 and 6), for the pointers in the struct.
        let watch = unsafe { watch(options.progress, options.context, options.cancel) };
        required(problem, "problem")?.repack(old, options, &watch)
    })
}

/// Finds buffers that together do not fit a space, each needed for that proof.
///
/// The subset is empty if there is no proof that the space is too small. On failure `*subset` is
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_infeasible_subset(
    problem: Option<&Problem>,
    space: u32,
    options: *const Options,
    subset: Option<&mut MaybeUninit<Option<Box<Subset>>>>,
) -> Code {
    make(subset, || {
        // SAFETY: the C contract.
        let options = unsafe { optional(options, "options") }?;
        // SAFETY: the C contract (rules 3 and 6), for the pointers in the struct.
        let watch = unsafe { watch(options.progress, options.context, options.cancel) };
        required(problem, "problem")?.infeasible_subset(space, options, &watch)
    })
}

/// Frees a subset; does nothing if `subset` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_subset_free(subset: Option<Box<Subset>>) {
    drop(subset);
}

/// Returns how many buffers a subset has; 0 if `subset` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_subset_count(subset: Option<&Subset>) -> usize {
    subset.map_or(0, |subset| subset.buffers().len())
}

/// Returns the numbers of the buffers in a subset, ascending; null if `subset` is null.
///
/// The array has `ap_subset_count` elements and belongs to the subset.
#[unsafe(no_mangle)]
pub extern "C" fn ap_subset_buffers(subset: Option<&Subset>) -> *const u64 {
    subset.map_or(ptr::null(), |subset| subset.buffers().as_ptr())
}

/// Returns the bytes that all spaces need if only those buffers move that must; for a packing that
/// is not from `ap_repack`, the packing's peak. 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_peak_of_staying(packing: Option<&Packing>) -> u64 {
    packing.map_or(0, Packing::peak_of_staying)
}

/// Frees a packing; does nothing if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_free(packing: Option<Box<Packing>>) {
    drop(packing);
}

/// Returns the proven status of the packing: the weakest status of all spaces. `AP_STATUS_UNKNOWN`
/// if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_status(packing: Option<&Packing>) -> Status {
    packing.map_or(Status::Unknown, Packing::status)
}

/// Returns the bytes that the memories of all spaces need; 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_peak(packing: Option<&Packing>) -> u64 {
    packing.map_or(0, Packing::peak)
}

/// Returns the visited search nodes, the unit of the node limit; 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_nodes(packing: Option<&Packing>) -> u64 {
    packing.map_or(0, Packing::nodes)
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

/// Returns the number of a buffer's space; `UINT32_MAX` if `packing` is null or the buffer does not
/// exist.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_space_of(packing: Option<&Packing>, buffer: u64) -> u32 {
    packing.and_then(|packing| packing.space_of(buffer)).unwrap_or(u32::MAX)
}

/// Returns the offset count; 0 if `packing` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_count(packing: Option<&Packing>) -> usize {
    packing.map_or(0, |packing| packing.offsets().len())
}

/// Describes the packing in one space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_packing_space(
    packing: Option<&Packing>,
    index: u32,
    space: *mut SpacePacking,
) -> Code {
    let value = || required(packing, "packing")?.space(index);
    // SAFETY: the C contract.
    guarded(|| unsafe { output(space, "space", value) })
}

/// Verifies a packing against its problem, with code that the search does not use.
///
/// Fails with `AP_CODE_CHECK_FAILED`, which would be a defect of this library.
#[unsafe(no_mangle)]
pub extern "C" fn ap_packing_check(packing: Option<&Packing>) -> Code {
    guarded(|| required(packing, "packing")?.check())
}
