//! One walk over the nodes that gives every result a block.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use crate::coloring::Coloring;
use crate::sharing::pool::{Acceptable, Pool, at};
use crate::sharing::{Block, SharingMode, SharingOptions, Storage, StoragePlan, TakenFrom};
use arenaplan::base::{NodeId, SpaceId, ValueId};
use arenaplan::graph::{Graph, Node, Reachability, Whole};

/// Permission for an output to have an input's block.
#[derive(Clone, Copy, Debug)]
struct Pair {
    input: usize,
    output: usize,
    /// The output's bytes are the input's.
    identity: bool,
}

/// A walk over the nodes, and the decisions so far.
pub(super) struct Pass<'a> {
    graph: &'a Graph,
    mode: SharingMode,
    nodes: Range<usize>,
    match_range: u64,
    counts: &'a [u32],
    sizes: &'a [u64],
    coloring: Option<&'a Coloring>,
    reach: Option<&'a Reachability>,
    storages: Vec<Storage>,
    taken_from: Vec<TakenFrom>,
    given: u32,
    pool: Pool,
    /// For each block: remaining reads of the content.
    reads_left: Vec<u64>,
    not_allocated: usize,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        options: &SharingOptions,
        match_range: u64,
        counts: &'a [u32],
        sizes: &'a [u64],
    ) -> Self {
        let values = graph.values().len();
        let storages =
            options.assigned.clone().unwrap_or_else(|| vec![Storage::Unassigned; values]);
        let blocks = given_blocks(graph, &storages, sizes);
        Self {
            graph,
            mode: options.mode,
            nodes: options.nodes.clone().unwrap_or(0..graph.order().len()),
            match_range,
            counts,
            sizes,
            coloring: None,
            reach: None,
            storages,
            taken_from: vec![TakenFrom::Nothing; values],
            given: u32::try_from(blocks.len()).expect("blocks are numbered by 32 bits"),
            reads_left: vec![0; blocks.len()],
            pool: Pool::new(match_range, blocks),
            not_allocated: 0,
        }
    }

    /// Makes blocks stay with the color that frees the blocks.
    pub(super) fn colored(mut self, coloring: Option<&'a Coloring>) -> Self {
        self.coloring = coloring;
        self
    }

    /// Makes blocks change hands only between nodes that run one after the other.
    pub(super) fn ordered(mut self, reach: Option<&'a Reachability>) -> Self {
        self.reach = reach;
        self
    }

    pub(super) fn run(mut self) -> StoragePlan {
        let graph = self.graph;
        for &id in &graph.order()[self.nodes.clone()] {
            let node = graph.node(id);
            match self.mode {
                SharingMode::Nnvm => self.take_over_as_nnvm(id, node),
                SharingMode::Default => self.take_over(id, node),
            }
            self.request_outputs(id, node);
            self.release_inputs(id, node);
            self.release_unread(id, node);
        }
        StoragePlan {
            storages: self.storages,
            taken_from: self.taken_from,
            blocks: self.pool.blocks,
            given: self.given,
            tied: Vec::new(),
            direct: Vec::new(),
            not_allocated: self.not_allocated,
            match_range: self.match_range,
            coloring: None,
            parallel_safe: false,
        }
    }

    /// Returns a value's block, if the block is the planner's.
    fn own_block(&self, value: ValueId) -> Option<u32> {
        self.storages[value.index()].block().filter(|&block| block >= self.given)
    }

    /// Returns a node's color.
    fn color(&self, node: NodeId) -> u32 {
        self.coloring.map_or(0, |coloring| coloring.color(node))
    }

    /// Gives `output` the block of the input at `pair.input`.
    fn share(&mut self, node: NodeId, pair: Pair, output: ValueId, block: u32) {
        self.storages[output.index()] = Storage::Block(block);
        self.reads_left[at(block)] += u64::from(self.counts[output.index()]);
        let input = u32::try_from(pair.input).expect("operands are numbered by 32 bits");
        self.taken_from[output.index()] = TakenFrom::Input(input);
        if pair.identity {
            self.pool.touch(block, node);
        } else {
            self.pool.overwrite(block, node);
        }
    }

    /// Lets outputs have inputs' blocks as in NNVM: the declared pairs in order, each input once.
    fn take_over_as_nnvm(&mut self, id: NodeId, node: &Node) {
        let mut taken = vec![false; node.inputs().len()];
        let ignores_all = !node.inputs().is_empty()
            && (0..node.inputs().len()).all(|position| node.effects().ignores.contains(&position));
        for pair in &node.effects().in_place {
            let (Some(input), Some(output)) = (node.input(pair.input), node.output(pair.output))
            else {
                continue;
            };
            let Some(block) = self.own_block(input) else { continue };
            let (from, to) = (self.graph.value(input), self.graph.value(output));
            let same_elements = from.elements() == to.elements();
            let identity = pair.identity && same_elements && from.dtype() == to.dtype();
            let dies = self.reads_left[at(block)] == 1 && !ignores_all;
            if !taken[pair.input]
                && self.storages[output.index()] == Storage::Unassigned
                && (dies || identity)
                && self.counts[output.index()] > 0
                && same_elements
                && from.dtype().bits() == to.dtype().bits()
            {
                taken[pair.input] = true;
                let pair = Pair { input: pair.input, output: pair.output, identity };
                self.share(id, pair, output, block);
            }
        }
    }

    /// Lets outputs have inputs' blocks where nothing is lost.
    fn take_over(&mut self, id: NodeId, node: &Node) {
        let mut overwritten: Vec<u32> = Vec::new();
        for (position, output) in node.produces() {
            let is_open = self.storages[output.index()] == Storage::Unassigned;
            if !is_open || self.counts[output.index()] == 0 {
                continue;
            }
            let shown = pairs(node, position)
                .filter(|pair| pair.identity)
                .find_map(|pair| Some((pair, self.shown(node, pair, output, &overwritten)?)));
            let found = shown.or_else(|| {
                pairs(node, position)
                    .filter(|pair| !pair.identity)
                    .filter_map(|pair| Some((pair, self.dying(id, node, pair, output)?)))
                    .min_by_key(|&(_, block)| self.pool.blocks[at(block)].bytes)
            });
            if let Some((pair, block)) = found {
                if !pair.identity {
                    overwritten.push(block);
                }
                self.share(id, pair, output, block);
            }
        }
    }

    /// Returns the block that `output` can show unchanged, if the node permits a view.
    fn shown(&self, node: &Node, pair: Pair, output: ValueId, overwritten: &[u32]) -> Option<u32> {
        let input = node.input(pair.input)?;
        let block = self.own_block(input)?;
        let (from, to) = (self.graph.value(input), self.graph.value(output));
        let reads = !node.effects().ignores.contains(&pair.input);
        let fits = from.bytes() == to.bytes() && from.space() == to.space();
        (reads && fits && !overwritten.contains(&block)).then_some(block)
    }

    /// Returns the block that `output` can overwrite, if all remaining reads are elementwise reads
    /// by this node, as the node permits.
    fn dying(&self, id: NodeId, node: &Node, pair: Pair, output: ValueId) -> Option<u32> {
        let input = node.input(pair.input)?;
        let block = self.own_block(input)?;
        let (from, to) = (self.graph.value(input), self.graph.value(output));
        let permitted: Vec<usize> =
            pairs(node, pair.output).map(|permitted| permitted.input).collect();
        let mut reads = 0;
        for (position, value) in node.reads_bytes_of() {
            if self.own_block(value) == Some(block) {
                let same = self.graph.value(value).bytes() == from.bytes();
                if !same || !permitted.contains(&position) {
                    return None;
                }
                reads += 1;
            }
        }
        let dies = reads > 0 && self.reads_left[at(block)] == reads;
        let fits = to.bytes() <= from.bytes() && from.space() == to.space();
        let ordered = self.reach.is_none_or(|reach| {
            self.pool.users(block).iter().all(|&user| user == id || reach.is_before(user, id))
        });
        (dies && fits && ordered).then_some(block)
    }

    /// Requests blocks for the outputs that have none, the largest first.
    fn request_outputs(&mut self, id: NodeId, node: &Node) {
        let mut open: Vec<ValueId> = node
            .produces()
            .map(|(_, output)| output)
            .filter(|output| self.storages[output.index()] == Storage::Unassigned)
            .collect();
        let size = |value: &ValueId| match self.mode {
            SharingMode::Nnvm => self.graph.value(*value).elements().unwrap_or(u64::MAX),
            SharingMode::Default => self.sizes[value.index()],
        };
        open.sort_by_key(|value| core::cmp::Reverse((size(value), *value)));
        for output in open {
            let value = self.graph.value(output);
            if self.mode == SharingMode::Nnvm && value.shape().is_empty() {
                // In NNVM, a scalar has an unknown shape.
                continue;
            }
            let reach = self.reach;
            let ordered = |users: &[NodeId]| {
                reach.is_none_or(|reach| users.iter().all(|&user| reach.is_before(user, id)))
            };
            let acceptable = reach.is_some().then_some::<Acceptable<'_>>(&ordered);
            let place = (value.space(), self.color(id));
            let block = self.pool.request(self.sizes[output.index()], place, acceptable);
            self.pool.overwrite(block, id);
            self.storages[output.index()] = Storage::Block(block);
            self.reads_left.resize(self.pool.blocks.len(), 0);
            self.reads_left[at(block)] = u64::from(self.counts[output.index()]);
        }
    }

    /// Counts the node's reads down, and frees blocks without remaining readers.
    fn release_inputs(&mut self, id: NodeId, node: &Node) {
        for (_, input) in node.reads_bytes_of() {
            let Some(block) = self.own_block(input) else { continue };
            self.pool.touch(block, id);
            let left = &mut self.reads_left[at(block)];
            *left -= 1;
            if *left == 0 {
                self.pool.release(block, self.color(id));
            }
        }
    }

    /// Frees the blocks of outputs without readers, and counts outputs without storage.
    fn release_unread(&mut self, id: NodeId, node: &Node) {
        for (_, output) in node.produces() {
            match self.storages[output.index()] {
                Storage::Block(block)
                    if block >= self.given && self.counts[output.index()] == 0 =>
                {
                    self.pool.release(block, self.color(id));
                    self.taken_from[output.index()] = TakenFrom::NeverRead;
                }
                Storage::Unassigned => self.not_allocated += 1,
                _ => {}
            }
        }
    }
}

/// Returns the permissions of `node` for an output: in-place pairs, and views of whole inputs.
fn pairs(node: &Node, output: usize) -> impl Iterator<Item = Pair> + '_ {
    let effects = node.effects();
    let in_place = effects.in_place.iter().map(|pair| Pair {
        input: pair.input,
        output: pair.output,
        identity: pair.identity,
    });
    let views = effects
        .views
        .iter()
        .filter(|view| view.offset == 0 && view.whole == Whole::Input)
        .map(|view| Pair { input: view.input, output: view.output, identity: true });
    in_place.chain(views).filter(move |pair| pair.output == output)
}

/// Returns the caller's blocks, each with the size of the largest value.
fn given_blocks(graph: &Graph, storages: &[Storage], sizes: &[u64]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for ((storage, value), &bytes) in storages.iter().zip(graph.values()).zip(sizes) {
        let Some(block) = storage.block().map(at) else { continue };
        if block >= blocks.len() {
            blocks.resize(block + 1, Block { bytes: 0, space: SpaceId::new(0) });
        }
        let known = &mut blocks[block];
        known.bytes = known.bytes.max(bytes);
        known.space = value.space();
    }
    blocks
}
