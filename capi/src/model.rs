//! Models from files: graphs and checked plans for one or several shapes.

use std::ffi::{CString, c_char};

use arenaplan::model::Bucket;

use crate::error::{Code, Failure, Result};
use crate::plan::{Plan, count};
use crate::types::{FIND_PADDED, ModelInfo, ModelShape, c_string, position};

/// A model: a checked plan for each permitted shape.
///
/// A model never changes; any number of threads may use a model at the same time.
#[derive(Debug)]
pub struct Model {
    inner: arenaplan::Model,
    name: CString,
    /// Addresses in `_dims`, whose strings do not move.
    dims: Vec<*const c_char>,
    _dims: Vec<CString>,
    shapes: Vec<ShapeRow>,
}

/// Sizes and digest of one shape, in the form that C programs read.
#[derive(Debug)]
struct ShapeRow {
    sizes: Vec<u64>,
    digest: CString,
    arena_bytes: u64,
}

impl Model {
    /// Reads a model from text, and checks all plans.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let model = arenaplan::Model::from_json(text)?;
        let names: Vec<CString> = model.dims().iter().map(|dim| c_string(dim.name())).collect();
        let shapes = model.shapes().map(|shape| ShapeRow {
            sizes: shape.sizes().map(|(_, size)| size).collect(),
            digest: c_string(shape.digest()),
            arena_bytes: shape.required_bytes(),
        });
        Ok(Self {
            name: c_string(model.name()),
            dims: names.iter().map(|name| name.as_ptr()).collect(),
            _dims: names,
            shapes: shapes.collect(),
            inner: model,
        })
    }

    pub(crate) fn info(&self) -> Result<ModelInfo> {
        Ok(ModelInfo {
            size: 0,
            shape_count: count(self.shapes.len())?,
            name: self.name.as_ptr(),
            dims: self.dims.as_ptr(),
            arena_bytes: self.inner.arena_bytes(),
            dim_count: count(self.dims.len())?,
            flags: 0,
        })
    }

    /// Returns the index of the shape with the given sizes.
    pub(crate) fn find(&self, sizes: &[(&str, u64)], flags: u32) -> Result<u32> {
        let bucket = match flags {
            0 => Bucket::Exact,
            FIND_PADDED => Bucket::Padded,
            _ => {
                let text = format!("flags that this library does not know: {flags:#x}");
                return Err(Failure::new(Code::UnsupportedVersion, text));
            }
        };
        count(self.inner.find(sizes, bucket)?.index())
    }

    pub(crate) fn shape(&self, index: u32) -> Result<ModelShape> {
        let row = self.shapes.get(position(index)).ok_or_else(|| no_shape(index))?;
        Ok(ModelShape {
            size: 0,
            dim_count: count(row.sizes.len())?,
            sizes: row.sizes.as_ptr(),
            digest: row.digest.as_ptr(),
            arena_bytes: row.arena_bytes,
        })
    }

    /// Returns the plan for a shape, with step operators.
    pub(crate) fn plan(&self, index: u32) -> Result<Plan> {
        let shape = self.inner.get(position(index)).ok_or_else(|| no_shape(index))?;
        Plan::new(shape.plan()?.clone(), Some(shape.graph()?))
    }
}

/// Returns the error that a model has no such shape.
fn no_shape(index: u32) -> Failure {
    Failure::argument(format!("the model has no shape {index}"))
}
