//! TensorFlow Lite's planner of today, and ours: values with live ranges, the largest first.

use alloc::collections::BTreeSet;
use alloc::{boxed::Box, format, vec, vec::Vec};
use core::cmp::Reverse;
use core::ops::Range;

use crate::arenas::{Allocation, GapRule, IncrementalArena};
use crate::error::{Error, Result};
use crate::incremental::incremental_graph::{AllocationType, IncrementalGraph, at};
use crate::incremental::{IncrementalMode, IncrementalOptions, share};
use arenaplan::Error as Core;
use arenaplan::arena::ArenaAllocator;
use arenaplan::base::{LiveRange, Step};

/// The end of live ranges that last until the run ends.
const FOREVER: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Ranges {
    options: IncrementalOptions,
    /// For each value: the node at which the value begins.
    births: Vec<Option<u32>>,
    /// For each value: the node after the last node that needs the value or an alias.
    ends: Vec<u32>,
    /// For each value: the node after the last node that needs the value itself.
    own_ends: Vec<u32>,
    /// For each value: the value whose bytes the value has.
    roots: Vec<u32>,
    /// For each node: values that begin with the node.
    begins: Vec<Vec<u32>>,
    /// For each value: the allocation.
    allocations: Vec<Option<Allocation>>,
    /// Values with an allocation in the temporary arena, by begin.
    allocated: BTreeSet<(Step, u32)>,
    /// For each value: whether the value's node range was executed.
    executed: Vec<bool>,
    /// The last node that was executed.
    last_active: usize,
    pub(super) temporary: IncrementalArena,
    pub(super) persistent: IncrementalArena,
}

impl Ranges {
    pub(super) fn new(
        options: IncrementalOptions,
        [temporary, persistent]: [Box<dyn ArenaAllocator>; 2],
    ) -> Self {
        let rule = match options.mode {
            IncrementalMode::LiteRt => GapRule::LiteRt,
            IncrementalMode::Default | IncrementalMode::TfLite2019 => GapRule::Shortest,
        };
        let arena = |allocator| {
            let arena = IncrementalArena::with_allocator(options.arena_alignment, allocator)
                .with_rule(rule);
            match options.mode {
                IncrementalMode::Default => arena.with_amortized_growth(),
                IncrementalMode::LiteRt | IncrementalMode::TfLite2019 => arena,
            }
        };
        Self {
            options,
            births: Vec::new(),
            ends: Vec::new(),
            own_ends: Vec::new(),
            roots: Vec::new(),
            begins: Vec::new(),
            allocations: Vec::new(),
            allocated: BTreeSet::new(),
            executed: Vec::new(),
            last_active: 0,
            temporary: arena(temporary),
            persistent: arena(persistent),
        }
    }

    /// Forgets all places; in mode `default`, persistent values stay unless the graph is another
    /// graph.
    pub(super) fn reset(&mut self, graph: &IncrementalGraph, other_graph: bool) {
        let count = graph.values.len();
        let stays = self.options.mode == IncrementalMode::Default && !other_graph;
        self.temporary.clear();
        self.allocated.clear();
        self.allocations.resize(count, None);
        if !stays {
            self.persistent.clear();
        }
        for (allocation, value) in self.allocations.iter_mut().zip(&graph.values) {
            if !stays || value.kind != AllocationType::PersistentArena {
                *allocation = None;
            }
        }
        self.executed = vec![false; count];
        self.last_active = 0;
    }

    /// Works out when each value is needed, and which share bytes.
    pub(super) fn plan(&mut self, graph: &IncrementalGraph, other_graph: bool) -> Result<()> {
        self.reset(graph, other_graph);
        self.set_births(graph)?;
        match self.options.mode {
            IncrementalMode::LiteRt => self.set_ends_as_litert(graph),
            IncrementalMode::Default | IncrementalMode::TfLite2019 => self.set_ends(graph),
        }
        Ok(())
    }

    fn set_births(&mut self, graph: &IncrementalGraph) -> Result<()> {
        self.births = vec![None; graph.values.len()];
        self.begins = vec![Vec::new(); graph.nodes.len().max(1)];
        for &value in graph.variables.iter().chain(graph.inputs.iter().flatten()) {
            if self.births[at(value)].is_none() {
                self.births[at(value)] = Some(0);
                self.begins[0].push(value);
            }
        }
        for (step, node) in (0_u32..).zip(&graph.nodes) {
            for &value in node.outputs.iter().flatten() {
                if self.births[at(value)].is_none() {
                    self.births[at(value)] = Some(step);
                    self.begins[at(step)].push(value);
                } else if self.options.mode == IncrementalMode::Default {
                    return Err(Error::Core(Core::DuplicateProducer {
                        value: format!("value {value}"),
                        first: "another node or the caller".into(),
                        second: format!("node {step}"),
                    }));
                } else {
                    self.begins[at(step)].push(value);
                }
            }
        }
        Ok(())
    }

    /// Counts readers, on the value whose bytes are read, until there are none left.
    fn set_ends_as_litert(&mut self, graph: &IncrementalGraph) {
        let mut counts = vec![0_u32; graph.values.len()];
        let kept = graph.outputs.iter().chain(&graph.inputs).flatten();
        for &value in kept.chain(&graph.variables) {
            counts[at(value)] += 1;
        }
        let mut references = counts.clone();
        let reads = || graph.nodes.iter().flat_map(|node| &node.inputs).flatten();
        reads().for_each(|&value| references[at(value)] += 1);
        self.roots = if self.options.preserve_all {
            (0_u32..).take(graph.values.len()).collect()
        } else {
            share::as_litert(graph, &references)
        };
        reads().for_each(|&value| counts[at(self.roots[at(value)])] += 1);
        self.ends = vec![FOREVER; graph.values.len()];
        if !self.options.preserve_all {
            for (step, node) in (0_u32..).zip(&graph.nodes) {
                for &value in node.inputs.iter().flatten() {
                    let root = self.roots[at(value)];
                    counts[at(root)] -= 1;
                    if counts[at(root)] == 0 && self.births[at(root)].is_some() {
                        self.ends[at(root)] = step + 1;
                    }
                }
            }
        }
        self.own_ends = vec![FOREVER; graph.values.len()];
    }

    /// Ends the live range of every value after the last reader, or after the producer, and of
    /// every alias class with its last member.
    fn set_ends(&mut self, graph: &IncrementalGraph) {
        let mut ends: Vec<u32> =
            self.births.iter().map(|birth| birth.map_or(0, |birth| birth + 1)).collect();
        for (step, node) in (0_u32..).zip(&graph.nodes) {
            for &value in node.inputs.iter().flatten() {
                ends[at(value)] = ends[at(value)].max(step + 1);
            }
        }
        let kept_inputs = self.options.preserve_inputs.then_some(&graph.inputs);
        let kept = graph.outputs.iter().chain(kept_inputs.into_iter().flatten()).flatten();
        for &value in kept.chain(&graph.variables) {
            ends[at(value)] = FOREVER;
        }
        if self.options.preserve_all {
            ends.fill(FOREVER);
            self.roots = (0_u32..).take(graph.values.len()).collect();
        } else {
            self.roots = share::safely(graph, &self.births, &ends);
        }
        self.ends.clone_from(&ends);
        for (value, &root) in self.roots.iter().enumerate() {
            self.ends[at(root)] = self.ends[at(root)].max(ends[value]);
        }
        self.own_ends = ends;
    }

    /// Places the values that begin with some nodes, and gets memory.
    pub(super) fn execute(&mut self, graph: &IncrementalGraph, nodes: Range<usize>) -> Result<()> {
        let mut order = self.candidates(graph, nodes.clone());
        self.enter(graph, &order, nodes.start);
        order.sort_by_key(|&value| self.rank(graph, value));
        for &value in &order {
            self.place(graph, value)?;
        }
        if let Some(last) = nodes.last() {
            self.last_active = last;
        }
        self.temporary.commit()?;
        self.persistent.commit()?;
        Ok(())
    }

    /// Returns the values of some nodes that need more bytes than allocated.
    fn candidates(&mut self, graph: &IncrementalGraph, nodes: Range<usize>) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        for index in nodes {
            let step = u32::try_from(index).expect("nodes are numbered by 32 bits");
            if let Some(node) = graph.nodes.get(index) {
                for &value in &node.temporaries {
                    self.births[at(value)] = Some(step);
                    let end = if self.options.preserve_all { FOREVER } else { step + 1 };
                    self.ends[at(value)] = end;
                    self.own_ends[at(value)] = end;
                    found.push(value);
                }
            }
            found.extend(self.begins.get(index).into_iter().flatten());
        }
        found.sort_unstable();
        found.dedup();
        for &value in &found {
            self.executed[at(value)] = true;
        }
        found.retain(|&value| {
            let (known, given) = (graph.values[at(value)], self.allocations[at(value)]);
            match known.kind {
                AllocationType::Arena => given.map_or(0, |it| it.span.bytes) < known.bytes,
                AllocationType::PersistentArena => known.bytes > 0,
                _ => false,
            }
        });
        found
    }

    /// Prepares the arena for placing `order` at node `first`.
    fn enter(&mut self, graph: &IncrementalGraph, order: &[u32], first: usize) {
        let step = Step::at(first);
        if self.options.mode == IncrementalMode::LiteRt {
            if first < self.last_active {
                self.temporary.reset();
            } else {
                self.temporary.purge_before(step);
            }
            return;
        }
        // A value that grew is placed anew, around all values that stay.
        for &value in order {
            if graph.values[at(value)].kind == AllocationType::Arena
                && let Some(old) = self.allocations[at(value)].take()
            {
                self.temporary.forget(old);
                self.allocated.remove(&(old.live.start(), value));
            }
        }
        if first < self.last_active {
            let stays = self.allocated.iter().filter_map(|&(_, value)| self.allocations[at(value)]);
            self.temporary.restore(stays.collect::<Vec<_>>());
        } else {
            self.temporary.purge_before(step);
        }
    }

    /// Returns the sort key of values: values that live throughout first, then the largest.
    fn rank(&self, graph: &IncrementalGraph, value: u32) -> (bool, Reverse<u64>, u32, u32) {
        let birth = self.births[at(value)].unwrap_or(0);
        if birth == 0 && self.ends[at(value)] == FOREVER {
            return (false, Reverse(0), 0, value);
        }
        let tie = match self.options.mode {
            // As observed where the original leaves the order to the standard library.
            IncrementalMode::LiteRt => u32::MAX - value,
            IncrementalMode::Default | IncrementalMode::TfLite2019 => value,
        };
        (true, Reverse(graph.values[at(value)].bytes), birth, tie)
    }

    fn place(&mut self, graph: &IncrementalGraph, value: u32) -> Result<()> {
        let known = graph.values[at(value)];
        let mut end = self.ends[at(value)];
        let root = self.roots[at(value)];
        if root != value {
            let owner = graph.values[at(root)];
            if owner.kind == AllocationType::Arena && owner.bytes == known.bytes {
                return Ok(());
            }
            // The bytes to share are gone, or have another size.
            self.roots[at(value)] = value;
            end = self.own_ends[at(value)];
        }
        let birth = self.births[at(value)].unwrap_or(0);
        match known.kind {
            AllocationType::Arena => {
                let live = LiveRange::new(birth, end)?;
                let allocation =
                    self.temporary.allocate(self.options.alignment, known.bytes, live)?;
                self.allocations[at(value)] = Some(allocation);
                self.allocated.insert((live.start(), value));
            }
            AllocationType::PersistentArena => match self.allocations[at(value)] {
                None => {
                    let live = LiveRange::new(0, FOREVER)?;
                    let allocation =
                        self.persistent.allocate(self.options.alignment, known.bytes, live)?;
                    self.allocations[at(value)] = Some(allocation);
                }
                Some(old)
                    if old.span.bytes < known.bytes
                        && self.options.mode == IncrementalMode::Default =>
                {
                    let reason = format!("persistent value {value} cannot grow");
                    return Err(Error::Core(Core::ArenaState { reason }));
                }
                Some(_) => {}
            },
            _ => {}
        }
        Ok(())
    }

    /// Forgets the places of values in the temporary arena that begin after `node`.
    pub(super) fn reset_after(&mut self, graph: &IncrementalGraph, node: usize) {
        let step = Step::at(node);
        while let Some(&(start, value)) = self.allocated.last()
            && start > step
        {
            self.allocated.pop_last();
            if graph.values[at(value)].kind == AllocationType::Arena
                && let Some(old) = self.allocations[at(value)].take()
                && self.options.mode == IncrementalMode::Default
            {
                self.temporary.forget(old);
            }
        }
        for value in self.begins.get(node + 1..=self.last_active).into_iter().flatten().flatten() {
            self.executed[at(*value)] = false;
        }
        if self.options.mode == IncrementalMode::LiteRt {
            if self.last_active > node {
                let alive = |it: &Allocation| it.live.start() <= step && it.live.end() > step;
                let kept = self
                    .allocated
                    .iter()
                    .filter_map(|&(_, value)| self.allocations[at(value)].filter(alive));
                self.temporary.restore(kept.collect::<Vec<_>>());
            } else {
                self.temporary.purge_after(step);
            }
        }
        self.last_active = node;
    }

    /// Returns the allocation for a value's bytes: the value's own, or the root's.
    pub(super) fn allocation(&self, graph: &IncrementalGraph, value: u32) -> Option<Allocation> {
        let kind = graph.values[at(value)].kind;
        if !*self.executed.get(at(value))? {
            return None;
        }
        let root = self.roots[at(value)];
        if root != value {
            let is_shared = kind == AllocationType::Arena
                && graph.values[at(root)].kind == AllocationType::Arena;
            return self.allocations[at(root)].filter(|_| is_shared);
        }
        self.allocations[at(value)]
    }

    /// Returns the value whose bytes `value` has.
    pub(super) fn root(&self, value: u32) -> u32 {
        self.roots[at(value)]
    }
}
