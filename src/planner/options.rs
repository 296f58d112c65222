//! Resolves options: the target's defaults, and refusals.

use alloc::{format, string::String, vec::Vec};

use super::Planner;
use super::context::Context;
use crate::base::{Error, Result, quoted};
use crate::graph::{Graph, StateConflict, ValueKind, unordered};
use crate::plan::{InputMemory, OutputMemory, Provider, Technique, Techniques, WorkspacePolicy};

impl<'a> Planner<'a> {
    /// Returns the context for a plan of `graph`, with every option set.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for options that contradict each other, the graph or the target.
    pub(super) fn context(&self, graph: &Graph) -> Result<Context<'a>> {
        let context = self.honored()?;
        if graph.spaces().len() > 1 && !self.target.several_spaces() {
            let target = quoted(self.target.name());
            let reason = format!("target {target} has one arena, and the graph has several");
            return Err(Error::InvalidOption { option: "spaces", reason });
        }
        check_memories(&context, graph)?;
        check_boundary(&context, graph)?;
        if context.options.parallel_safe {
            check_states(graph)?;
        }
        if context.node_times.is_some_and(|times| times.len() != graph.nodes().len()) {
            let reason = format!("the graph has {} nodes", graph.nodes().len());
            return Err(Error::InvalidOption { option: "node_times", reason });
        }
        Ok(context)
    }

    /// Returns the context with options that the target honors.
    pub(super) fn honored(&self) -> Result<Context<'a>> {
        let options = self.options();
        let target = self.target;
        let refuse = |option, reason: String| {
            let reason = format!("target {} {reason}", quoted(target.name()));
            Err(Error::InvalidOption { option, reason })
        };
        let others = options.optimize.minus(target.techniques());
        if others != Techniques::NONE {
            let honored = target.techniques();
            return refuse("optimize", format!("does not honor {others}; it honors {honored}"));
        }
        if !options.alignment.is_multiple_of(target.offset_unit()) {
            let (unit, given) = (target.offset_unit(), options.alignment);
            return refuse(
                "alignment",
                format!("counts in {unit} bytes; the alignment must be a multiple, not {given}"),
            );
        }
        if options.workspace == WorkspacePolicy::Auto && target.scratch() == Provider::Runner {
            return refuse("workspace", "places scratch memory by itself".into());
        }
        let callers = [
            ("inputs", options.inputs == InputMemory::Caller),
            ("outputs", options.outputs == OutputMemory::Caller),
        ];
        let brought = callers.into_iter().find(|&(_, asked)| asked && !target.caller_memory());
        if let Some((option, _)) = brought {
            return refuse(option, "has them in its arena".into());
        }
        let spaces = self.memories.map_or(1, |memories| memories.spaces().len());
        if spaces > 1 && !target.several_spaces() {
            return refuse("spaces", "has one arena".into());
        }
        if options.workers > 1 && !target.techniques().contains(Technique::Order) {
            return refuse("workers", "runs nodes one at a time, in the graph's order".into());
        }
        if options.workers == 0 {
            let reason = "some worker must run the steps".into();
            return Err(Error::InvalidOption { option: "workers", reason });
        }
        if options.workers > 1 && options.parallel_safe {
            let reason = "a plan that is safe in every order has no timetable".into();
            return Err(Error::InvalidOption { option: "workers", reason });
        }
        let Self { memories, budget, room, overlapping, node_times, costs, strips, .. } = *self;
        Ok(Context {
            target,
            options,
            memories,
            budget,
            room,
            overlapping,
            node_times,
            costs,
            strips,
        })
    }
}

/// Refuses a memory with a larger capacity or a smaller alignment than the graph states for the
/// space of that name.
fn check_memories(context: &Context<'_>, graph: &Graph) -> Result<()> {
    let Some(memories) = context.memories else { return Ok(()) };
    for memory in memories.spaces() {
        let declared = graph.spaces().iter().find(|it| it.name() == memory.name());
        let Some(declared) = declared else { continue };
        let is_larger = declared
            .capacity()
            .is_some_and(|limit| memory.capacity().is_none_or(|capacity| capacity > limit));
        if is_larger || memory.alignment() < declared.alignment() {
            let limit = declared.capacity().map_or("any number of".into(), |it| format!("{it}"));
            let reason = format!(
                "the graph says of memory {} that it holds {limit} bytes, aligned to {}",
                quoted(memory.name()),
                declared.alignment().bytes()
            );
            return Err(Error::InvalidOption { option: "spaces", reason });
        }
    }
    Ok(())
}

/// Refuses inputs and outputs that cannot be in the memory that the options ask for.
fn check_boundary(context: &Context<'_>, graph: &Graph) -> Result<()> {
    let refuse = |option, reason: String| Err(Error::InvalidOption { option, reason });
    if context.options.inputs == InputMemory::Reuse && context.options.preserve_inputs {
        return refuse("inputs", "they cannot be both reused and preserved".into());
    }
    let inputs = graph.values().iter().filter(|value| value.kind() == ValueKind::Input);
    let outputs = graph.outputs().iter().map(|&output| graph.value(output));
    let inputs = inputs.filter(|_| context.options.inputs == InputMemory::Caller);
    let outputs = outputs.filter(|_| context.options.outputs == OutputMemory::Caller);
    let mut brought = inputs.map(|it| ("inputs", it)).chain(outputs.map(|it| ("outputs", it)));
    let Some((option, _)) = brought.clone().next() else { return Ok(()) };
    if context.memories.is_some() {
        return refuse(option, "the spaces are for values that the caller does not bring".into());
    }
    match brought.find(|(_, it)| it.pin().is_some() || it.space().index() > 0) {
        None => Ok(()),
        Some((option, value)) => {
            let name = quoted(value.name());
            refuse(option, format!("the graph has a place for value {name} in its own spaces"))
        }
    }
}

/// Refuses a graph that permits the use of a state both before and after a change: no plan is right
/// in both orders.
fn check_states(graph: &Graph) -> Result<()> {
    let mut conflicts = graph.state_conflicts(|node, position| {
        let effects = node.effects();
        effects.mutates.contains(&position) || !effects.ignores.contains(&position)
    });
    conflicts.retain(|conflict| graph.value(conflict.state).bytes() > 0);
    let pairs: Vec<_> = conflicts.iter().map(|it| (it.first, it.second)).collect();
    let Some(at) = unordered(graph, &pairs) else { return Ok(()) };
    let StateConflict { state, first, second } = conflicts[at];
    let does = |id| {
        let node = graph.node(id);
        let changes = |&position: &usize| node.inputs()[position] == Some(state);
        let verb = if node.effects().mutates.iter().any(changes) { "changes" } else { "reads" };
        format!("node {} {verb}", quoted(node.name()))
    };
    let (first, second, state) = (does(first), does(second), quoted(graph.value(state).name()));
    let reason = format!("{first} state {state}, {second} it, and the graph permits either order");
    Err(Error::InvalidOption { option: "parallel_safe", reason })
}
