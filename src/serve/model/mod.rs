//! Models: the graphs and plans of a neural network for one or several shapes.

mod find;
mod model_builder;
mod model_file;
mod plan_numbers;
mod shape;
mod template;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::{
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

pub use find::Bucket;
pub use model_builder::ModelBuilder;
pub use model_file::{MODEL_VERSION, model_schema};
pub use shape::Shape;

use crate::base::{Error, Result, quoted};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::run::program::Program;
use shape::{ModelRow, at_shape, shown, text_of};
use template::Template;

/// Most values and nodes of all shapes together: each is checked when a model is read.
const MAX_ITEMS: usize = 1 << 25;

/// A neural network with a checked plan for each permitted shape.
///
/// A single file holds the model, without weights:
/// `arenaplan plan model.onnx --bind batch=1..32 -o model.plan.json` writes such a file, and
/// [`Model::load`] reads and checks the file. The bytes for a shape are known before any memory is
/// taken; graphs and programs are made when a shape is first used.
///
/// ```
/// use arenaplan::model::Bucket;
/// use arenaplan::{DType, Graph, Model, Node, Planner, Result, Value, ValueKind};
///
/// fn layer(batch: u64) -> Result<Graph> {
///     let mut builder = Graph::builder("layer");
///     let array = |name, kind| Value::new(name, kind, DType::FLOAT32, [batch, 64]);
///     let x = builder.add_value(array("x", ValueKind::Input)?);
///     let y = builder.add_value(array("y", ValueKind::Activation)?);
///     builder.add_node(Node::new("conv", "Conv").reads([x]).writes([y]));
///     builder.add_output(y);
///     builder.build()
/// }
///
/// let mut builder = Model::builder("layer", ["batch"]);
/// for batch in [1, 2, 4, 8] {
///     let graph = layer(batch)?;
///     builder.add(&[batch], &graph, &Planner::new().plan(&graph)?)?;
/// }
/// let text = builder.build()?.to_json();
///
/// let model = Model::from_json(text.as_bytes())?; // every plan is checked
/// assert_eq!(model.required_bytes(&[("batch", 4)])?, 2048);
/// let shape = model.find(&[("batch", 3)], Bucket::Padded)?;
/// assert_eq!(shape.to_string(), "batch=4");
///
/// let mut arena = shape.plan()?.commit()?;
/// for step in shape.program()?.steps() {
///     let mut memory = arena.step(shape.program()?, step)?;
///     memory.elementwise(|[x]: [f32; 1]| 2.0 * x)?;
/// }
///
/// let missing = model.required_bytes(&[("batch", 3)]).unwrap_err();
/// let text = "batch=3 is not one of the shapes that were planned; the nearest is batch=2";
/// assert_eq!(missing.to_string(), text);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    dims: Vec<Dim>,
    graphs: Vec<Template<Graph>>,
    plans: Vec<Template<Plan>>,
    /// By sizes, ascending.
    rows: Vec<ModelRow>,
    arena_bytes: u64,
}

/// A variable dimension with its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    name: String,
    sizes: Vec<u64>,
}

impl Dim {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sizes that the dimension has in any shape, ascending.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Returns the first sizes for people.
    fn text(&self) -> String {
        const LONGEST: usize = 8;
        let sizes: Vec<_> = self.sizes.iter().take(LONGEST).map(u64::to_string).collect();
        let rest = if self.sizes.len() > LONGEST { ", …" } else { "" };
        format!("{}{rest}", sizes.join(", "))
    }
}

impl AsRef<str> for Dim {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl Model {
    /// Returns an empty builder for a model whose shapes differ in the given dimensions.
    ///
    /// ```
    /// use arenaplan::{DType, Graph, Model, Node, Planner, Value, ValueKind};
    ///
    /// let mut builder = Graph::builder("one");
    /// let x = builder.add_value(Value::new("x", ValueKind::Input, DType::UINT8, [64])?);
    /// builder.add_output(x);
    /// let graph = builder.build()?;
    ///
    /// // A model of one shape has no dimensions.
    /// let mut builder = Model::builder("one", [""; 0]);
    /// builder.add(&[], &graph, &Planner::new().plan(&graph)?)?;
    /// assert_eq!(builder.build()?.required_bytes(&[])?, 64);
    /// # Ok::<(), arenaplan::Error>(())
    /// ```
    #[must_use]
    pub fn builder<S: Into<String>>(
        name: impl Into<String>,
        dims: impl IntoIterator<Item = S>,
    ) -> ModelBuilder {
        ModelBuilder::new(name.into(), dims.into_iter().map(Into::into).collect())
    }

    /// Returns the model name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the variable dimensions, in the order in which [`Shape::sizes`] lists them.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Returns the shape count.
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns `false`: a model has at least one shape.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Iterates over the shapes, in ascending order of sizes.
    pub fn shapes(&self) -> impl ExactSizeIterator<Item = Shape<'_>> {
        (0..self.rows.len()).map(|index| self.shape(index))
    }

    /// Returns the shape at a position in [`shapes`](Self::shapes), if there are so many.
    pub fn get(&self, index: usize) -> Option<Shape<'_>> {
        (index < self.rows.len()).then(|| self.shape(index))
    }

    /// Returns the bytes of arenas that every shape can run in: for each memory the most that any
    /// shape needs.
    pub const fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Returns the bytes that the arenas for one shape need.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn required_bytes(&self, sizes: &[(&str, u64)]) -> Result<u64> {
        Ok(self.find(sizes, Bucket::Exact)?.required_bytes())
    }

    /// Returns the plan for one shape.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn plan(&self, sizes: &[(&str, u64)], bucket: Bucket) -> Result<&Plan> {
        self.find(sizes, bucket)?.plan()
    }

    /// Returns the program for one shape.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub fn program(&self, sizes: &[(&str, u64)], bucket: Bucket) -> Result<&Arc<Program>> {
        self.find(sizes, bucket)?.program()
    }

    /// Returns the model with checked rows, and derives the other fields in each row.
    fn with_rows(
        name: String,
        dims: Vec<String>,
        graphs: Vec<Template<Graph>>,
        plans: Vec<Template<Plan>>,
        rows: Vec<ModelRow>,
    ) -> Result<Self> {
        let sizes = |index: usize| -> Vec<u64> {
            let sizes: BTreeSet<u64> = rows.iter().map(|row| row.sizes[index]).collect();
            sizes.into_iter().collect()
        };
        let dims = dims.into_iter().enumerate();
        let dims = dims.map(|(index, name)| Dim { name, sizes: sizes(index) }).collect();
        let mut model = Self { name, dims, graphs, plans, rows, arena_bytes: 0 };
        let mut used = (vec![0; model.graphs.len()], vec![0; model.plans.len()]);
        // The graph and the plan of each template take the numbers of every shape in turn.
        let mut graphs: Vec<Graph> = model.graphs.iter().map(|it| it.base.clone()).collect();
        let mut plans: Vec<Plan> = model.plans.iter().map(|it| it.base.clone()).collect();
        let mut largest: BTreeMap<String, u64> = BTreeMap::new();
        for index in 0..model.rows.len() {
            let row = &mut model.rows[index];
            (row.at_graph, row.at_plan) = (used.0[row.graph], used.1[row.plan]);
            used.0[row.graph] += 1;
            used.1[row.plan] += 1;
            let row = &model.rows[index];
            let at = |error: Error| at_shape(&model.dims, &row.sizes, error);
            if row.at_plan == 0 && model.plans[row.plan].base.digest != row.digest {
                let reason = "the plan of the first shape is that of another graph".into();
                return Err(at(Error::PlanMismatch { reason }));
            }
            let (graph, plan) = (&mut graphs[row.graph], &mut plans[row.plan]);
            model.graphs[row.graph].write(row.at_graph, graph).map_err(at)?;
            model.plans[row.plan].write(row.at_plan, plan).map_err(at)?;
            plan.digest.clone_from(&row.digest);
            plan.check(graph).map_err(at)?;
            graph.covers().require_whole(&model.name).map_err(at)?;
            let dims = graph.inputs().flat_map(|input| graph.value(input).shape());
            let input_dims = dims.copied().collect();
            for space in plan.arenas() {
                match largest.get_mut(&space.name) {
                    Some(bytes) => *bytes = space.arena_bytes.max(*bytes),
                    None => drop(largest.insert(space.name.clone(), space.arena_bytes)),
                }
            }
            let row = &mut model.rows[index];
            (row.input_dims, row.arena_bytes) = (input_dims, plan.arena_bytes());
        }
        model.arena_bytes = largest.values().copied().fold(0, u64::saturating_add);
        Ok(model)
    }

    fn shape(&self, index: usize) -> Shape<'_> {
        Shape { model: self, index }
    }

    /// Makes the graph and the plan for a row.
    fn make(&self, row: &ModelRow) -> Result<(Graph, Plan)> {
        let graph = self.graphs[row.graph].at(row.at_graph)?;
        let mut plan = self.plans[row.plan].at(row.at_plan)?;
        plan.digest.clone_from(&row.digest);
        Ok((graph, plan))
    }

    fn text(&self, sizes: &[u64]) -> String {
        text_of(&self.dims, sizes)
    }

    /// Returns the names of all dimensions for people, behind a verb.
    fn known_dims(&self) -> String {
        let names: Vec<_> = self.dims.iter().map(|dim| shown(dim.name())).collect();
        match names.as_slice() {
            [] => "are none".into(),
            [one] => format!("is {one}"),
            _ => format!("are {}", names.join(", ")),
        }
    }
}

/// Refuses dimensions without a name, or with another dimension's name.
fn check_dims(dims: &[String]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for name in dims {
        if name.is_empty() {
            return Err("a dimension has no name".into());
        }
        if !known.insert(name) {
            return Err(format!("two dimensions are called {}", quoted(name)));
        }
    }
    Ok(())
}

/// Refuses more values and nodes, of all shapes, than can be checked in reasonable time.
fn check_work(graphs: &[Template<Graph>], rows: &[ModelRow]) -> Result<()> {
    let items = rows.iter().map(|row| {
        let graph = &graphs[row.graph].base;
        graph.values().len().saturating_add(graph.nodes().len())
    });
    if items.fold(0_usize, usize::saturating_add) > MAX_ITEMS {
        let reason = format!("its shapes have more than {MAX_ITEMS} values and nodes");
        return Err(Error::ModelCorrupt { reason });
    }
    Ok(())
}
