//! An independent definition of a right plan: kernels that compute hashes of all they may read run
//! inside the arena, and every value has the bytes that it has with memory of its own.

use arenaplan::plan::InputMemory;
use arenaplan::{Graph, Plan, ValueId, ValueKind};

use super::interpreter;

/// Most bytes of an arena that a run takes.
const MOST_BYTES: u64 = 1 << 20;

/// Runs a plan, and panics if it makes other bytes than the graph.
///
/// Graphs whose nodes rewrite states are left out: the kernels only make outputs.
pub fn run(graph: &Graph, plan: &Plan) {
    let rewrites = |node: &arenaplan::Node| !node.effects().mutates.is_empty();
    let spaces = plan.spaces().iter().map(|space| space.arena_bytes);
    if graph.nodes().iter().any(rewrites)
        || !graph.write_backs().is_empty()
        || spaces.fold(0_u64, u64::saturating_add) > MOST_BYTES
    {
        return;
    }
    let program = plan.program(graph).expect("a checked plan is a program");
    let mut arena = plan.commit().expect("it is small");
    interpreter::run(graph, &program, &mut arena).expect("every step is lent its bytes");
    let options = plan.options();
    let kept = options.preserve_inputs || options.inputs == InputMemory::Caller;
    for (index, value) in graph.values().iter().enumerate() {
        let lasts = match value.kind() {
            ValueKind::State => true,
            ValueKind::Input => kept,
            _ => false,
        };
        if lasts {
            let found = arena.value(plan, ValueId::new(index)).expect("it has a place");
            assert_eq!(found, interpreter::seed(index, value.bytes()), "{} is gone", value.name());
        }
    }
}
