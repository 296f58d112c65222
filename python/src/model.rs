//! Models: graphs and plans for several shapes, in one file.

use std::path::PathBuf;
use std::sync::Arc;

use arenaplan::model::{Bucket, Shape};
use pyo3::prelude::*;

use crate::arguments::Text;
use crate::call::{self, admit};
use crate::error::OrRaise;
use crate::files::{self, write_all};
use crate::graph::Graph;
use crate::plan::Plan;

/// Return the JSON Schema for model files.
#[pyfunction]
pub(crate) fn model_schema() -> &'static str {
    arenaplan::model::model_schema()
}

/// The graphs and plans of a model for one or several shapes.
#[pyclass(frozen, module = "arenaplan._core")]
#[derive(Debug)]
pub(crate) struct Model {
    inner: Arc<arenaplan::Model>,
}

impl From<arenaplan::Model> for Model {
    fn from(inner: arenaplan::Model) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl Model {
    /// Returns the shape count, for the memory that work with shapes may need.
    fn items(&self) -> usize {
        self.inner.len()
    }

    /// Returns the shape for sizes by name.
    fn shape(&self, py: Python<'_>, sizes: &[(String, u64)], padded: bool) -> PyResult<Shape<'_>> {
        let bucket = if padded { Bucket::Padded } else { Bucket::Exact };
        let sizes: Vec<_> = sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        self.inner.find(&sizes, bucket).or_raise(py)
    }

    /// Returns the model as JSON text.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        let model = Arc::clone(&self.inner);
        call::run(py, self.items(), move |_, _| model.to_json())
    }
}

#[pymethods]
impl Model {
    /// Collect shapes: for each shape a size per dimension in ``dims``, the graph, and a plan.
    #[new]
    #[pyo3(signature = (name: "str", dims: "Sequence[str]", shapes: "Iterator[tuple[Sequence[int], object, Plan]]"))]
    fn new(
        py: Python<'_>,
        name: String,
        dims: Vec<String>,
        shapes: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let mut builder = arenaplan::Model::builder(name, dims);
        for shape in shapes.try_iter()? {
            let (sizes, graph, plan): (Vec<u64>, Bound<'_, PyAny>, Bound<'_, Plan>) =
                shape?.extract()?;
            let plan = plan.get();
            let graph = plan.core_graph(&graph)?;
            let (graph, plan) = (Arc::clone(&graph.get().inner), Arc::clone(&plan.inner));
            let items = graph.values().len() + graph.nodes().len();
            let mut taken = builder;
            let (back, added) = call::run(py, items, move |_, _| {
                let added = taken.add(&sizes, &graph, &plan).map(drop);
                (taken, added)
            })?;
            added.or_raise(py)?;
            builder = back;
        }
        let model = call::run(py, 0, move |_, _| builder.build())?;
        Ok(model.or_raise(py)?.into())
    }

    /// Model name.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Variable dimension names, each with its sizes.
    #[getter]
    fn dims(&self) -> Vec<(String, Vec<u64>)> {
        let dims = self.inner.dims().iter();
        dims.map(|dim| (dim.name().to_owned(), dim.sizes().to_vec())).collect()
    }

    /// For each shape the size by dimension, and the needed bytes.
    #[getter]
    fn shapes(&self) -> Vec<(Vec<u64>, u64)> {
        let row = |shape: Shape<'_>| {
            (shape.sizes().map(|(_, size)| size).collect(), shape.required_bytes())
        };
        self.inner.shapes().map(row).collect()
    }

    /// Arena bytes that suffice for every shape.
    #[getter]
    fn arena_bytes(&self) -> u64 {
        self.inner.arena_bytes()
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// Return the index of the shape for sizes by name.
    fn find(&self, py: Python<'_>, sizes: Vec<(String, u64)>, padded: bool) -> PyResult<usize> {
        Ok(self.shape(py, &sizes, padded)?.index())
    }

    /// Return a shape's plan.
    fn plan(&self, py: Python<'_>, sizes: Vec<(String, u64)>) -> PyResult<Plan> {
        let shape = self.shape(py, &sizes, false)?;
        Ok(shape.plan().or_raise(py)?.clone().into())
    }

    /// Return a shape's graph.
    fn graph(&self, py: Python<'_>, sizes: Vec<(String, u64)>) -> PyResult<Graph> {
        let shape = self.shape(py, &sizes, false)?;
        Ok(Graph { inner: Arc::new(shape.graph().or_raise(py)?.clone()) })
    }

    /// Return the model as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.text(py)?;
        admit(py, text.len())?;
        Ok(text)
    }

    /// Return the model in a JSON text, after checking every plan.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: Text<'_>) -> PyResult<Self> {
        Ok(files::parse(py, text, arenaplan::Model::from_json)?.into())
    }

    /// Write the model to a file, which is replaced at once or unchanged; a device or a pipe is
    /// written into.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let text = self.text(py)?;
        write_all(py, vec![(path, text)])
    }

    /// Read a model from a file, and check every plan.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(files::load(py, path, |path| arenaplan::Model::load(path))?.into())
    }
}
