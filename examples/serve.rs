//! Embedding the planner in a server: plan once, then serve requests from one buffer that
//! the server owns.
//!
//! Run with `cargo run --example serve`.

use arenaplan::program::StepMemory;
use arenaplan::{DType, Error, Graph, Node, NodeId, Planner, Result, Value, ValueId, ValueKind};

/// `r = x + 1`, `a = r + 1`, `c = 3 a`, `y = c + r`: the smallest "model".
#[allow(clippy::many_single_char_names, reason = "as in the formulas")]
fn model() -> Result<Graph> {
    let mut builder = Graph::builder("sum of products");
    let mut array = |name, kind| -> Result<ValueId> {
        Ok(builder.add_value(Value::new(name, kind, DType::FLOAT32, [16])?))
    };
    let x = array("x", ValueKind::Input)?;
    let [r, a, c, y] = ["r", "a", "c", "y"].map(|name| array(name, ValueKind::Activation));
    let [r, a, c, y] = [r?, a?, c?, y?];
    // Each element of the output needs the same element of the operands.
    let unary = |name, op, from: ValueId, to: ValueId| {
        Node::new(name, op).reads([from]).writes([to]).in_place(0, 0).flow(0, 16, [0])
    };
    builder.add_node(unary("r", "AddOne", x, r));
    builder.add_node(unary("a", "AddOne", r, a));
    builder.add_node(unary("c", "Triple", a, c));
    builder.add_node(Node::new("y", "Add").reads([c, r]).writes([y]).flow(0, 16, [0, 1]));
    builder.add_output(y);
    builder.build()
}

/// Computes one element of what a node makes.
fn element(graph: &Graph, node: NodeId, operand: impl Fn(usize) -> f32) -> f32 {
    match graph.node(node).op() {
        "AddOne" => operand(0) + 1.0,
        "Triple" => operand(0) * 3.0,
        _ => operand(0) + operand(1),
    }
}

/// Computes one step: a node, or several that run as one and pass elements on.
fn compute(graph: &Graph, mut memory: StepMemory<'_>) -> Result<()> {
    let step = memory.step();
    let result = |operands: &[f32]| {
        // What is made so far of this element; a step has at most four nodes here.
        let mut made = [0.0; 4];
        let mut last = 0.0;
        for (at, node) in step.nodes().enumerate() {
            let operand = |position| {
                let value = graph.node(node).input(position);
                let outside = value.and_then(|value| step.input_of(value));
                let inside = step.nodes().position(|it| graph.node(it).output(0) == value);
                outside.map_or_else(|| inside.map_or(0.0, |it| made[it]), |it| operands[it])
            };
            last = element(graph, node, operand);
            made[at] = last;
        }
        last
    };
    match step.inputs().len() {
        1 => memory.elementwise(|operands: [f32; 1]| result(&operands)),
        _ => memory.elementwise(|operands: [f32; 2]| result(&operands)),
    }
}

fn main() -> Result<(), Error> {
    let graph = model()?;
    let plan = Planner::new().plan(&graph)?;
    let program = plan.program(&graph)?; // once; steps allocate nothing from here on
    let needed = usize::try_from(plan.arena_bytes()).expect("a small model");

    // The server's own memory, with room to start at a multiple of the alignment.
    let alignment = usize::try_from(plan.options().alignment).expect("a small alignment");
    let mut memory = vec![0; needed + alignment];
    let start = memory.as_ptr().align_offset(alignment);
    let mut arena = plan.bind(&mut memory[start..])?;

    let request = graph.inputs().next().expect("the model has an input");
    let response = graph.outputs()[0];
    for fill in [0.0_f32, 1.0, 5.0] {
        arena.value_as_mut::<f32>(&plan, request)?.fill(fill);
        for step in program.steps() {
            compute(&graph, arena.step(&program, step)?)?;
        }
        let answer = arena.value_as::<f32>(&plan, response)?;
        let expected = 3.0 * (fill + 2.0) + (fill + 1.0);
        assert!(answer.iter().all(|found| (found - expected).abs() < 1e-6));
        eprintln!("{fill} -> {} in an arena of {needed} bytes", answer[0]);
    }
    Ok(())
}
