//! Models from files.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use super::raw::{array, make, output, path, string};
use crate::error::{Code, Failure, Result, guarded, required};
use crate::model::Model;
use crate::plan::{self, Plan};
use crate::types::{Dim, ModelInfo, ModelShape};

/// Reads a model file, as written by `arenaplan plan --bind -o`, with at most `max_bytes` bytes,
/// and checks each plan against its graph; 0 stands for 1 GiB, which is the limit in any case.
///
/// On failure `*model` is null. `path` is in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_load(
    path: *const c_char,
    max_bytes: u64,
    model: Option<&mut MaybeUninit<Option<Box<Model>>>>,
) -> Code {
    make(model, || {
        // SAFETY: the C contract.
        let path = unsafe { self::path(path) }?;
        Model::parse(&plan::read(path, max_bytes)?)
    })
}

/// Reads a model from the `bytes` bytes in `text`. Otherwise as `ap_model_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_parse(
    text: *const c_char,
    bytes: usize,
    model: Option<&mut MaybeUninit<Option<Box<Model>>>>,
) -> Code {
    make(model, || {
        // SAFETY: the C contract.
        Model::parse(unsafe { array(text.cast::<u8>(), bytes, "text") }?)
    })
}

/// Frees a model; does nothing if `model` is null. Plans from the model stay valid.
#[unsafe(no_mangle)]
pub extern "C" fn ap_model_free(model: Option<Box<Model>>) {
    drop(model);
}

/// Describes a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_describe(model: Option<&Model>, info: *mut ModelInfo) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(info, "info", || required(model, "model")?.info()) })
}

/// Describes shape `index` of a model: sizes, and needed bytes. Takes no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ap_model_shape(
    model: Option<&Model>,
    index: u32,
    shape: *mut ModelShape,
) -> Code {
    // SAFETY: the C contract.
    guarded(|| unsafe { output(shape, "shape", || required(model, "model")?.shape(index)) })
}

/// Finds the shape for `count` dimensions with sizes; `flags` is 0 or `AP_FIND_PADDED`.
///
/// A dimension with one size in all shapes may be left out. Fails with `AP_CODE_NOT_FOUND` if no
/// shape serves; the text names the nearest shape.
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
        // SAFETY: the C contract.
        let dims = unsafe { array(dims, count, "dims") }?;
        let sizes = dims.iter().map(|dim| {
            // SAFETY: the C contract, for the string in the struct.
            let name = unsafe { string(dim.name, "name") }?;
            let name = name.to_str().map_err(|_| Failure::argument("name is not UTF-8"))?;
            Ok((name, dim.size))
        });
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        *shape = required(model, "model")?.find(&sizes, flags)?;
        Ok(())
    })
}

/// Returns the plan for shape `index`, whose steps have operators. On failure `*plan` is null. A
/// program makes each plan once and keeps the plan: the call copies the plan.
#[unsafe(no_mangle)]
pub extern "C" fn ap_model_plan(
    model: Option<&Model>,
    index: u32,
    plan: Option<&mut MaybeUninit<Option<Box<Plan>>>>,
) -> Code {
    make(plan, || required(model, "model")?.plan(index))
}
