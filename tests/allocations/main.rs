//! How often lending allocates: never.
//!
//! A binary of its own, for it counts what its allocator does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "an allocator is an unsafe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;

use arenaplan::arena::{Input, Output};
use arenaplan::model::Bucket;
use arenaplan::program::Operands;
use arenaplan::{
    Arena, ArenaPool, DType, Graph, Model, Node, NodeId, Planner, Program, Result, Value, ValueId,
    ValueKind,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of the system, counting.
struct Counting;

// SAFETY: every call goes to `System` with the arguments as they are, and `System` is a
// `GlobalAlloc`; counting allocates nothing, for the counter is made without initialization.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller promises what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns how often `run` allocates.
fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    run();
    ALLOCATIONS.with(Cell::get) - before
}

/// A chain of 100 residual layers: `a = x + 1`, `y = a + x`, the second in place.
fn network() -> (Graph, [ValueId; 2]) {
    let mut builder = Graph::builder("residual");
    let value = |name: &str, kind| Value::new(name, kind, DType::FLOAT32, [16]).unwrap();
    let first = builder.add_value(value("x", ValueKind::Input));
    let mut x = first;
    for layer in 0..100 {
        let names = [format!("a{layer}"), format!("y{layer}")];
        let [a, y] =
            [0, 1].map(|at: usize| builder.add_value(value(&names[at], ValueKind::Activation)));
        builder.add_node(Node::new(&*names[0], "AddOne").reads([x]).writes([a]));
        let add = Node::new(&*names[1], "Add").reads([a, x]).writes([y]);
        builder.add_node(add.in_place(0, 0));
        x = y;
    }
    builder.add_output(x);
    (builder.build().unwrap(), [first, x])
}

/// Runs the network in each way that there is to lend.
fn run(program: &Program, arena: &mut Arena<'_>) -> Result<()> {
    for step in program.steps() {
        let mut memory = arena.step(program, step)?;
        if step.inputs().len() == 1 {
            memory.elementwise(|[x]: [f32; 1]| x + 1.0)?;
            let Operands { inputs: [x], outputs: [y], workspaces: [] } = memory.split()?;
            black_box((x, y));
            black_box((memory.input_as::<f32>(0)?.len(), memory.output_as::<f32>(0)?.len()));
        } else {
            memory.elementwise(|[a, x]: [f32; 2]| a + x)?;
            let Operands { inputs: [a, x], outputs: [y], workspaces: [] } =
                memory.split_as::<f32, 2, 1, 0>()?;
            black_box((a, x, y));
        }
        let mut inputs = [const { Input::Absent }; 4];
        let mut outputs = [const { Output::Absent }; 4];
        memory.lend(&mut inputs, &mut outputs, &mut [])?;
        black_box((inputs, outputs));
    }
    Ok(())
}

#[test]
fn stepping_through_a_program_allocates_nothing() {
    let (graph, [x, y]) = network();
    let plan = Planner::new().plan(&graph).unwrap();
    let program = plan.program(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    for start in [1.0, 0.0] {
        let counted = allocations(|| {
            arena.value_as_mut::<f32>(&plan, x).unwrap().fill(start);
            run(&program, &mut arena).unwrap();
        });
        assert_eq!(counted, 0);
        // The `y` of the last step is twice that of the one before, plus 1.
        let mut expected = start;
        (0..100).for_each(|_| expected = (expected + 1.0) + expected);
        assert_eq!(arena.value_as::<f32>(&plan, y).unwrap(), [expected; 16]);
    }
}

#[test]
fn a_shape_that_was_used_before_is_found_without_an_allocation() {
    let small = |batch: u64| {
        let mut builder = Graph::builder("small");
        let x = Value::new("x", ValueKind::Input, DType::UINT8, [batch, 64]).unwrap();
        let x = builder.add_value(x);
        builder.add_output(x);
        builder.build().unwrap()
    };
    let mut builder = Model::builder("small", ["batch", "other"]);
    for batch in [1, 2, 8] {
        let graph = small(batch);
        builder.add(&[batch, 1], &graph, &Planner::new().plan(&graph).unwrap()).unwrap();
    }
    let model = builder.build().unwrap();
    let counted = allocations(|| {
        assert_eq!(model.required_bytes(&[("batch", 8)]).unwrap(), 512);
        let padded = model.find(&[("batch", 3)], Bucket::Padded).unwrap();
        let by_input = model.find_inputs(&[("x", &[5, 64])], Bucket::Padded).unwrap();
        assert_eq!((padded.required_bytes(), by_input.index()), (512, 2));
    });
    assert_eq!(counted, 0, "neither graph nor plan is made");
    let first = allocations(|| drop(black_box(model.program(&[("batch", 8)], Bucket::Exact))));
    let again = allocations(|| drop(black_box(model.program(&[("batch", 8)], Bucket::Exact))));
    assert!(first > 0 && again == 0, "{first} allocations, then {again}");
}

#[test]
fn the_counter_counts() {
    let (graph, _) = network();
    let plan = Planner::new().plan(&graph).unwrap();
    let mut arena = plan.commit().unwrap();
    let counted = allocations(|| drop(black_box(arena.node(&plan, NodeId::new(0)).unwrap())));
    assert!(counted > 0, "`Arena::node` works out everything anew");
}

#[test]
fn a_warm_pool_allocates_nothing() {
    let (graph, [x, y]) = network();
    let program = Arc::new(Planner::new().plan(&graph).unwrap().program(&graph).unwrap());
    let pool = ArenaPool::builder().cap(1 << 20).build().unwrap();
    let request = || {
        let mut lease = pool.wait(&program, None).unwrap();
        lease.value_as_mut::<f32>(x).unwrap().fill(0.0);
        lease
            .run(|step, memory| match step.inputs().len() {
                1 => memory.elementwise(|[x]: [f32; 1]| x + 1.0),
                _ => memory.elementwise(|[a, x]: [f32; 2]| a + x),
            })
            .unwrap();
        black_box(lease.value_as::<f32>(y).unwrap());
    };
    assert!(allocations(request) > 0, "the first has no memory yet");
    assert_eq!(allocations(|| (0..100).for_each(|_| request())), 0);
}
