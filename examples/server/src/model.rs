//! Models: plans and graphs from a model file, weights, and the kernels of each shape.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arenaplan::model::{Bucket, Shape};
use arenaplan::program::{ProgramStep, StepMemory};
use arenaplan::{DType, Graph, Lease, Model, NodeId, Program, ValueId};
use safetensors::{Dtype, SafeTensors, View};

use crate::error::{Error, Result};
use crate::kernels::{Kernel, kernel_of};
use crate::tensors::Weights;

/// A model that is ready to serve each of its shapes.
///
/// The first dimension of every input and every output is the batch. A request with fewer rows than
/// any planned shape has runs in the next larger one.
pub struct ServedModel {
    name: String,
    model: Model,
    weight_bytes: u64,
    /// By shape.
    shapes: Vec<ServedShape>,
}

/// One shape of a model.
pub struct ServedShape {
    graph: Graph,
    program: Arc<Program>,
    /// By node.
    kernels: Vec<Box<dyn Kernel>>,
    /// Rows of the batch.
    rows: u64,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// A request for a model: the shape that serves it, and its number of rows.
#[derive(Clone, Copy)]
pub struct Fit<'m> {
    /// The shape, which has at least as many rows.
    pub shape: &'m ServedShape,
    /// Rows of the request.
    pub rows: usize,
}

/// A tensor that a request or a response has.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name in the graph.
    pub name: String,
    /// Dimensions; the first is the batch.
    pub shape: Vec<usize>,
    value: ValueId,
    dtype: Dtype,
}

impl ServedModel {
    /// Loads `BASE.plan.json` and `BASE.safetensors`, and makes the kernels of all shapes.
    ///
    /// # Errors
    ///
    /// [`Error::Plan`] if a plan is not valid for its graph, or fuses nodes; [`Error::Weight`],
    /// [`Error::Unsupported`] if kernels cannot run a node.
    pub fn load(name: impl Into<String>, base: &Path) -> Result<Self> {
        let beside = |suffix: &str| {
            let mut path = base.as_os_str().to_owned();
            path.push(suffix);
            PathBuf::from(path)
        };
        let model = Model::load(beside(".plan.json"))?;
        let weights = Weights::load(&beside(".safetensors"))?;
        let shapes = model.shapes().map(|shape| ServedShape::new(shape, &weights));
        let shapes = shapes.collect::<Result<_>>()?;
        Ok(Self { name: name.into(), model, weight_bytes: weights.bytes(), shapes })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of the weights.
    pub const fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Returns the bytes of an arena that every shape can run in.
    pub const fn arena_bytes(&self) -> u64 {
        self.model.arena_bytes()
    }

    /// Returns the shapes, in ascending order.
    pub fn shapes(&self) -> &[ServedShape] {
        &self.shapes
    }

    /// Returns the shape that serves a request, and the rows of the request.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if an input is missing, unknown, or has another type; [`Error::Plan`] if no shape
    /// has as many rows.
    pub fn fit(&self, request: &SafeTensors<'_>) -> Result<Fit<'_>> {
        let first = &self.shapes[0];
        let mut found = Vec::with_capacity(first.inputs.len());
        for port in &first.inputs {
            let refuse = |reason| Error::Input { name: port.name.clone(), reason };
            let tensor = request.tensor(&port.name).map_err(|_| refuse("it is missing".into()))?;
            if tensor.dtype() != port.dtype {
                let (given, wanted) = (tensor.dtype(), port.dtype);
                return Err(refuse(format!("its type is {given:?}, not {wanted:?}")));
            }
            let shape: Vec<u64> = tensor.shape().iter().map(|&dim| dim as u64).collect();
            found.push((port.name.as_str(), shape));
        }
        let is_known = |name: &&&str| first.inputs.iter().any(|port| port.name == **name);
        if let Some(other) = request.names().iter().find(|name| !is_known(name)) {
            let known: Vec<&str> = first.inputs.iter().map(|port| port.name.as_str()).collect();
            let reason = format!("the model reads {} alone", known.join(", "));
            return Err(Error::Input { name: (*other).to_string(), reason });
        }
        let inputs: Vec<_> = found.iter().map(|(name, shape)| (*name, &shape[..])).collect();
        let shape = &self.shapes[self.model.find_inputs(&inputs, Bucket::Padded)?.index()];
        for (port, (_, dims)) in shape.inputs.iter().zip(&found) {
            let same_rows = dims.first() == found[0].1.first();
            let rest = port.shape.iter().skip(1).map(|&dim| dim as u64);
            if !same_rows || !rest.eq(dims.iter().skip(1).copied()) {
                let reason = format!("its shape {dims:?} does not fit {:?}", port.shape);
                return Err(Error::Input { name: port.name.clone(), reason });
            }
        }
        let rows = found.first().and_then(|(_, dims)| dims.first().copied());
        let rows = usize::try_from(rows.unwrap_or(shape.rows));
        let too_many = |_| Error::Input { name: self.name.clone(), reason: "too many rows".into() };
        Ok(Fit { shape, rows: rows.map_err(too_many)? })
    }
}

impl ServedShape {
    fn new(shape: Shape<'_>, weights: &Weights) -> Result<Self> {
        let (graph, program) = (shape.graph()?.clone(), Arc::clone(shape.program()?));
        if let Some(step) = program.steps().find(|step| step.is_fused()) {
            let reason = "the plan runs it with other nodes: plan with --target nodes".into();
            let node = graph.node(step.node());
            return Err(Error::Unsupported {
                node: step.name().into(),
                op: node.op().into(),
                reason,
            });
        }
        let nodes = (0..graph.nodes().len()).map(NodeId::new);
        let mut sizes: Vec<_> = shape.sizes().map(|(dim, size)| format!("{dim}={size}")).collect();
        sizes.sort_unstable();
        let sizes = sizes.join(",");
        let kernels = nodes.map(|node| kernel_of(&graph, node, weights, &sizes));
        let kernels = kernels.collect::<Result<_>>()?;
        let ports = |values: &mut dyn Iterator<Item = ValueId>| -> Result<Vec<Port>> {
            values.map(|value| Port::of(&graph, value)).collect()
        };
        let inputs = ports(&mut graph.inputs())?;
        let outputs = ports(&mut graph.outputs().iter().copied())?;
        let rows = inputs.iter().chain(&outputs).map(|port| port.shape.first().copied());
        let rows: BTreeSet<_> = rows.collect();
        let (Some(Some(rows)), 1) = (rows.first().copied(), rows.len()) else {
            let reason = "the first dimension of an input or output is not the batch".into();
            return Err(Error::Input { name: graph.name().into(), reason });
        };
        Ok(Self { kernels, rows: rows as u64, inputs, outputs, graph, program })
    }

    /// Returns the program, to be given to a pool.
    pub const fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the number of rows of the batch.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the inputs.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// Returns the outputs.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Returns the graph.
    pub const fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Copies the inputs of a request into a leased arena, and fills the other rows with zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if an input is not there; [`ServedModel::fit`] found out before.
    pub fn write_inputs(&self, lease: &mut Lease, request: &SafeTensors<'_>) -> Result<()> {
        for port in &self.inputs {
            let tensor = request.tensor(&port.name).map_err(|_| Error::Input {
                name: port.name.clone(),
                reason: "it is missing".into(),
            })?;
            let (given, all) = (tensor.data(), lease.value_mut(port.value)?);
            let (rows, padding) = all.split_at_mut(given.len());
            rows.copy_from_slice(given);
            padding.fill(0);
        }
        Ok(())
    }

    /// Runs all steps. Nothing is allocated for a tensor.
    ///
    /// # Errors
    ///
    /// [`Error::Plan`] if an input has an index that is out of range.
    pub fn run(&self, lease: &mut Lease) -> Result<()> {
        let kernel = |step: ProgramStep<'_>, memory: &mut StepMemory<'_>| {
            self.kernels[step.node().index()].run(memory)
        };
        Ok(lease.run(kernel)?)
    }

    /// Returns the first `rows` rows of all outputs as safetensors.
    ///
    /// # Errors
    ///
    /// [`Error::Plan`] if the lease is that of another shape.
    pub fn read_outputs(&self, lease: &Lease, rows: usize) -> Result<Vec<u8>> {
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for port in &self.outputs {
            let bytes = lease.value(port.value)?;
            let row = bytes.len() / port.shape[0].max(1);
            let mut shape = port.shape.clone();
            shape[0] = rows;
            let part = Part { dtype: port.dtype, shape, bytes: &bytes[..rows * row] };
            outputs.push((port.name.as_str(), part));
        }
        let what = || "the outputs".to_owned();
        safetensors::serialize(outputs, None)
            .map_err(|source| Error::Tensors { what: what(), source })
    }
}

/// The rows of an output that were asked for.
struct Part<'m> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: &'m [u8],
}

impl View for Part<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

impl Port {
    fn of(graph: &Graph, id: ValueId) -> Result<Self> {
        let value = graph.value(id);
        let refuse = |reason| Error::Input { name: value.name().into(), reason };
        let dtype = match value.dtype() {
            DType::FLOAT32 => Dtype::F32,
            DType::INT64 => Dtype::I64,
            other => return Err(refuse(format!("no request has elements of {}", other.name()))),
        };
        let shape = value.shape().iter().map(|&dim| usize::try_from(dim));
        let shape: Result<Vec<_>, _> = shape.collect();
        let shape = shape.map_err(|_| refuse("it is too large".into()))?;
        Ok(Self { name: value.name().into(), shape, value: id, dtype })
    }

    /// Returns the type of the elements.
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }
}
