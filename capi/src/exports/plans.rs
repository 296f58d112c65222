//! Plans, made here or read from files.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use super::raw::{array, make, optional, output, path, string};
use super::searches::{costs, watch};
use crate::error::{Code, Failure, guarded, required};
use crate::plan::{self, Plan};
use crate::types::{PlanInfo, PlanOptions, PlanSpace, PlanStep, PlanValue};

/// Plans a graph: `graph` is the content of a graph file, `bytes` bytes, as written by
/// `arenaplan export --to graph`.
///
/// `options` may be null. A plan past the capacity is a result, too: see `ap_plan_info::status`.
/// The plan keeps a copy of the graph: steps have operators, and `ap_hazards_make` needs no graph.
/// On failure `*plan` is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_make(
    graph: *const c_char,
    bytes: usize,
    options: *const PlanOptions,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || {
        // SAFETY: the C contract.
        let options = unsafe { optional(options, "options") }?;
        // SAFETY: the C contract.
        let graph = unsafe { array(graph.cast::<u8>(), bytes, "graph") }?;
        let target = if options.target.is_null() {
            None
        } else {
            // SAFETY: the C contract, for the string in the struct.
            let name = unsafe { string(options.target, "target") }?;
            Some(name.to_str().map_err(|_| Failure::argument("target is not UTF-8"))?)
        };
        // SAFETY: the C contract (rules 3 and 6), for the pointers in the struct.
        let watch = unsafe { watch(options.progress, options.context, options.cancel) };
        // SAFETY: the C contract (rule 6), for the function in the struct.
        let costs = unsafe { costs(options.costs, options.context) };
        Plan::make(graph, options, target, costs.as_ref(), &watch)
    })
}

/// Reads a plan file, as written by `arenaplan plan -o`, with at most `max_bytes` bytes; 0 stands
/// for 1 GiB, which is the limit in any case.
///
/// A plan whose bytes are outside its memory is refused. `arenaplan check` verifies whether the
/// plan is right for a graph: a plan from an untrusted source may let values share bytes that must
/// not. On failure `*plan` is null.
///
/// `path` is in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_load(
    path: *const c_char,
    max_bytes: u64,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || {
        // SAFETY: the C contract.
        let path = unsafe { self::path(path) }?;
        Plan::parse(&plan::read(path, max_bytes)?)
    })
}

/// Reads a plan from the `bytes` bytes in `text`, the content of a plan file. Otherwise as
/// `ap_plan_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_parse(
    text: *const c_char,
    bytes: usize,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || {
        // SAFETY: the C contract.
        Plan::parse(unsafe { array(text.cast::<u8>(), bytes, "text") }?)
    })
}

/// Frees a plan; does nothing if `plan` is null. The plan's arenas stay valid; strings and arrays
/// of the plan do not.
#[unsafe(no_mangle)]
pub extern "C" fn ap_plan_free(plan: Option<Box<Plan>>) {
    drop(plan);
}

/// Describes a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_describe(plan: Option<&Plan>, info: *mut PlanInfo) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(info, "info", || required(plan, "plan")?.info()) })
}

/// Describes space `index` of a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_space(
    plan: Option<&Plan>,
    index: u32,
    space: *mut PlanSpace,
) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(space, "space", || required(plan, "plan")?.space(index)) })
}

/// Describes the place of a value, by the value's number in the graph.
///
/// Fails with `AP_CODE_NOT_FOUND` if the value has no place: constants have none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_value(
    plan: Option<&Plan>,
    value: u32,
    place: *mut PlanValue,
) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(place, "place", || required(plan, "plan")?.value(value)) })
}

/// Finds the number of a value by name, in UTF-8; in constant time.
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
        // SAFETY: the C contract.
        let name = unsafe { string(name, "name") }?;
        *value = required(plan, "plan")?.find(name)?;
        Ok(())
    })
}

/// Describes step `index` of a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_step(
    plan: Option<&Plan>,
    index: u32,
    step: *mut PlanStep,
) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(step, "step", || required(plan, "plan")?.step(index)) })
}

/// Verifies a plan against its graph: `graph` is the content of a graph file, `bytes` bytes, as
/// written by `arenaplan export --to graph`.
///
/// Fails with `AP_CODE_CHECK_FAILED` if values that are needed at the same time share bytes, or the
/// plan belongs to another graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_plan_check(
    plan: Option<&Plan>,
    graph: *const c_char,
    bytes: usize,
) -> Code {
    guarded(|| {
        // SAFETY: the C contract.
        let graph = unsafe { array(graph.cast::<u8>(), bytes, "graph") }?;
        required(plan, "plan")?.check(graph)
    })
}
