//! Chooses the shape that serves a request: the same shape, or the nearest larger shape.

use alloc::{format, string::String, vec::Vec};

use super::shape::shown;
use super::{Model, Shape};
use crate::base::{Error, Result, quoted};
use crate::graph::Graph;

/// The shapes that may serve a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bucket {
    /// The shape that is asked for.
    #[default]
    Exact,
    /// The smallest shape that is at least as large in every dimension. The caller fills the rest
    /// of the inputs such that the used results do not change: rows of a batch, or tokens that a
    /// mask leaves out.
    Padded,
}

impl Model {
    /// Returns the shape for the given dimension sizes.
    ///
    /// A dimension with one size in all shapes may be left out. No memory is allocated if the shape
    /// is there.
    ///
    /// # Errors
    ///
    /// - [`Error::UnknownDim`] if a dimension is unknown to the model.
    /// - [`Error::UnboundDim`] if a dimension with several sizes is left out.
    /// - [`Error::InvalidOption`] if a dimension is given two sizes.
    /// - [`Error::ShapeNotPlanned`] if no shape serves; the error names the nearest.
    pub fn find(&self, sizes: &[(&str, u64)], bucket: Bucket) -> Result<Shape<'_>> {
        for (position, &(name, size)) in sizes.iter().enumerate() {
            if self.dims.iter().all(|dim| dim.name() != name) {
                return Err(Error::UnknownDim { name: quoted(name), known: self.known_dims() });
            }
            if sizes[..position].iter().any(|&(other, known)| other == name && known != size) {
                let reason = format!("dimension {} has two", quoted(name));
                return Err(Error::InvalidOption { option: "sizes", reason });
            }
        }
        for dim in &self.dims {
            if dim.sizes().len() > 1 && sizes.iter().all(|&(name, _)| name != dim.name()) {
                let (name, known) = (quoted(dim.name()), dim.text());
                return Err(Error::UnboundDim { name, known });
            }
        }
        let wanted = |dim: usize| {
            let dim = &self.dims[dim];
            let given = sizes.iter().find(|&&(name, _)| name == dim.name());
            given.map_or(dim.sizes()[0], |&(_, size)| size)
        };
        let compared = |row: &[u64]| {
            let each = row.iter().enumerate().map(|(dim, size)| size.cmp(&wanted(dim)));
            each.fold(core::cmp::Ordering::Equal, core::cmp::Ordering::then)
        };
        if let Ok(index) = self.rows.binary_search_by(|row| compared(&row.sizes)) {
            return Ok(self.shape(index));
        }
        if bucket == Bucket::Padded
            && let Some(index) = self.smallest(|row| {
                self.rows[row].sizes.iter().enumerate().all(|(dim, &size)| size >= wanted(dim))
            })
        {
            return Ok(self.shape(index));
        }
        let all: Vec<u64> = (0..self.dims.len()).map(wanted).collect();
        Err(self.not_planned(&all))
    }

    /// Returns the shape in which the inputs have the given shapes; omitted inputs may have any
    /// shape. Of several such shapes, the first is returned.
    ///
    /// ```
    /// use arenaplan::model::Bucket;
    /// use arenaplan::{DType, Graph, Model, Planner, Value, ValueKind};
    ///
    /// let mut builder = Model::builder("identity", ["batch"]);
    /// for batch in [1, 8] {
    ///     let mut graph = Graph::builder("identity");
    ///     let x = Value::new("x", ValueKind::Input, DType::FLOAT32, [batch, 16])?;
    ///     let x = graph.add_value(x);
    ///     graph.add_output(x);
    ///     let graph = graph.build()?;
    ///     builder.add(&[batch], &graph, &Planner::new().plan(&graph)?)?;
    /// }
    /// let model = builder.build()?;
    ///
    /// let shape = model.find_inputs(&[("x", &[3, 16])], Bucket::Padded)?;
    /// assert_eq!(shape.sizes().next(), Some(("batch", 8)));
    /// let error = model.find_inputs(&[("x", &[3, 17])], Bucket::Padded).unwrap_err();
    /// assert!(error.to_string().contains("the nearest is [1, 16]"));
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Error::UndefinedValue`] if an input is unknown to the model.
    /// - [`Error::ShapeNotPlanned`] if no shape serves; the error names the input and the nearest.
    pub fn find_inputs(&self, inputs: &[(&str, &[u64])], bucket: Bucket) -> Result<Shape<'_>> {
        for &(name, _) in inputs {
            let has = |graph: &Graph| graph.inputs().any(|input| graph.value(input).name() == name);
            if !self.graphs.iter().any(|template| has(&template.base)) {
                let user = "a request".into();
                return Err(Error::UndefinedValue {
                    user,
                    value: format!("input {}", quoted(name)),
                });
            }
        }
        if let Some(index) = (0..self.rows.len()).find(|&row| self.serves(row, inputs, u64::eq)) {
            return Ok(self.shape(index));
        }
        if bucket == Bucket::Padded
            && let Some(index) = self.smallest(|row| self.serves(row, inputs, u64::ge))
        {
            return Ok(self.shape(index));
        }
        Err(self.no_inputs(inputs))
    }

    /// Returns whether the dimensions of the inputs in a row each satisfy `fits` with the given
    /// dimensions.
    fn serves(&self, row: usize, inputs: &[(&str, &[u64])], fits: fn(&u64, &u64) -> bool) -> bool {
        inputs.iter().all(|&(name, dims)| {
            self.dims_of(row, name).is_some_and(|own| {
                own.len() == dims.len() && own.iter().zip(dims).all(|(own, dim)| fits(own, dim))
            })
        })
    }

    /// Returns an input's dimensions in one shape.
    fn dims_of(&self, row: usize, name: &str) -> Option<&[u64]> {
        let row = &self.rows[row];
        let graph = &self.graphs[row.graph].base;
        let mut start = 0;
        for input in graph.inputs() {
            let value = graph.value(input);
            let end = start + value.shape().len();
            if value.name() == name {
                return row.input_dims.get(start..end);
            }
            start = end;
        }
        None
    }

    /// Returns the smallest shape that serves: by the product over the sizes, then by bytes, then
    /// by position.
    fn smallest(&self, serves: impl Fn(usize) -> bool) -> Option<usize> {
        let volume = |row: usize| {
            let sizes = self.rows[row].sizes.iter().map(|&size| u128::from(size));
            sizes.fold(1_u128, u128::saturating_mul)
        };
        let serving = (0..self.rows.len()).filter(|&row| serves(row));
        serving.min_by_key(|&row| (volume(row), self.rows[row].arena_bytes, row))
    }

    /// Returns the error for sizes that no shape has.
    fn not_planned(&self, sizes: &[u64]) -> Error {
        let wrong = self.dims.iter().zip(sizes).find(|(dim, size)| !dim.sizes().contains(size));
        let what = match wrong {
            Some((dim, size)) => format!("{}={size}", shown(dim.name())),
            None => self.text(sizes),
        };
        let distance = |row: usize| distance(&self.rows[row].sizes, sizes);
        let nearest = (0..self.rows.len()).min_by_key(|&row| (distance(row), row));
        let nearest = nearest.map_or_else(String::new, |row| self.text(&self.rows[row].sizes));
        Error::ShapeNotPlanned { what, nearest }
    }

    /// Returns the error for inputs whose shapes the model does not have.
    fn no_inputs(&self, inputs: &[(&str, &[u64])]) -> Error {
        let alone = |input: &&(&str, &[u64])| {
            !(0..self.rows.len())
                .any(|row| self.serves(row, core::slice::from_ref(*input), u64::eq))
        };
        let named = inputs.iter().find(alone).or(inputs.first());
        let Some(&(name, dims)) = named else { return self.not_planned(&[]) };
        let far = |row: usize| match self.dims_of(row, name) {
            Some(own) if own.len() == dims.len() => distance(own, dims),
            _ => u128::MAX,
        };
        let nearest = (0..self.rows.len()).min_by_key(|&row| (far(row), row));
        let nearest = nearest.map_or_else(String::new, |row| {
            let own = self.dims_of(row, name).unwrap_or_default();
            format!("{own:?}, with {}", self.shape(row))
        });
        Error::ShapeNotPlanned { what: format!("{dims:?} of input {}", quoted(name)), nearest }
    }
}

/// Returns the distance between two lists of sizes.
fn distance(one: &[u64], other: &[u64]) -> u128 {
    one.iter().zip(other).map(|(one, other)| u128::from(one.abs_diff(*other))).sum()
}
