//! A storage plan as an arena plan: the blocks one behind the other.

use alloc::{format, vec, vec::Vec};

use crate::error::{Error, Result};
use crate::sharing::pool::at;
use crate::sharing::{StoragePlan, TakenFrom};
use arenaplan::Error as Core;
use arenaplan::base::{Alignment, LiveRange, NodeId, SpaceId, ValueId, quoted};
use arenaplan::graph::{Graph, Node, ValueKind};
use arenaplan::liveness::Lifetimes;
use arenaplan::plan::{Offsets, Plan, Share, ShareRule};

impl StoragePlan {
    /// Returns the arena plan in which every block has a separate offset, and values without a
    /// block follow behind the blocks.
    ///
    /// The plan is [checked](Plan::check), can be committed and run, and its size can be compared
    /// with an offset plan. A block is as large as its largest value, for every size rule.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidAlignment`](arenaplan::Error::InvalidAlignment) if `alignment` is not a power of two.
    /// - [`Error::SizeOverflow`](arenaplan::Error::SizeOverflow) if the blocks together exceed a
    ///   machine's address space.
    /// - [`Error::InvalidBuffer`](arenaplan::Error::InvalidBuffer) if a block has values in
    ///   different spaces.
    /// - As [`Plan::check`].
    pub fn to_plan(&self, graph: &Graph, alignment: u64) -> Result<Plan> {
        let unit = Alignment::new(alignment)?;
        let offsets = self.offsets(graph, unit)?;
        let lifetimes = Lifetimes::new(graph, graph.order(), false);
        let places = offsets.iter().enumerate();
        let places = places.map(|(index, &at)| Some((at, lifetimes.of(ValueId::new(index))?)));
        let plan = Plan::from_offsets(
            graph,
            Offsets {
                alignment: unit,
                parallel_safe: self.parallel_safe,
                values: places.collect(),
                shares: graph.order().iter().map(|&id| self.shares(graph, id)).collect(),
                lower_bounds: self.loads(graph, &lifetimes, unit),
            },
        )?;
        plan.check(graph)?;
        Ok(plan)
    }

    /// Returns the offset of every value in its space.
    fn offsets(&self, graph: &Graph, unit: Alignment) -> Result<Vec<u64>> {
        let mut bytes = vec![0_u64; self.blocks.len()];
        let mut strictest = vec![unit; self.blocks.len()];
        let mut spaces: Vec<Option<SpaceId>> = vec![None; self.blocks.len()];
        for (storage, value) in self.storages.iter().zip(graph.values()) {
            let Some(block) = storage.block().map(at).filter(|_| value.is_planned()) else {
                continue;
            };
            if *spaces[block].get_or_insert(value.space()) != value.space() {
                let reason = format!("value {} is in another space", quoted(value.name()));
                return Err(Error::Core(Core::InvalidBuffer { buffer: block, reason }));
            }
            bytes[block] = bytes[block].max(value.bytes());
            strictest[block] = strictest[block].max(value.alignment());
        }
        let mut ends = vec![0_u64; graph.spaces().len()];
        let mut append = |space: SpaceId, bytes: u64, alignment: Alignment| {
            let end = &mut ends[space.index()];
            let alignment = alignment.max(unit).max(graph.space(space).alignment());
            let overflow =
                || Error::Core(Core::SizeOverflow { what: "all blocks together".into() });
            let start = alignment.round_up(*end).ok_or_else(overflow)?;
            *end = start.checked_add(rounded(unit, bytes)?).ok_or_else(overflow)?;
            Ok::<_, Error>(start)
        };
        let mut block_offsets = vec![0; self.blocks.len()];
        for (block, offset) in block_offsets.iter_mut().enumerate() {
            *offset =
                append(spaces[block].unwrap_or(SpaceId::new(0)), bytes[block], strictest[block])?;
        }
        self.storages
            .iter()
            .zip(graph.values())
            .map(|(storage, value)| match storage.block() {
                Some(block) => Ok(block_offsets[at(block)]),
                None if value.is_planned() => {
                    append(value.space(), value.bytes(), value.alignment())
                }
                None => Ok(0),
            })
            .collect()
    }

    /// Returns, per space, the most bytes that are live at one step, where a value that
    /// took over another counts once.
    fn loads(&self, graph: &Graph, lifetimes: &Lifetimes, unit: Alignment) -> Vec<u64> {
        // Values that share bytes by taking over form a run, kept at the first value.
        let mut run: Vec<usize> = (0..graph.values().len()).collect();
        let mut runs: Vec<Option<(u64, LiveRange)>> = graph
            .values()
            .iter()
            .enumerate()
            .map(|(index, value)| {
                let bytes = unit.round_up(value.bytes()).unwrap_or(0);
                Some((bytes, lifetimes.of(ValueId::new(index))?))
            })
            .collect();
        for &id in graph.order() {
            let node = graph.node(id);
            for (_, output) in node.produces() {
                let Some((_, input)) = self.taken(node, output) else { continue };
                let first = run[input.index()];
                run[output.index()] = first;
                let member = runs[output.index()].take();
                if let (Some((bytes, live)), Some(known)) = (member, &mut runs[first]) {
                    *known = (known.0.min(bytes), known.1.hull(live));
                }
            }
        }
        // A value in a state's block takes no more than the state, which is there throughout.
        for value in &self.tied {
            runs[value.index()] = None;
        }
        let horizon = lifetimes.horizon().index();
        let mut changes = vec![vec![0_i128; horizon + 1]; graph.spaces().len()];
        for (index, found) in runs.into_iter().enumerate() {
            let Some((bytes, live)) = found else { continue };
            let change = &mut changes[graph.values()[index].space().index()];
            change[live.start().index()] += i128::from(bytes);
            change[live.end().index()] -= i128::from(bytes);
        }
        let most = |changes: Vec<i128>| {
            let live = changes.into_iter().scan(0, |live, change| {
                *live += change;
                Some(*live)
            });
            u64::try_from(live.max().unwrap_or(0)).unwrap_or(u64::MAX)
        };
        changes.into_iter().map(most).collect()
    }

    /// Returns the input whose block `output` took over.
    fn taken(&self, node: &Node, output: ValueId) -> Option<(u32, ValueId)> {
        let TakenFrom::Input(position) = self.taken_from[output.index()] else { return None };
        Some((position, node.input(usize::try_from(position).ok()?)?))
    }

    /// Returns the operands of a node that share bytes.
    fn shares(&self, graph: &Graph, id: NodeId) -> Vec<Share> {
        let node = graph.node(id);
        let effects = node.effects();
        let mut shares = Vec::new();
        for (output, value) in node.produces() {
            let Some((input, from)) = self.taken(node, value) else { continue };
            let is_pair = |from, to| usize::try_from(input) == Ok(from) && output == to;
            let same_bytes = graph.value(from).bytes() == graph.value(value).bytes();
            let is_view = effects.views.iter().any(|view| is_pair(view.input, view.output))
                || effects
                    .in_place
                    .iter()
                    .any(|pair| pair.identity && is_pair(pair.input, pair.output));
            // A state's bytes change, so a value that is computed from them is no view.
            let is_view = is_view && graph.value(from).kind() != ValueKind::State;
            let rule = if is_view && same_bytes { ShareRule::View } else { ShareRule::InPlace };
            let output = u32::try_from(output).expect("operands are numbered by 32 bits");
            shares.push(Share { input, output, rule });
        }
        shares
    }
}

/// Returns `bytes` rounded up to the plan's alignment.
fn rounded(unit: Alignment, bytes: u64) -> Result<u64> {
    unit.round_up(bytes).ok_or_else(|| Error::Core(Core::SizeOverflow { what: "a block".into() }))
}
