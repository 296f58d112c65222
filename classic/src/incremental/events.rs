//! TensorFlow Lite's planner of 2019: a queue of allocations and deallocations.

use alloc::{boxed::Box, string::ToString as _, vec, vec::Vec};
use core::ops::Range;

use crate::arenas::{SimpleArena, Span};
use crate::error::{Error, Result};
use crate::incremental::IncrementalOptions;
use crate::incremental::incremental_graph::{AllocationType, IncrementalGraph, at};
use arenaplan::Error as Core;
use arenaplan::arena::ArenaAllocator;

/// An entry in the queue.
#[derive(Clone, Copy, Debug)]
struct Event {
    node: usize,
    value: u32,
    begins: bool,
}

#[derive(Debug)]
pub(super) struct Events {
    options: IncrementalOptions,
    queue: Vec<Event>,
    /// For each node: the first event.
    first_event: Vec<usize>,
    pub(super) spans: Vec<Option<Span>>,
    pub(super) temporary: SimpleArena,
    pub(super) persistent: SimpleArena,
}

impl Events {
    pub(super) fn new(
        options: IncrementalOptions,
        [temporary, persistent]: [Box<dyn ArenaAllocator>; 2],
    ) -> Self {
        let alignment = options.arena_alignment;
        Self {
            options,
            queue: Vec::new(),
            first_event: Vec::new(),
            spans: Vec::new(),
            temporary: SimpleArena::with_allocator(alignment, temporary),
            persistent: SimpleArena::with_allocator(alignment, persistent),
        }
    }

    /// Forgets where everything is.
    pub(super) fn reset(&mut self, graph: &IncrementalGraph) {
        self.temporary.clear();
        self.persistent.clear();
        self.spans = vec![None; graph.values.len()];
    }

    /// Queues up when each value begins and ends.
    pub(super) fn plan(&mut self, graph: &IncrementalGraph) -> Result<()> {
        self.reset(graph);
        let mut counts = vec![0_u32; graph.values.len()];
        let mut begun = vec![false; graph.values.len()];
        self.queue.clear();
        let kept_inputs = self.options.preserve_inputs.then_some(&graph.inputs);
        let kept = graph.outputs.iter().chain(kept_inputs.into_iter().flatten()).flatten();
        for &value in kept.chain(&graph.variables) {
            counts[at(value)] += 1;
        }
        for &value in graph.inputs.iter().flatten().chain(&graph.variables) {
            self.begin(0, value, &mut begun);
        }
        for &value in graph.nodes.iter().flat_map(|node| &node.inputs).flatten() {
            counts[at(value)] += 1;
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            if node.outputs.contains(&None) {
                let reason = "mode tflite-2019 has no optional outputs".into();
                return Err(Error::Core(Core::InvalidEffect { node: index.to_string(), reason }));
            }
            for &value in node.outputs.iter().flatten() {
                self.begin(index, value, &mut begun);
            }
            if self.options.preserve_all {
                continue;
            }
            for &value in node.inputs.iter().flatten() {
                counts[at(value)] -= 1;
                if counts[at(value)] == 0 && begun[at(value)] {
                    self.queue.push(Event { node: index, value, begins: false });
                }
            }
        }
        self.first_event = (0..=graph.nodes.len())
            .map(|node| self.queue.partition_point(|event| event.node < node))
            .collect();
        Ok(())
    }

    fn begin(&mut self, node: usize, value: u32, begun: &mut [bool]) {
        if !core::mem::replace(&mut begun[at(value)], true) {
            self.queue.push(Event { node, value, begins: true });
        }
    }

    /// Replays the events of some nodes, and gets memory.
    ///
    /// A node's temporaries begin with the node's first event. After a node without events no
    /// temporaries begin any more: the original counts nodes by events.
    pub(super) fn execute(&mut self, graph: &IncrementalGraph, nodes: Range<usize>) -> Result<()> {
        let mut active = nodes.start;
        let start = self.first_event.get(nodes.start).copied().unwrap_or(self.queue.len());
        for position in start..self.queue.len() {
            let event = self.queue[position];
            if event.node >= nodes.end {
                break;
            }
            if event.node == active {
                if active > nodes.start {
                    self.free_temporaries(graph, active - 1)?;
                }
                if let Some(node) = graph.nodes.get(active) {
                    for &value in &node.temporaries {
                        self.allocate(graph, value)?;
                    }
                }
                active += 1;
            }
            if event.begins {
                self.allocate(graph, event.value)?;
            } else {
                self.free(graph, event.value)?;
            }
        }
        if active > nodes.start {
            self.free_temporaries(graph, active - 1)?;
        }
        self.temporary.commit()?;
        self.persistent.commit()?;
        Ok(())
    }

    fn allocate(&mut self, graph: &IncrementalGraph, value: u32) -> Result<()> {
        let known = graph.values[at(value)];
        let arena = match known.kind {
            AllocationType::Arena => &mut self.temporary,
            AllocationType::PersistentArena => &mut self.persistent,
            _ => return Ok(()),
        };
        self.spans[at(value)] = Some(arena.allocate(self.options.alignment, known.bytes)?);
        Ok(())
    }

    fn free(&mut self, graph: &IncrementalGraph, value: u32) -> Result<()> {
        match self.spans[at(value)] {
            Some(span) if graph.values[at(value)].kind == AllocationType::Arena => {
                self.temporary.deallocate(span)
            }
            _ => Ok(()),
        }
    }

    fn free_temporaries(&mut self, graph: &IncrementalGraph, node: usize) -> Result<()> {
        for &value in graph.nodes.get(node).into_iter().flat_map(|node| &node.temporaries) {
            self.free(graph, value)?;
        }
        Ok(())
    }
}
