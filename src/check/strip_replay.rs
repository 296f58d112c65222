//! A run of a step's nodes strip by strip, on symbolic rows.
//!
//! A place in a line buffer holds a tag: the last written value and row. A node may read a row only
//! at its tag, and must find every row in its windows. So a line buffer that is too short, at the
//! wrong place, or released too early is found, whatever rule chose the buffer.
//!
//! Reads from outside tell how far behind written output rows an input must begin, if the output
//! overlaps the input.

use alloc::collections::BTreeMap;
use alloc::{format, vec, vec::Vec};
use core::num::NonZeroU64;
use core::ops::Range;

use crate::base::{NodeId, Result, ValueId, quoted};
use crate::check::mismatch;
use crate::graph::{Graph, Node, Overlap, ValueKind, Window};
use crate::plan::Strips;

/// Most tags and node visits in a replay; larger strips are refused.
const MOST_WORK: u64 = 1 << 26;

/// A value's row at a place in a line buffer.
type Tag = Option<(ValueId, u64)>;

/// A line buffer, or the step's output: memory for rows.
struct Home {
    /// First byte in the workspace, and byte after the last; `None` for the output.
    bytes: Option<Range<u64>>,
    /// The row in the first place.
    base: u64,
    tags: Vec<Tag>,
    /// The buffer's value.
    value: ValueId,
}

impl Home {
    fn overlaps(&self, other: &Self) -> bool {
        match (&self.bytes, &other.bytes) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            _ => false,
        }
    }
}

/// A value that the step makes.
#[derive(Clone, Copy)]
struct StripValue {
    /// Position of the home.
    home: usize,
    /// The row dimension.
    axis: usize,
    /// Rows before this row were made, or will never be made.
    done: u64,
}

/// A run of nodes on symbolic rows.
pub(super) struct StripReplay<'a> {
    graph: &'a Graph,
    nodes: &'a [NodeId],
    output: ValueId,
    outside: Vec<ValueId>,
    made: BTreeMap<ValueId, StripValue>,
    homes: Vec<Home>,
    rows: u64,
    lines: LineMemory,
    /// Output rows that were written.
    written: u64,
    /// By outside value, the most bytes by which written output rows are ahead of rows that are
    /// read; `None` if rows of value or output do not lie one behind the other.
    ahead: BTreeMap<ValueId, Option<u64>>,
}

/// Rows that a node makes for a strip.
struct Call {
    node: NodeId,
    value: ValueId,
    rows: Range<u64>,
}

/// The work for a strip.
struct Visit {
    /// The rows that each node makes, in order.
    calls: Vec<Call>,
    /// By value, the rows that are needed.
    needs: BTreeMap<ValueId, Range<u64>>,
}

/// The values that cross a step's border, and the step's line buffers.
pub(super) struct Border {
    /// Values that are read, each once.
    pub(super) reads: Vec<ValueId>,
    /// The value that is made.
    pub(super) output: ValueId,
    /// The memory for all line buffers.
    pub(super) lines: LineMemory,
    /// The inputs that the output may overlap, by position in `reads`.
    pub(super) overlaps: Vec<Overlap>,
}

/// The memory needed for a step's line buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineMemory {
    /// Bytes up to the end of the last buffer.
    pub(super) bytes: u64,
    /// Required divisor of the memory's offset, so that elements are aligned.
    pub(super) alignment: u64,
}

impl<'a> StripReplay<'a> {
    /// Returns the replay of some nodes; the last node may have `scratch` bytes for line buffers.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`](crate::Error::PlanMismatch) if the nodes do not work row by row, or
    /// a value does not have exactly one line buffer in the workspace.
    pub(super) fn new(
        graph: &'a Graph,
        nodes: &'a [NodeId],
        strips: &Strips,
        scratch: Option<u64>,
        readers: &[Vec<NodeId>],
    ) -> Result<Self> {
        let last = *nodes.last().expect("a step runs a node");
        let Some((_, output)) = graph.node(last).produces().next() else {
            return refuse(graph, last, "it makes nothing");
        };
        let mut replay = Self {
            graph,
            nodes,
            output,
            outside: Vec::new(),
            made: BTreeMap::new(),
            homes: Vec::new(),
            rows: strips.rows,
            lines: LineMemory { bytes: 0, alignment: 1 },
            written: 0,
            ahead: BTreeMap::new(),
        };
        replay.check_nodes(readers)?;
        replay.settle(strips, scratch)?;
        Ok(replay)
    }

    /// Checks that every node makes rows from rows, and that no value leaves the step but the
    /// output.
    fn check_nodes(&mut self, readers: &[Vec<NodeId>]) -> Result<()> {
        let graph = self.graph;
        for &id in self.nodes {
            let node = graph.node(id);
            let produced: Vec<_> = node.produces().collect();
            let &[(position, value)] = produced.as_slice() else {
                return refuse(graph, id, "it does not have one output");
            };
            let effects = node.effects();
            if !effects.mutates.is_empty() || !effects.ignores.is_empty() {
                return refuse(graph, id, "it mutates or ignores an operand");
            }
            let Some(axis) = effects.windows.iter().find(|one| one.output == position) else {
                return refuse(graph, id, "it does not make rows from rows");
            };
            let axis = axis.axis;
            if effects.windows.iter().any(|one| one.axis != axis) {
                return refuse(graph, id, "its windows are over several dimensions");
            }
            for (at, read) in node.reads_bytes_of() {
                let Some(made) = self.made.get(&read) else {
                    if !self.outside.contains(&read) {
                        self.outside.push(read);
                    }
                    continue;
                };
                if window(node, at, position).is_none() {
                    return refuse(graph, id, "it needs whole what another of them makes");
                }
                if made.axis != axis {
                    return refuse(graph, id, "rows are counted along another dimension");
                }
            }
            let elsewhere = |reader: &NodeId| !self.nodes.contains(reader);
            let leaves = graph.outputs().contains(&value)
                || readers[value.index()].iter().any(elsewhere)
                || graph.value(value).kind() != ValueKind::Activation;
            let is_last = self.nodes.last() == Some(&id);
            if !is_last && leaves {
                return refuse(graph, id, "what it makes is needed elsewhere");
            }
            if self.row_bytes(value, axis).is_none() {
                return refuse(graph, id, "its rows are not whole bytes");
            }
            if self.made.insert(value, StripValue { home: usize::MAX, axis, done: 0 }).is_some() {
                return refuse(graph, id, "it is there twice");
            }
        }
        // A node runs after its operands' producers.
        match self.outside.iter().find(|value| self.made.contains_key(value)) {
            Some(value) => {
                let name = quoted(graph.value(*value).name());
                mismatch(format!("value {name} is read before it is made"))
            }
            None => Ok(()),
        }
    }

    /// Gives every value a home.
    fn settle(&mut self, strips: &Strips, scratch: Option<u64>) -> Result<()> {
        let height = self.height(self.output);
        let visits = height.div_ceil(strips.rows.max(1));
        let nodes = u64::try_from(self.nodes.len()).unwrap_or(u64::MAX);
        let places = strips.buffers.iter().fold(height, |sum, it| sum.saturating_add(it.rows));
        let tags = self.made.keys().fold(places, |sum, &it| sum.saturating_add(self.height(it)));
        if strips.rows == 0 || visits.saturating_mul(nodes).saturating_add(tags) > MOST_WORK {
            return self.refuse_strips("strips are too thin");
        }
        self.add_home(self.output, None, height)?;
        for buffer in &strips.buffers {
            let value = ValueId::from(buffer.value);
            let Some(bytes) = self
                .made
                .get(&value)
                .and_then(|made| self.row_bytes(value, made.axis))
                .and_then(|bytes| bytes.checked_mul(buffer.rows))
                .and_then(|bytes| Some(buffer.offset..buffer.offset.checked_add(bytes)?))
            else {
                return self.refuse_strips("a line buffer is of no value that it makes");
            };
            if scratch.is_some_and(|scratch| bytes.end > scratch) || buffer.rows == 0 {
                let name = quoted(self.graph.value(value).name());
                return self
                    .refuse_strips(&format!("the line buffer of {name} is not in its workspace"));
            }
            let element = (self.graph.value(value).dtype().bits() / 8).max(1);
            if !buffer.offset.is_multiple_of(element) {
                let name = quoted(self.graph.value(value).name());
                return self.refuse_strips(&format!("the line buffer of {name} is misaligned"));
            }
            self.lines.bytes = self.lines.bytes.max(bytes.end);
            self.lines.alignment = self.lines.alignment.max(element);
            self.add_home(value, Some(bytes), buffer.rows)?;
        }
        for pair in strips.in_place.iter().rev() {
            let (value, of) = (ValueId::from(pair.value), ValueId::from(pair.of));
            let home = self.made.get(&of).map(|made| made.home).filter(|&home| home != usize::MAX);
            let alike = home.is_some() && self.made.contains_key(&value) && {
                let [a, b] = [value, of].map(|value| self.graph.value(value));
                (a.shape(), a.dtype()) == (b.shape(), b.dtype())
            };
            let (Some(home), true) = (home, alike) else {
                return self.refuse_strips("a value is made in place of one that is not like it");
            };
            let made = self.made.get_mut(&value).expect("it is made");
            if made.home != usize::MAX {
                return self.refuse_strips("a value has two line buffers");
            }
            made.home = home;
        }
        match self.made.iter().find(|(_, made)| made.home == usize::MAX) {
            None => Ok(()),
            Some((&value, _)) => {
                let name = quoted(self.graph.value(value).name());
                self.refuse_strips(&format!("value {name} has no line buffer"))
            }
        }
    }

    fn add_home(&mut self, value: ValueId, bytes: Option<Range<u64>>, rows: u64) -> Result<()> {
        let rows = rows.min(self.height(value));
        let tags = vec![None; usize::try_from(rows).unwrap_or(0)];
        let home = self.homes.len();
        let made = self.made.get_mut(&value).expect("it is made");
        if made.home != usize::MAX {
            return self.refuse_strips("a value has two line buffers");
        }
        made.home = home;
        self.homes.push(Home { bytes, base: 0, tags, value });
        Ok(())
    }

    /// Runs all strips, and returns the values that are read from outside and the output.
    ///
    /// # Errors
    ///
    /// [`Error::PlanMismatch`](crate::Error::PlanMismatch) if a node would read a row that is not
    /// there, or write where there is no place.
    pub(super) fn run(mut self) -> Result<Border> {
        let height = self.height(self.output);
        let mut start = 0;
        while start < height {
            let end = height.min(start.saturating_add(self.rows));
            self.run_strip(start..end)?;
            start = end;
        }
        let made = &self.homes[self.made[&self.output].home].tags;
        let rows = (0..height).map(|row| Some((self.output, row)));
        if !made.iter().copied().eq(rows) {
            return self.refuse_strips("rows of the output are not made, or made over");
        }
        let overlap = |(input, value): (usize, &ValueId)| {
            let distance = self.ahead.get(value).copied().flatten()?;
            Some(Overlap { input, output: 0, distance })
        };
        let overlaps = self.outside.iter().enumerate().filter_map(overlap).collect();
        Ok(Border { reads: self.outside, output: self.output, lines: self.lines, overlaps })
    }

    fn run_strip(&mut self, rows: Range<u64>) -> Result<()> {
        let Visit { calls, needs } = self.visit(rows)?;
        for call in &calls {
            let home = self.made[&call.value].home;
            if self.homes[home].value == call.value && self.homes[home].bytes.is_some() {
                let done = self.made[&call.value].done;
                self.move_up(home, needs[&call.value].start, done);
            }
        }
        for call in calls {
            self.read(&call)?;
            self.write(&call)?;
            self.note_reads(&call);
            let made = self.made.get_mut(&call.value).expect("it is made");
            made.done = made.done.max(call.rows.end);
        }
        Ok(())
    }

    /// Returns the rows that each node makes for a strip, in order, and the needed rows by value.
    fn visit(&self, rows: Range<u64>) -> Result<Visit> {
        let mut needs = BTreeMap::from([(self.output, rows)]);
        let mut calls = Vec::new();
        for &id in self.nodes.iter().rev() {
            let node = self.graph.node(id);
            let (position, value) = node.produces().next().expect("nodes were checked");
            let Some(need) = needs.get(&value).cloned() else { continue };
            let rows = need.start.max(self.made[&value].done)..need.end;
            if rows.is_empty() {
                continue;
            }
            for (at, read) in node.reads_bytes_of() {
                let Some(window) = window(node, at, position) else { continue };
                let seen = window.needs(rows.clone(), self.height_along(read, window.axis));
                if seen.is_empty() {
                    return refuse(self.graph, id, "a window sees no row");
                }
                if self.made.contains_key(&read) {
                    let known = needs.entry(read).or_insert_with(|| seen.clone());
                    *known = known.start.min(seen.start)..known.end.max(seen.end);
                }
            }
            calls.push(Call { node: id, value, rows });
        }
        calls.reverse();
        Ok(Visit { calls, needs })
    }

    /// Moves the rows from `first` up to `done` to the front of a line buffer.
    fn move_up(&mut self, home: usize, first: u64, done: u64) {
        let buffer = &mut self.homes[home];
        let shift = usize::try_from(first.saturating_sub(buffer.base)).unwrap_or(usize::MAX);
        let kept = usize::try_from(done.saturating_sub(first)).unwrap_or(usize::MAX);
        let moved: Vec<Tag> = buffer.tags.iter().copied().skip(shift).take(kept).collect();
        buffer.base = first;
        if shift > 0 {
            buffer.tags.iter_mut().for_each(|tag| *tag = None);
            buffer.tags[..moved.len()].copy_from_slice(&moved);
            if !moved.is_empty() {
                self.disturb(home);
            }
        }
    }

    /// Forgets all rows of line buffers that share a byte with a written buffer.
    fn disturb(&mut self, home: usize) {
        for other in 0..self.homes.len() {
            if other != home && self.homes[other].overlaps(&self.homes[home]) {
                self.homes[other].tags.iter_mut().for_each(|tag| *tag = None);
            }
        }
    }

    /// Checks that all rows needed by a node are present, and disjoint from the written rows.
    fn read(&self, call: &Call) -> Result<()> {
        let node = self.graph.node(call.node);
        let (position, _) = node.produces().next().expect("nodes were checked");
        let target = self.made[&call.value].home;
        for (at, read) in node.reads_bytes_of() {
            let (Some(made), Some(window)) = (self.made.get(&read), window(node, at, position))
            else {
                continue;
            };
            let home = &self.homes[made.home];
            for row in window.needs(call.rows.clone(), self.height(read)) {
                let tag = row.checked_sub(home.base).and_then(|place| usize::try_from(place).ok());
                let tag = tag.and_then(|place| home.tags.get(place).copied()).flatten();
                if tag != Some((read, row)) {
                    let name = quoted(self.graph.value(read).name());
                    return refuse(
                        self.graph,
                        call.node,
                        &format!("row {row} of value {name} is not in its line buffer"),
                    );
                }
            }
            let rewrites = || {
                let mut pairs = node.effects().in_place.iter();
                window.is_pointwise()
                    && pairs.any(|pair| (pair.input, pair.output) == (at, position))
            };
            let is_apart =
                if made.home == target { rewrites() } else { !home.overlaps(&self.homes[target]) };
            if !is_apart {
                let name = quoted(self.graph.value(read).name());
                return refuse(
                    self.graph,
                    call.node,
                    &format!("it writes over value {name} while it reads it"),
                );
            }
        }
        Ok(())
    }

    /// Notes how far written output rows are ahead of the rows that a node has read from outside.
    /// The order of reads and writes within a call is not known.
    fn note_reads(&mut self, call: &Call) {
        let made = self.made[&call.value];
        if self.homes[made.home].bytes.is_none() {
            self.written = self.written.max(call.rows.end);
        }
        let node = self.graph.node(call.node);
        let (position, _) = node.produces().next().expect("nodes were checked");
        for (at, read) in node.reads_bytes_of().filter(|(_, read)| !self.made.contains_key(read)) {
            let first = window(node, at, position).map_or(0, |window| {
                window.needs(call.rows.clone(), self.height_along(read, window.axis)).start
            });
            let end = |value, rows: u64| self.line_bytes(value, made.axis)?.checked_mul(rows);
            let ahead = end(self.output, self.written)
                .zip(end(read, first))
                .map(|(written, kept)| written.saturating_sub(kept));
            let known = self.ahead.entry(read).or_insert(Some(0));
            *known = known.zip(ahead).map(|(known, ahead)| known.max(ahead));
        }
    }

    /// Returns the bytes per row of a value whose rows lie one behind the other.
    fn line_bytes(&self, value: ValueId, axis: usize) -> Option<u64> {
        let planes = self.graph.value(value).shape().get(..axis)?;
        planes.iter().all(|&size| size == 1).then(|| self.row_bytes(value, axis))?
    }

    /// Writes the rows that a node makes.
    fn write(&mut self, call: &Call) -> Result<()> {
        let home = self.made[&call.value].home;
        for row in call.rows.clone() {
            let place = row.checked_sub(self.homes[home].base);
            let place = place.and_then(|place| usize::try_from(place).ok());
            let Some(tag) = place.and_then(|place| self.homes[home].tags.get_mut(place)) else {
                let name = quoted(self.graph.value(call.value).name());
                return refuse(
                    self.graph,
                    call.node,
                    &format!("its line buffer has no place for row {row} of value {name}"),
                );
            };
            *tag = Some((call.value, row));
        }
        self.disturb(home);
        Ok(())
    }

    /// Returns the row count of a value that is made here.
    fn height(&self, value: ValueId) -> u64 {
        self.made.get(&value).map_or(0, |made| self.height_along(value, made.axis))
    }

    fn height_along(&self, value: ValueId, axis: usize) -> u64 {
        self.graph.value(value).shape().get(axis).copied().unwrap_or(0)
    }

    /// Returns the bytes per row in all planes of a value, if rows are whole bytes.
    fn row_bytes(&self, value: ValueId, axis: usize) -> Option<u64> {
        let known = self.graph.value(value);
        let rows = NonZeroU64::new(known.shape().get(axis).copied()?)?;
        let bytes = NonZeroU64::new(known.bytes())?.get();
        let whole = known.dtype().bits() >= 8 && bytes.is_multiple_of(rows.get());
        whole.then(|| bytes / rows)
    }

    fn refuse_strips<T>(&self, reason: &str) -> Result<T> {
        let last = self.nodes.last().map(|&id| self.graph.node(id).name()).unwrap_or_default();
        mismatch(format!("step {} cannot run in these strips: {reason}", quoted(last)))
    }
}

/// Returns the window of an output over an input, by position.
fn window(node: &Node, input: usize, output: usize) -> Option<&Window> {
    let mut windows = node.effects().windows.iter();
    windows.find(|window| (window.input, window.output) == (input, output))
}

fn refuse<T>(graph: &Graph, node: NodeId, reason: &str) -> Result<T> {
    let name = quoted(graph.node(node).name());
    mismatch(format!("node {name} cannot run in strips: {reason}"))
}
