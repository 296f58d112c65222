//! Plan hazards.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;

use super::raw::{array, make};
use crate::error::{Code, guarded, required};
use crate::hazard_tables::Hazards;
use crate::plan::Plan;
use crate::types::Hazard;

/// Finds the steps that each step must wait for, if several threads run steps.
///
/// A program that starts each step after these steps have ended is right, however long steps take.
/// `graph` is the content of a graph file, `bytes` bytes, against which the plan is checked;
/// `graph` may be null if the plan is from `ap_plan_make` or `ap_model_plan`. On failure `*hazards`
/// is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_hazards_make(
    plan: Option<&Plan>,
    graph: *const c_char,
    bytes: usize,
    hazards: Option<&mut MaybeUninit<Option<Box<Hazards>>>>,
) -> Code {
    make(hazards, || {
        let graph = if graph.is_null() && bytes == 0 {
            None
        } else {
            // SAFETY: the C contract.
            Some(unsafe { array(graph.cast::<u8>(), bytes, "graph") }?)
        };
        Hazards::new(required(plan, "plan")?, graph)
    })
}

/// Frees hazards; does nothing if `hazards` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_hazards_free(hazards: Option<Box<Hazards>>) {
    drop(hazards);
}

/// Returns the number of all edges; 0 if `hazards` is null.
#[unsafe(no_mangle)]
pub extern "C" fn ap_hazards_count(hazards: Option<&Hazards>) -> usize {
    hazards.map_or(0, |hazards| hazards.edges().len())
}

/// Returns all edges, ascending by later step, then by earlier step; null if `hazards` is null.
///
/// The array has `ap_hazards_count` elements and belongs to the hazards.
#[unsafe(no_mangle)]
pub extern "C" fn ap_hazards_edges(hazards: Option<&Hazards>) -> *const Hazard {
    hazards.map_or(ptr::null(), |hazards| hazards.edges().as_ptr())
}

/// Returns the edges to step `step`: an array with `*count` elements, one for each earlier step
/// that must end before. The array belongs to the hazards.
#[unsafe(no_mangle)]
pub extern "C" fn ap_hazards_of(
    hazards: Option<&Hazards>,
    step: u32,
    edges: Option<&mut MaybeUninit<*const Hazard>>,
    count: Option<&mut MaybeUninit<u32>>,
) -> Code {
    guarded(|| {
        let edges = required(edges, "edges")?.write(ptr::null());
        let count = required(count, "count")?.write(0);
        let (found, number) = required(hazards, "hazards")?.of(step)?;
        (*edges, *count) = (found.as_ptr(), number);
        Ok(())
    })
}
