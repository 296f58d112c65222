//! Embedding the planner in a server: plan once, then serve requests from one buffer that
//! the server owns.
//!
//! Run with `cargo run --example serve`.

use arenaplan::{DType, Error, Graph, Input, Node, NodeMemory, Output, Planner, Value, ValueKind};

/// Rounds `values` up to the next multiple of ten, in two nodes: the smallest "model".
fn model() -> Result<Graph, Error> {
    let mut builder = Graph::builder("rounding");
    let array = |name, kind| Value::new(name, kind, DType::UINT8, [16]);
    let request = builder.add_value(array("request", ValueKind::Input)?);
    let raised = builder.add_value(array("raised", ValueKind::Activation)?);
    let response = builder.add_value(array("response", ValueKind::Activation)?);
    builder.add_node(Node::new("raise", "AddNine").reads([request]).writes([raised]));
    builder
        .add_node(Node::new("floor", "FloorTen").reads([raised]).writes([response]).in_place(0, 0));
    builder.add_output(response);
    builder.build()
}

/// Computes one node on the memory that it was lent.
fn compute(op: &str, memory: &mut NodeMemory<'_>) {
    let Output::Exclusive(to) = &mut memory.outputs[0] else { return };
    if let Input::Shared(from) = memory.inputs[0] {
        to.copy_from_slice(from);
    } // Otherwise the input is in the output's bytes already.
    for byte in to.iter_mut() {
        *byte = match op {
            "AddNine" => byte.saturating_add(9),
            _ => *byte - *byte % 10,
        };
    }
}

fn main() -> Result<(), Error> {
    let graph = model()?;
    let plan = Planner::new().plan(&graph)?;
    let needed = usize::try_from(plan.arena_bytes()).expect("a small model");

    // The server's own memory, with room to start at a multiple of the alignment.
    let alignment = usize::try_from(plan.options().alignment).expect("a small alignment");
    let mut memory = vec![0; needed + alignment];
    let start = memory.as_ptr().align_offset(alignment);
    let mut arena = plan.bind(&mut memory[start..])?;

    let request = graph.inputs().next().expect("the model has an input");
    let response = graph.outputs()[0];
    for fill in [1, 10, 42] {
        arena.value_mut(&plan, request)?.fill(fill);
        for node in plan.order() {
            compute(graph.node(node).op(), &mut arena.node(&plan, node)?);
        }
        let answer = arena.value(&plan, response)?[0];
        assert_eq!(answer, fill.div_ceil(10) * 10);
        eprintln!("{fill} -> {answer} in an arena of {needed} bytes");
    }
    Ok(())
}
