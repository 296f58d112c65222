//! Tensors of files and requests: safetensors, whose elements are in the memory of the text.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use safetensors::{Dtype, SafeTensors};

use crate::error::{Error, Result};

/// The elements of a constant. Kernels of all shapes of a model share them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Elements {
    /// Elements of `float32`.
    Reals(Arc<[f32]>),
    /// Elements of `int64`.
    Integers(Arc<[i64]>),
}

/// A constant of a model.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Elements, the last dimension contiguous.
    pub elements: Elements,
}

/// The constants of a model, by the names that they have in its graphs.
#[derive(Debug, Default)]
pub struct Weights(HashMap<String, Weight>);

impl Weights {
    /// Reads the file that `arenaplan export MODEL --to weights` writes.
    ///
    /// # Errors
    ///
    /// [`Error::File`], [`Error::Tensors`], and [`Error::Weight`] if there is no kernel for the
    /// type of a constant.
    pub fn load(path: &Path) -> Result<Self> {
        let file =
            std::fs::read(path).map_err(|source| Error::File { path: path.into(), source })?;
        let tensors = SafeTensors::deserialize(&file)
            .map_err(|source| Error::Tensors { what: path.display().to_string(), source })?;
        let mut weights = HashMap::new();
        for (name, tensor) in tensors.iter() {
            let elements = match tensor.dtype() {
                Dtype::F32 => Elements::Reals(elements(tensor.data())),
                Dtype::I64 => Elements::Integers(elements(tensor.data())),
                other => {
                    let reason = format!("no kernel reads elements of {other:?}");
                    return Err(Error::Weight { name: name.into(), reason });
                }
            };
            let shape = tensor.shape().iter().map(|&dim| dim as u64).collect();
            weights.insert(name.to_owned(), Weight { shape, elements });
        }
        Ok(Self(weights))
    }

    /// Returns a constant that has the dimensions `shape`, in the graph for the sizes `sizes` of
    /// the model: `batch=2,seq=16`. A constant that depends on the sizes is there once for each.
    ///
    /// # Errors
    ///
    /// [`Error::Weight`] if it is not there, or has other dimensions.
    pub fn get(&self, name: &str, sizes: &str, shape: &[u64]) -> Result<&Weight> {
        let refuse = |reason| Error::Weight { name: name.to_owned(), reason };
        let found = self.0.get(name).or_else(|| self.0.get(&format!("{name}@{sizes}")));
        let weight = found.ok_or_else(|| refuse("it is not in the weights file".into()))?;
        if weight.shape != shape {
            let own = &weight.shape;
            return Err(refuse(format!("its shape is {own:?}, and {shape:?} in the graph")));
        }
        Ok(weight)
    }

    /// Returns the bytes of all constants.
    pub fn bytes(&self) -> u64 {
        let bytes = self.0.values().map(|weight| match &weight.elements {
            Elements::Reals(elements) => size_of_val(&**elements),
            Elements::Integers(elements) => size_of_val(&**elements),
        });
        bytes.map(|bytes| bytes as u64).sum()
    }
}

/// Copies elements out of bytes of any alignment.
fn elements<T: AnyBitPattern>(bytes: &[u8]) -> Arc<[T]> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
