//! From a graph and an order to the buffers that a solver places.
//!
//! Three steps, each a pure function of the step before: [`Lifetimes`] gives each value a live
//! range; [`AliasClasses`] finds the values that share bytes; [`Liveness`] makes a buffer for each
//! class.

mod alias;
mod cover;
mod lifetime;

pub(crate) use alias::matched;
pub use alias::{AliasClass, AliasClasses, AliasRules, Member, Merge};
use alloc::{format, string::String, vec, vec::Vec};

use cover::Cover;
pub use lifetime::Lifetimes;
use lifetime::node_window;

use crate::base::{
    Alignment, BufferId, Error, LiveRange, MAX_BYTES, NodeId, Result, SpaceId, Step, ValueId,
    quoted,
};
use crate::graph::{Graph, Reachability, WriteBack};
use crate::pack::{Buffer, Part, Problem};
use crate::plan::{InputMemory, OutputMemory, ShareRule};

/// Rules and limits for [`Liveness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct LivenessOptions {
    /// Alignment of offsets; sizes are rounded up to the alignment.
    pub alignment: Alignment,
    /// Whether an output may be all bytes of an input that the output shows unchanged.
    pub views: bool,
    /// Whether values may be pieces of larger values.
    pub elision: bool,
    /// Whether an output may take over a dying input's bytes.
    pub in_place: bool,
    /// Whether an output may take over only inputs of the same size.
    pub same_size: bool,
    /// The memory for graph inputs, and whether outputs may take over that memory.
    pub inputs: InputMemory,
    /// The memory for graph outputs.
    pub outputs: OutputMemory,
    /// Whether graph inputs keep their bytes until the end.
    pub preserve_inputs: bool,
    /// Whether the buffers must be apart in every permitted order, not only in the given order.
    pub parallel_safe: bool,
    /// Whether kernels write elements of a piece before they have read all of the piece's inputs.
    pub early_writes: bool,
    /// Bytes that the default space holds, where the graph does not say.
    pub capacity: Option<u64>,
}

impl Default for LivenessOptions {
    fn default() -> Self {
        Self {
            alignment: Alignment::new(64).expect("64 is a power of two"),
            views: true,
            elision: true,
            in_place: true,
            same_size: false,
            inputs: InputMemory::Inside,
            outputs: OutputMemory::Inside,
            preserve_inputs: false,
            parallel_safe: false,
            early_writes: false,
            capacity: None,
        }
    }
}

impl LivenessOptions {
    /// Returns whether the bytes of graph inputs are unchanged until the end.
    pub(crate) fn keeps_inputs(&self) -> bool {
        self.preserve_inputs || self.inputs == InputMemory::Caller
    }

    pub(crate) const fn alias_rules(&self) -> AliasRules {
        AliasRules {
            views: self.views,
            elision: self.elision,
            in_place: self.in_place,
            same_size: self.same_size,
            inputs: self.inputs,
            outputs: self.outputs,
            early_writes: self.early_writes,
            alignment: self.alignment,
        }
    }
}

/// A workspace with a chosen size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChosenWorkspace {
    /// Node that works in the workspace.
    pub node: NodeId,
    /// Whether the node needs the workspace because the node's output overlaps an input.
    pub staging: bool,
    /// Position among the node's workspaces.
    pub slot: usize,
    /// Size index among the workspace's choices.
    pub choice: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Step of the node.
    pub step: Step,
}

/// The buffers of a graph, and which values are in them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Liveness {
    /// Live ranges by value.
    pub lifetimes: Lifetimes,
    /// Values that share their bytes.
    pub classes: AliasClasses,
    /// One buffer per alias class in the arena, in the order of [`AliasClasses::classes`],
    /// then one per workspace.
    pub problem: Problem,
    /// The workspaces behind the last buffers of the problem.
    pub workspaces: Vec<ChosenWorkspace>,
    /// Node reachability, if every order counts.
    reach: Option<Reachability>,
}

impl Liveness {
    /// Returns the buffers that `graph` needs when `graph` runs in `order`.
    ///
    /// `declined` names operands, by node and position in ascending order, that are copied instead
    /// of becoming pieces of a concatenation.
    ///
    /// # Errors
    ///
    /// - [`Error::SizeOverflow`] if rounding up a size overflows.
    /// - [`Error::PinConflict`] if pinned values contradict each other.
    pub fn new(
        graph: &Graph,
        order: &[NodeId],
        options: LivenessOptions,
        declined: &[(NodeId, usize)],
        workspaces: Vec<ChosenWorkspace>,
    ) -> Result<Self> {
        let lifetimes = Lifetimes::new(graph, order, options.keeps_inputs());
        let reach = options.parallel_safe.then(|| Reachability::new(graph));
        let rules = options.alias_rules();
        let classes = AliasClasses::new(graph, order, &lifetimes, rules, reach.as_ref(), declined);
        Self::from_classes(graph, options, lifetimes, classes, reach, workspaces)
    }

    /// Returns the buffers without workspaces if outputs of the nodes `overlapped` overlap a dying
    /// input where possible.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_overlaps(
        graph: &Graph,
        order: &[NodeId],
        options: LivenessOptions,
        overlapped: &[NodeId],
    ) -> Result<Self> {
        let lifetimes = Lifetimes::new(graph, order, options.keeps_inputs());
        Self::with_lifetimes(graph, order, lifetimes, options, overlapped)
    }

    /// Returns the buffers without workspaces for other live ranges than those of `order`, such as
    /// a [timetable](Lifetimes::in_timetable).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_lifetimes(
        graph: &Graph,
        order: &[NodeId],
        lifetimes: Lifetimes,
        options: LivenessOptions,
        overlapped: &[NodeId],
    ) -> Result<Self> {
        let reach = options.parallel_safe.then(|| Reachability::new(graph));
        let rules = options.alias_rules();
        let classes = AliasClasses::with_overlaps(
            graph,
            order,
            &lifetimes,
            rules,
            reach.as_ref(),
            &[],
            overlapped,
        );
        Self::from_classes(graph, options, lifetimes, classes, reach, Vec::new())
    }

    /// Returns the nodes whose output overlaps an input, in execution order.
    pub fn overlapped(&self) -> impl Iterator<Item = NodeId> + '_ {
        let merges = self.classes.merges().iter();
        merges.filter(|merge| merge.share.rule == ShareRule::Overlap).map(|merge| merge.node)
    }

    /// Returns the same buffers with other workspaces.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_workspaces(
        self,
        graph: &Graph,
        options: LivenessOptions,
        workspaces: Vec<ChosenWorkspace>,
    ) -> Result<Self> {
        Self::from_classes(graph, options, self.lifetimes, self.classes, self.reach, workspaces)
    }

    fn from_classes(
        graph: &Graph,
        options: LivenessOptions,
        lifetimes: Lifetimes,
        classes: AliasClasses,
        reach: Option<Reachability>,
        workspaces: Vec<ChosenWorkspace>,
    ) -> Result<Self> {
        let apart = |pair: &&WriteBack| !classes.are_at_one_place(pair.value, pair.into);
        if let Some(pair) = graph.write_backs().iter().find(apart) {
            let [value, into] = [pair.value, pair.into].map(|id| quoted(graph.value(id).name()));
            let reason = format!(
                "value {value} replaces {into} at its address, and their pins or alignments differ"
            );
            return Err(Error::PinConflict { reason });
        }
        let in_every_order = reach
            .as_ref()
            .map(|reach| Lifetimes::in_every_order(graph, reach, options.keeps_inputs()));
        let needed = in_every_order.as_ref().unwrap_or(&lifetimes);
        let mut buffers = Vec::new();
        buffers
            .try_reserve_exact(classes.classes().len() + workspaces.len())
            .map_err(|_| Error::OutOfMemory { what: "the problem's buffers" })?;
        for class in classes.classes() {
            let mut buffer = class_buffer(graph, needed, class, options.alignment)?
                .with_alignment(class.alignment.max(options.alignment))
                .with_space(class.space);
            if let Some(pin) = class.pin {
                buffer = buffer.with_pin(pin);
            }
            buffers.push(buffer);
        }
        for workspace in &workspaces {
            let node = graph.node(workspace.node);
            let what = || format!("a workspace of node {}", quoted(node.name()));
            let bytes = round_size(workspace.bytes, options.alignment, what)?;
            let alignment = node.effects().scratch(workspace.staging)[workspace.slot].alignment;
            let live = match &reach {
                Some(reach) => node_window(reach, workspace.node, lifetimes.horizon()),
                None => {
                    LiveRange::new(workspace.step.get(), lifetimes.until(workspace.step).get())?
                }
            };
            buffers.push(Buffer::new(bytes, live).with_alignment(alignment.max(options.alignment)));
        }
        let mut spaces = graph.spaces().to_vec();
        if let (Some(capacity), Some(first)) = (options.capacity, spaces.first_mut()) {
            *first = first.clone().with_capacity(capacity);
        }
        let problem = Problem::new(buffers, spaces)?;
        Ok(Self { lifetimes, classes, problem, workspaces, reach })
    }

    /// Returns the buffer that contains `value`, or `None` if `value` is not in the arena.
    pub fn buffer_of(&self, value: ValueId) -> Option<BufferId> {
        self.classes.class_of(value).map(BufferId::new)
    }

    /// Returns the number of bytes in `space` that are live at every step.
    ///
    /// Saturates at [`MAX_BYTES`].
    pub fn profile(&self, space: SpaceId) -> Vec<u64> {
        let steps = self.lifetimes.horizon().index();
        let mut change = vec![0_i128; steps + 1];
        for buffer in self.problem.buffers().iter().filter(|buffer| buffer.space() == space) {
            for (bytes, live) in buffer.rectangles() {
                let size = i128::from(bytes.end - bytes.start);
                change[live.start().index()] += size;
                change[live.end().index()] -= size;
            }
        }
        let mut live = 0;
        change
            .into_iter()
            .take(steps)
            .map(|change| {
                live += change;
                u64::try_from(live).unwrap_or(MAX_BYTES).min(MAX_BYTES)
            })
            .collect()
    }
}

/// Returns the buffer for a class, before an alignment and a space are set.
///
/// The buffer has a part for each distinct set of members: wherever a member begins or ends, so
/// does a part.
fn class_buffer(
    graph: &Graph,
    lifetimes: &Lifetimes,
    class: &AliasClass,
    alignment: Alignment,
) -> Result<Buffer> {
    let mut spans = Vec::with_capacity(class.members.len());
    for &Member { value: id, start } in &class.members {
        let value = graph.value(id);
        let what = || format!("value {}", quoted(value.name()));
        let end = start.checked_add(value.bytes());
        let end = end.ok_or_else(|| Error::SizeOverflow { what: what() })?;
        let first = start - start % alignment.bytes();
        let live = lifetimes.of(id).unwrap_or(class.live);
        // A value without bytes holds no line at any place.
        let end = if value.bytes() == 0 { first } else { round_size(end, alignment, what)? };
        spans.push((first..end, live));
    }
    let whole = spans[0].0.clone();
    if spans.iter().all(|(span, _)| span.is_empty()) {
        return Ok(Buffer::new(0, class.live));
    }
    if spans.iter().all(|(span, _)| *span == whole) && whole.start == 0 {
        let live: Vec<LiveRange> = union(spans.into_iter().map(|(_, live)| live).collect());
        if let [live] = live[..] {
            return Ok(Buffer::new(whole.end, live));
        }
        return Ok(Buffer::with_parts(whole.end, vec![Part { bytes: whole, live }])?);
    }
    let mut cuts: Vec<u64> = spans.iter().flat_map(|(span, _)| [span.start, span.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut cover = Cover::new(spans.iter().map(|&(_, live)| live));
    let mut begin: Vec<_> = spans.iter().filter(|(span, _)| !span.is_empty()).collect();
    let mut end = begin.clone();
    begin.sort_unstable_by_key(|(span, _)| span.start);
    end.sort_unstable_by_key(|(span, _)| span.end);
    let (mut begin, mut end) = (begin.into_iter().peekable(), end.into_iter().peekable());
    let mut parts: Vec<Part> = Vec::new();
    for cut in cuts.windows(2) {
        while let Some((_, live)) = end.next_if(|(span, _)| span.end <= cut[0]) {
            cover.remove(*live);
        }
        while let Some((_, live)) = begin.next_if(|(span, _)| span.start <= cut[0]) {
            cover.add(*live);
        }
        let live = cover.union();
        match parts.last_mut() {
            _ if live.is_empty() => {}
            Some(last) if last.bytes.end == cut[0] && last.live == live => last.bytes.end = cut[1],
            _ => parts.push(Part { bytes: cut[0]..cut[1], live }),
        }
    }
    let bytes = *cuts.last().expect("a class has members");
    match &parts[..] {
        [] => Ok(Buffer::new(0, class.live)),
        _ => Ok(Buffer::with_parts(bytes, parts)?),
    }
}

/// Returns live ranges that cover the same steps, in order and apart from each other.
fn union(mut ranges: Vec<LiveRange>) -> Vec<LiveRange> {
    ranges.sort_unstable_by_key(|range| (range.start(), range.end()));
    let mut result: Vec<LiveRange> = Vec::with_capacity(1);
    for range in ranges {
        match result.last_mut() {
            Some(last) if last.end() >= range.start() => *last = last.hull(range),
            _ => result.push(range),
        }
    }
    result
}

/// Returns `bytes` rounded up to `alignment`.
fn round_size(bytes: u64, alignment: Alignment, what: impl FnOnce() -> String) -> Result<u64> {
    alignment.round_up(bytes).ok_or_else(|| Error::SizeOverflow { what: what() })
}
