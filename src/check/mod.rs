//! The definition of a valid plan.
//!
//! This module defines correctness, and shares no code with the checked planner. The checker trusts
//! no statement in a plan. The steps, live ranges and operands of a plan are derived from the graph
//! and compared with every field of the plan. Then the checker *replays* the run on symbolic
//! memory.
//!
//! # Symbolic memory
//!
//! A space's memory maps each address to an element of this flat lattice:
//!
//! ```text
//!             unknown              bytes that nobody wrote
//!    /           |          \
//! (v, i)      (w, j)    scratch n   byte i of value v; scratch memory of node n
//! ```
//!
//! Two contents never join, because a run has a single path: a step replaces or keeps an address's
//! content. Beside the memory, a map *H* gives the contents of each value *v*: *H(v)(i) = (v, i)*
//! if *v* was computed, and *(u, j)* if byte *i* of *v* shows byte *j* of *u*. Let *at(v)* be the
//! address of *v* in the plan. The plan *holds v* at a step if for each byte *i* of *v* memory maps
//! *at(v) + i* to *H(v)(i)*.
//!
//! # Transfer rules
//!
//! Before the first step, each input and each state *v* is written: memory maps *at(v) + i* to *(v,
//! i)*. A step with the operands *R* (read), *W* (written), *M* (mutated states) and the workspaces
//! *S* then has four phases, in this order:
//!
//! 1. *Read.* The plan must hold each value in *R*.
//! 2. *Show.* For each output *o* in *W* and each view of *o* that the plan shares, that the step's
//!    effects declare, and whose two values have the declared distance in memory: *H(o)* takes the
//!    contents of the shown bytes, which are not written. All other bytes *i* of *o* are to be
//!    written as *(o, i)*, and so are all bytes of states in *M*. An assignment whose result is at
//!    the state's address writes only the result, and *H(state)* becomes *H(result)*.
//! 3. *Write.* The bytes to be written and the workspaces in *S* must be disjoint. An operand byte
//!    in *R* may be written only by one of these rules:
//!    - *in place*: the output begins where the input begins and is no larger, the effects declare
//!      the pair, and the plan shares it;
//!    - *overlap*: the whole output is written, the plan shares the pair, and the input begins
//!      behind the output by at least the distance implied by the effects;
//!    - *mutation*: the operand is the state that is mutated.
//! 4. *Commit.* Memory takes the contents of step 3; workspaces become *scratch*.
//!
//! Fused nodes are a single step. The step's operands are the values that cross the group's border,
//! and the permissions are derived forwards, from the part of each operand needed for a piece of
//! the result (`unit.rs`). Nodes that run strip by strip are replayed with a tag for each row of a
//! line buffer (`strip_replay.rs`).
//!
//! # Validity
//!
//! A plan is *valid* for a graph if
//!
//! - its steps run each node once, after what the node depends on, and states are read and written
//!   in the graph's order;
//! - names, sizes, operands, live ranges, spaces and options match the graph (`space_costs.rs`,
//!   `caller_memory.rs`);
//! - each placement respects its pin, its alignment and the end of its arena;
//! - each value that replaces an input or a state has the same address;
//! - a step that continues the step before replaces the only result of that step, which nothing else
//!   reads (`continued_steps.rs`);
//! - values share bytes as the plan says, and no two values without shared bytes are in the same
//!   line of `alignment` bytes at the same step (`layout.rs`);
//! - the replay refuses no step, and after the last step holds all outputs, the states and kept
//!   inputs that no value replaces, and the replacing values;
//! - where nodes may run in any order, no two nodes use a byte that either node writes, unless the
//!   graph orders the nodes (`races.rs`);
//! - where several workers run the steps, each step in the timetable starts after all required
//!   steps have ended, and at most one step per worker runs at a time (`worker_times.rs`);
//! - its figures are true, and no claim is provably false (`claims.rs`).
//!
//! The replay runs in `O(n log n)` for `n` operands; each operand counts once per piece.
//!
//! # Claims
//!
//! A plan also makes claims about *all* plans: a lower bound, an optimal size, a complete search.
//! The checker counts the live bytes independently (`bound.rs`); a lower bound up to this count is
//! [`Verified`](Proof::Verified). A bound above the size reached by a compaction is false, and the
//! plan is refused. A bound in between, which a search may have proved, is reported as
//! [`Claimed`](Proof::Claimed).

mod bound;
mod caller_memory;
mod claims;
mod contents;
mod continued_steps;
mod edges;
mod layout;
mod needs;
mod precedence;
mod races;
#[cfg(test)]
mod random;
mod repeats;
mod replay;
mod rigid;
mod shared_arena;
mod space_costs;
mod strip_replay;
mod symbolic_memory;
mod target_rules;
mod unit;
mod verdict;
mod worker_times;

use alloc::{format, string::String, vec, vec::Vec};

use crate::base::{Error, NodeId, Result, ValueId, quoted};
use crate::graph::{Graph, ValueKind};
use crate::plan::{Paging, Plan, ShareRule, WorkspacePlacement, WorkspacePolicy};
use replay::Replay;
use rigid::{Rigid, ScratchNeed};
use strip_replay::LineMemory;
use unit::Unit;
pub use verdict::{Proof, SharedVerdict, SpaceVerdict, Verdict};

/// Facts about a valid plan.
struct Examined {
    verdict: Verdict,
    /// The bodies in the arenas.
    rigids: Vec<Rigid>,
    /// Step count.
    horizon: u32,
}

impl Plan {
    /// Returns the proofs for the plan's claims, if the plan is valid for `graph`.
    ///
    /// Every offset, size and live range of a valid plan is right. A claim about *all* plans, such
    /// as a lower bound, is verified or only claimed: the [`Verdict`] tells.
    ///
    /// # Errors
    ///
    /// - [`Error::PlanMismatch`] if the plan was made for another graph, or contradicts the graph.
    /// - [`Error::PlanMisaligned`], [`Error::PlanOutOfBounds`] if a value or workspace is at an
    ///   impossible offset.
    /// - [`Error::PlanOverlap`] if bytes are overwritten before a later read.
    /// - [`Error::PlanCorrupt`] if the plan contradicts itself, or a claim is provably false.
    /// - [`Error::TargetMismatch`] if the plan's own target cannot run it.
    pub fn check(&self, graph: &Graph) -> Result<Verdict> {
        if self.recomputed.is_some() && self.digest != graph.digest() {
            let scheduled = self.executions(graph)?;
            self.check_repetitions(graph, &scheduled)?;
            return self.examine(&scheduled).map(|found| found.verdict);
        }
        self.examine(graph).map(|found| found.verdict)
    }

    /// Returns the graph with a node for each execution in the schedule.
    fn executions(&self, graph: &Graph) -> Result<Graph> {
        let Some(recomputed) = &self.recomputed else {
            return mismatch("no node runs again".into());
        };
        let slow = recomputed.paging.as_ref().map(Paging::to_space);
        graph
            .with_inner(&recomputed.inner)
            .and_then(|graph| graph.scheduled_with(&recomputed.schedule, slow.as_ref()))
            .map(|scheduled| scheduled.graph)
            .or_else(|error| mismatch(format!("its schedule does not run: {error}")))
    }

    /// Checks that the plan for `executions` computes the same as `graph`: each execution makes the
    /// same content as the node in `graph`.
    ///
    /// [`check`](Self::check) includes this check if called with `graph`.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`] if an execution was dropped, exchanged or moved so that a reader
    /// finds another content, or the extra work differs.
    pub fn check_repetitions(&self, graph: &Graph, executions: &Graph) -> Result<()> {
        let Some(recomputed) = &self.recomputed else { return Ok(()) };
        let inner = graph.with_inner(&recomputed.inner);
        let inner = inner.or_else(|error| mismatch(format!("its inner memory: {error}")))?;
        self.check_contents(&inner, executions)?;
        self.check_extra(graph, &inner)
    }

    /// Checks that the plan was made for `graph`, with a node for each execution in a
    /// [schedule](Self::recomputed). Call this method before using a plan's positions with a graph:
    /// positions for another graph mean nothing.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`] if the digests differ.
    pub fn check_digest(&self, graph: &Graph) -> Result<()> {
        let digest = graph.digest();
        if self.digest == digest {
            return Ok(());
        }
        mismatch(format!(
            "it was made for {}, whose digest begins with {}, and the digest of {} begins with {}",
            quoted(&self.model),
            quoted(self.digest.get(..12).unwrap_or(&self.digest)),
            quoted(graph.name()),
            quoted(&digest[..12]),
        ))
    }

    /// Checks the plan, and returns facts about the plan.
    fn examine(&self, graph: &Graph) -> Result<Examined> {
        self.check_digest(graph)?;
        if self.covers != *graph.covers() {
            return mismatch(format!("the graph has {}, the plan {}", graph.covers(), self.covers));
        }
        if self.value_count() != graph.values().len() {
            return mismatch(format!("the graph has {} values", graph.values().len()));
        }
        let order: Vec<NodeId> = self.order().collect();
        if !graph.is_topological(&order) {
            return mismatch("its order does not run every node after what it depends on".into());
        }
        let units = Unit::all(self, graph)?;
        repeats::check(graph, &units)?;
        check_state_order(graph, &order)?;
        self.check_steps(&units)?;
        self.check_spaces(graph)?;
        let joined = Joined::new(self, graph, &units);
        self.check_placements(graph, &units, &joined)?;
        let smallest = self.check_workspaces(graph, &units)?;
        self.check_claims(graph)?;
        self.check_own_target(graph)?;
        self.check_techniques(graph)?;
        self.check_move_cost(graph, &units)?;
        Replay::new(self, graph).run(&units)?;
        self.check_shares(&units)?;
        self.check_continued(&units)?;
        self.check_write_backs(graph)?;
        self.check_lines(graph, &joined)?;
        self.check_timetable(graph, &units)?;
        let rigids = self.rigids(graph, &units, &joined, &smallest);
        let verdict = self.judge(graph, &units, &rigids)?;
        let horizon = u32::try_from(units.len()).unwrap_or(u32::MAX);
        Ok(Examined { verdict, rigids, horizon })
    }

    /// Checks that the plan's steps have the graph's operands, and that the claimed shares exist
    /// and are permitted.
    fn check_steps(&self, units: &[Unit<'_>]) -> Result<()> {
        for (step, unit) in self.steps.iter().zip(units) {
            let ids = |operand: &Option<ValueId>| operand.map(u32::from);
            let reads = step.inputs.iter().copied().eq(unit.reads.iter().map(ids));
            let writes = step.outputs.iter().copied().eq(unit.writes.iter().map(ids));
            if step.name != unit.name || !reads || !writes {
                return mismatch(format!("node {} has other operands", quoted(unit.name)));
            }
            for share in &step.shares {
                let is_pair =
                    |input, output| is_at(share.input, input) && is_at(share.output, output);
                let effects = &unit.effects;
                let mut in_place = effects.in_place.iter();
                let mut views = effects.views.iter();
                let mut overlaps = unit.overlaps.iter();
                let permitted = match share.rule {
                    ShareRule::Overlap => overlaps.any(|known| is_pair(known.input, known.output)),
                    ShareRule::InPlace => in_place.any(|pair| is_pair(pair.input, pair.output)),
                    ShareRule::View => {
                        views.any(|view| is_pair(view.input, view.output))
                            || in_place
                                .any(|pair| pair.identity && is_pair(pair.input, pair.output))
                    }
                };
                if !permitted {
                    let (input, output) = (share.input, share.output);
                    let name = quoted(unit.name);
                    return mismatch(format!(
                        "node {name} cannot put output {output} into input {input}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that exactly the values in the arena are placed, each at a possible place.
    fn check_placements(&self, graph: &Graph, units: &[Unit<'_>], joined: &Joined) -> Result<()> {
        let live = live_ranges(graph, units, self.keeps_inputs());
        let mut inner = vec![false; graph.values().len()];
        for &node in units.iter().flat_map(|unit| &unit.nodes) {
            for (_, value) in graph.node(node).produces() {
                inner[value.index()] = true;
            }
        }
        // The last node of a step, which may also be inside other steps, puts the value into
        // memory.
        for (_, value) in units.iter().flat_map(Unit::writes) {
            inner[value.index()] = false;
        }
        let mut placements = self.placements.iter();
        for (index, value) in graph.values().iter().enumerate() {
            let never_made = value.kind() == ValueKind::Activation
                && graph.producer(ValueId::new(index)).is_none();
            if !value.is_planned() || inner[index] || never_made {
                continue;
            }
            let name = || format!("value {}", quoted(value.name()));
            let Some(placement) = placements.next() else {
                return mismatch(format!("{} has no place", name()));
            };
            if !is_at(placement.value, index) || placement.name != value.name() {
                let found = quoted(&placement.name);
                return mismatch(format!("where {} should be placed it places {found}", name()));
            }
            if placement.bytes != value.bytes() {
                let (planned, bytes) = (placement.bytes, value.bytes());
                return mismatch(format!("{} has {bytes} bytes, planned were {planned}", name()));
            }
            let in_arena = self.may_be_in(graph, value.space(), placement.space);
            if !self.may_be_at(graph, ValueId::new(index), placement, joined, in_arena) {
                return mismatch(format!("{} is in another space", name()));
            }
            if placement.live != live[index] {
                let [start, end] = live[index];
                return mismatch(format!("{} is live in steps {start}..{end}", name()));
            }
            if value.bytes() > 0 && value.pin().is_some_and(|pin| pin != placement.offset) {
                return mismatch(format!("{} is not where it is pinned", name()));
            }
            // A piece of another value is at its place in the other value.
            let (space, offset, bytes) = (placement.space, placement.offset, placement.bytes);
            let general = if joined.at_distances[index] { 1 } else { self.alignment_in(space) };
            let element = (value.dtype().bits() / 8).clamp(1, 16).min(self.options.alignment);
            let alignment = value.alignment().bytes().max(general);
            self.check_span(name, space, offset, bytes, alignment)?;
            if bytes > 0 && !offset.is_multiple_of(element) {
                return Err(Error::PlanMisaligned { what: name(), offset, alignment: element });
            }
        }
        match placements.next() {
            None => Ok(()),
            Some(extra) => mismatch(format!("it places {} too", quoted(&extra.name))),
        }
    }

    /// Checks that each value that replaces an input or state has the same address.
    fn check_write_backs(&self, graph: &Graph) -> Result<()> {
        for pair in graph.write_backs() {
            let place = |value| self.placement(value).map(|place| (place.space, place.offset));
            if place(pair.value).is_none() || place(pair.value) != place(pair.into) {
                let [value, into] =
                    [pair.value, pair.into].map(|value| quoted(graph.value(value).name()));
                return mismatch(format!("value {value} replaces {into}, and is at another place"));
            }
        }
        Ok(())
    }

    /// Checks that every node's workspaces are placed in an allowed size, and returns each
    /// workspace's smallest size.
    fn check_workspaces(&self, graph: &Graph, units: &[Unit<'_>]) -> Result<Vec<ScratchNeed>> {
        if self.options.workspace == WorkspacePolicy::None {
            return self.check_line_buffers(units);
        }
        let mut smallest = Vec::with_capacity(self.workspaces.len());
        let mut placed = self.workspaces.iter();
        let mut staged = vec![None; graph.nodes().len()];
        let mut ends = vec![false; graph.nodes().len()];
        for unit in units {
            ends[unit.last().index()] = true;
        }
        for unit in units.iter().filter(|unit| !unit.overlaps.is_empty()) {
            let Some(staging) = &graph.node(unit.last()).effects().staging else {
                let name = quoted(unit.name);
                return mismatch(format!("node {name} has no scratch memory to overlap with"));
            };
            // A member that is the last node of another step has its own scratch memory there.
            let inner = unit.nodes.iter().filter(|node| !ends[node.index()]);
            inner.for_each(|node| staged[node.index()] = Some(&[][..]));
            staged[unit.last().index()] = Some(staging);
        }
        let without = repeats::without_scratch(graph, units);
        for (index, node) in graph.nodes().iter().enumerate() {
            let own = if without[index] { &[][..] } else { &node.effects().workspaces };
            let workspaces = staged[index].unwrap_or(own);
            for (slot, workspace) in workspaces.iter().enumerate() {
                let what = || format!("workspace {slot} of node {}", quoted(node.name()));
                let Some(found) = placed.next() else {
                    return mismatch(format!("{} has no place", what()));
                };
                if !is_at(found.node, index) || !is_at(found.slot, slot) {
                    return mismatch(format!("{} is not where it should be listed", what()));
                }
                let choice =
                    usize::try_from(found.choice).ok().and_then(|id| workspace.choices.get(id));
                if choice.is_none_or(|choice| choice.bytes != found.bytes) {
                    return mismatch(format!("{} has no such size", what()));
                }
                let own = workspace.alignment.bytes();
                self.check_scratch(what, found, own)?;
                let alignment = own.max(self.options.alignment);
                let least = workspace.choices.iter().map(|choice| choice.bytes).min();
                smallest.push(ScratchNeed { bytes: least.unwrap_or(0), alignment });
            }
        }
        match placed.next() {
            None => Ok(smallest),
            Some(extra) => mismatch(format!("node {} has no such workspace", extra.node)),
        }
    }

    /// Checks that exactly the steps in strips have placed line buffers, and returns the buffers'
    /// sizes.
    ///
    /// Line buffers hold rows of values, so plans without scratch memory have line buffers, too: as
    /// the last node's first workspace, whatever the node declares.
    fn check_line_buffers(&self, units: &[Unit<'_>]) -> Result<Vec<ScratchNeed>> {
        let mut in_strips: Vec<_> = units.iter().filter(|unit| unit.lines.bytes > 0).collect();
        in_strips.sort_unstable_by_key(|unit| unit.last());
        let mut placed = self.workspaces.iter();
        let mut sizes = Vec::with_capacity(in_strips.len());
        for unit in in_strips {
            let LineMemory { bytes, alignment } = unit.lines;
            let what = || format!("the memory of line buffers of node {}", quoted(unit.name));
            let Some(found) = placed.next() else {
                return mismatch(format!("{} has no place", what()));
            };
            if !is_at(found.node, unit.last().index()) || found.slot != 0 {
                return mismatch(format!("{} is not where it should be listed", what()));
            }
            if found.choice != 0 || found.bytes != bytes {
                return mismatch(format!("{} has {bytes} bytes", what()));
            }
            self.check_scratch(what, found, alignment)?;
            sizes.push(ScratchNeed { bytes, alignment: alignment.max(self.options.alignment) });
        }
        match placed.next() {
            None => Ok(sizes),
            Some(extra) => mismatch(format!("node {} has no such workspace", extra.node)),
        }
    }

    /// Checks that scratch memory is in an arena, at a multiple of an alignment.
    fn check_scratch(
        &self,
        what: impl Fn() -> String,
        found: &WorkspacePlacement,
        alignment: u64,
    ) -> Result<()> {
        if usize::try_from(found.space).is_ok_and(|it| it >= self.arenas().len()) {
            return mismatch(format!("{} is in no arena", what()));
        }
        let in_space = alignment.max(self.alignment_in(found.space));
        self.check_span(what, found.space, found.offset, found.bytes, in_space)
    }

    /// Returns the divisor of all offsets in `space`, except for pieces.
    fn alignment_in(&self, space: u32) -> u64 {
        let space = usize::try_from(space).ok().and_then(|space| self.spaces.get(space));
        self.options.alignment.max(space.map_or(1, |space| space.alignment))
    }

    /// Checks a span against alignment and arena.
    fn check_span(
        &self,
        what: impl Fn() -> String,
        space: u32,
        offset: u64,
        bytes: u64,
        alignment: u64,
    ) -> Result<()> {
        let Some(space) = usize::try_from(space).ok().and_then(|space| self.spaces.get(space))
        else {
            return mismatch(format!("{} is in a space that is not there", what()));
        };
        if !offset.is_multiple_of(alignment) {
            return Err(Error::PlanMisaligned { what: what(), offset, alignment });
        }
        let end = u128::from(offset) + u128::from(bytes);
        if end > u128::from(space.arena_bytes) {
            let arena = space.arena_bytes;
            return Err(Error::PlanOutOfBounds { what: what(), start: offset, end, arena });
        }
        Ok(())
    }
}

/// Checks that each reader and each writer of a state finds the content left by the graph's own
/// order.
fn check_state_order(graph: &Graph, order: &[NodeId]) -> Result<()> {
    let mut position = vec![0; order.len()];
    for (step, node) in order.iter().enumerate() {
        position[node.index()] = step;
    }
    let mut pairs = graph.state_order().into_iter();
    match pairs.find(|(first, second)| position[first.index()] > position[second.index()]) {
        None => Ok(()),
        Some((first, second)) => {
            let [first, second] = [first, second].map(|id| quoted(graph.node(id).name()));
            mismatch(format!("node {second} runs before {first}, and they share a state"))
        }
    }
}

/// Returns when each value is needed, first step and first step after the last.
fn live_ranges(graph: &Graph, units: &[Unit<'_>], keeps_inputs: bool) -> Vec<[u32; 2]> {
    let end = u32::try_from(units.len()).unwrap_or(u32::MAX).max(1);
    let mut live: Vec<[u32; 2]> = vec![[0, 1]; graph.values().len()];
    for (step, unit) in (0_u32..).zip(units) {
        for (_, value) in unit.reads() {
            live[value.index()][1] = live[value.index()][1].max(step + 1);
        }
        for (_, value) in unit.writes() {
            live[value.index()] = [step, step + 1];
        }
    }
    let replaced = replaced(graph);
    for (index, value) in graph.values().iter().enumerate() {
        let kept = match value.kind() {
            _ if replaced[index] => false,
            ValueKind::State => true,
            ValueKind::Input => keeps_inputs,
            ValueKind::Activation | ValueKind::Constant | ValueKind::Inner => false,
        };
        if kept {
            live[index][1] = end;
        }
    }
    let written_back = graph.write_backs().iter().map(|pair| pair.value);
    for output in graph.outputs().iter().copied().chain(written_back) {
        live[output.index()][1] = end;
    }
    live
}

/// Returns, by value, whether another value replaces the value in place.
fn replaced(graph: &Graph) -> Vec<bool> {
    let mut replaced = vec![false; graph.values().len()];
    graph.write_backs().iter().for_each(|pair| replaced[pair.into.index()] = true);
    replaced
}

/// The pairs of values that share bytes in a plan.
struct Joined {
    /// By value: the representative of all joined values.
    root: Vec<usize>,
    /// By value: whether the joined values include pieces at a distance, which need not all be
    /// aligned.
    at_distances: Vec<bool>,
}

impl Joined {
    fn new(plan: &Plan, graph: &Graph, units: &[Unit<'_>]) -> Self {
        let mut joined_to: Vec<usize> = (0..graph.values().len()).collect();
        let find = |joined_to: &mut Vec<usize>, mut value: usize| {
            while joined_to[value] != value {
                joined_to[value] = joined_to[joined_to[value]];
                value = joined_to[value];
            }
            value
        };
        let mut pieces = Vec::new();
        for (step, unit) in plan.steps.iter().zip(units) {
            let at = |operands: &[Option<ValueId>], position: u32| {
                operands.get(usize::try_from(position).ok()?).copied().flatten()
            };
            for share in &step.shares {
                let (Some(input), Some(output)) =
                    (at(&unit.reads, share.input), at(&unit.writes, share.output))
                else {
                    continue;
                };
                let mut views = unit.effects.views.iter();
                let is_piece = views.any(|view| {
                    is_at(share.input, view.input)
                        && is_at(share.output, view.output)
                        && view.offset > 0
                });
                if is_piece && share.rule == ShareRule::View {
                    pieces.push(input.index());
                }
                let roots = [input, output].map(|value| find(&mut joined_to, value.index()));
                joined_to[roots[0]] = roots[1];
            }
        }
        // An assignment's result may be at the state's address without a share.
        for (state, result) in units.iter().filter_map(|unit| plan.stored(graph, unit)) {
            let roots = [state, result].map(|value| find(&mut joined_to, value.index()));
            joined_to[roots[0]] = roots[1];
        }
        // A value is at the address of the replaced input or state without a share.
        for pair in graph.write_backs() {
            let roots = [pair.into, pair.value].map(|value| find(&mut joined_to, value.index()));
            joined_to[roots[0]] = roots[1];
        }
        let root: Vec<_> = (0..joined_to.len()).map(|value| find(&mut joined_to, value)).collect();
        let mut at_distances = vec![false; root.len()];
        for piece in pieces {
            at_distances[root[piece]] = true;
        }
        let at_distances = root.iter().map(|&root| at_distances[root]).collect();
        Self { root, at_distances }
    }
}

/// Returns whether a plan's `position` is `expected`.
fn is_at(position: u32, expected: usize) -> bool {
    usize::try_from(position).is_ok_and(|position| position == expected)
}

fn mismatch<T>(reason: String) -> Result<T> {
    Err(Error::PlanMismatch { reason })
}
