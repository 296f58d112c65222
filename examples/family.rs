//! Serving a model file: `cargo run --example family -- model.plan.json batch=5`.
//!
//! The file is written by `arenaplan plan model.onnx --bind batch=1..32 -o model.plan.json`. It
//! has the graphs and plans of all shapes; neither Python nor the original model is needed. Without
//! arguments, a small family is written to a temporary file and used.
#![allow(clippy::print_stdout, reason = "it is a command")]

use std::error::Error;
use std::path::PathBuf;

use arenaplan::model::Bucket;
use arenaplan::{DType, Graph, Model, Node, Planner, Value, ValueKind};

/// Returns two dense layers, whose weights are not in the graph.
fn layers(batch: u64) -> arenaplan::Result<Graph> {
    let mut builder = Graph::builder("two layers");
    let array = |name, kind, width| Value::new(name, kind, DType::FLOAT32, [batch, width]);
    let x = builder.add_value(array("x", ValueKind::Input, 64)?);
    let hidden = builder.add_value(array("hidden", ValueKind::Activation, 256)?);
    let active = builder.add_value(array("active", ValueKind::Activation, 256)?);
    let y = builder.add_value(array("y", ValueKind::Activation, 10)?);
    builder.add_node(Node::new("first", "Dense").reads([x]).writes([hidden]));
    builder.add_node(Node::new("relu", "Relu").reads([hidden]).writes([active]).in_place(0, 0));
    builder.add_node(Node::new("second", "Dense").reads([active]).writes([y]));
    builder.add_output(y);
    builder.build()
}

/// Writes a family of four shapes to a file.
fn write_family(folder: &std::path::Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut builder = Model::builder("two layers", ["batch"]);
    for batch in [1, 2, 8, 32] {
        let graph = layers(batch)?;
        builder.add(&[batch], &graph, &Planner::new().plan(&graph)?)?;
    }
    let path = folder.join("model.plan.json");
    builder.build()?.save(&path)?;
    Ok(path)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().map(PathBuf::from);
    let is_own = path.is_none();
    let path = path.map_or_else(|| write_family(folder.path()), Ok)?;

    // Every plan is checked against its graph here; a damaged or forged file is an error.
    let model = Model::load(path)?;
    println!("{}: {} shapes, {} bytes serve all", model.name(), model.len(), model.arena_bytes());
    for shape in model.shapes() {
        println!("  {shape}: {} bytes", shape.required_bytes());
    }

    // The size is known before any memory is taken. A shape between two buckets is padded.
    let wanted: Vec<String> = arguments.chain(is_own.then(|| "batch=5".into())).collect();
    let mut sizes = Vec::new();
    for text in &wanted {
        let (name, size) = text.split_once('=').ok_or("sizes are given as batch=5")?;
        sizes.push((name, size.parse()?));
    }
    let shape = model.find(&sizes, Bucket::Padded)?;
    println!("{} runs as {shape}, in {} bytes", wanted.join(" "), shape.required_bytes());

    let graph = shape.graph()?;
    for input in graph.inputs().map(|input| graph.value(input)) {
        println!("  input {}: {} {:?}", input.name(), input.dtype(), input.shape());
    }
    let mut arena = shape.plan()?.commit()?;
    let program = shape.program()?;
    for step in program.steps() {
        let memory = arena.step(program, step)?;
        // A server calls the kernel of the operator on this memory.
        println!("  step {}: {}", graph.node(memory.step().node()).op(), step.name());
    }
    Ok(())
}
