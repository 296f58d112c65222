//! Rows over time: what a run of nodes makes for each strip, and the line buffers that it needs.
//!
//! For each strip of the last result, every node makes the rows that its readers need and that are
//! not there yet. Rows that a later strip needs stay, so no row is made twice (`StreamNet`, Zheng et
//! al., `NeurIPS` 2023).

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use crate::base::{LiveRange, NodeId, Result, ValueId};
use crate::graph::{Graph, Node, ValueKind, Window};
use crate::pack::{Budget, Buffer, Problem, Space, solve};
use crate::plan::{LineBuffer, RowsInPlace, Strips};

/// Line buffers begin at multiples of this many bytes, so that kernels find aligned rows.
const ALIGNMENT: u64 = 64;
/// Strips of one result, at most.
const MOST_STRIPS: u64 = 4096;

/// A node that makes some rows of its only result from some rows of its operands.
#[derive(Debug)]
pub(super) struct Stage {
    /// The result.
    pub(super) value: ValueId,
    /// Rows of the result.
    pub(super) rows: u64,
    /// Bytes of one row in all planes of the result.
    row_bytes: u64,
    /// The dimension of the rows, in operands, too.
    axis: usize,
    /// Operands that are read row by row.
    reads: Vec<Read>,
    /// Operands that are read whole.
    wholes: Vec<ValueId>,
    /// The operand in whose rows the result can be made, if the node alone reads it.
    taken: Option<ValueId>,
}

#[derive(Debug)]
struct Read {
    value: ValueId,
    window: Window,
    /// Rows of the value.
    rows: u64,
}

/// The nodes of a graph that make rows from rows.
#[derive(Debug)]
pub(super) struct Stages {
    by_node: Vec<Option<Stage>>,
    /// By value: the nodes that name it.
    pub(super) users: Vec<Vec<NodeId>>,
}

impl Stages {
    pub(super) fn new(graph: &Graph) -> Self {
        let users = graph.users();
        let stage = |node: &Node| Stage::of(graph, node, &users);
        Self { by_node: graph.nodes().iter().map(stage).collect(), users }
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Stage> {
        self.by_node[node.index()].as_ref()
    }

    /// Returns, by value that nodes make in the rows of another, the node that takes the rows over.
    pub(super) fn takers(&self, nodes: &[NodeId]) -> BTreeMap<ValueId, NodeId> {
        let made: Vec<ValueId> =
            nodes.iter().filter_map(|&id| self.get(id)).map(|stage| stage.value).collect();
        let taken = nodes.iter().filter_map(|&id| Some((self.get(id)?.taken?, id)));
        taken.filter(|(value, _)| made.contains(value)).collect()
    }
}

impl Stage {
    fn of(graph: &Graph, node: &Node, users: &[Vec<NodeId>]) -> Option<Self> {
        let effects = node.effects();
        let is_simple = effects.mutates.is_empty()
            && effects.ignores.is_empty()
            && node.control_dependencies().is_empty();
        let mut produced = node.produces();
        let (position, value) = produced.next().filter(|_| is_simple)?;
        let mut windows = effects.windows.iter().filter(|window| window.output == position);
        let axis = windows.clone().next()?.axis;
        if produced.next().is_some() || effects.windows.iter().any(|window| window.axis != axis) {
            return None;
        }
        let made = graph.value(value);
        let rows = *made.shape().get(axis).filter(|&&rows| rows > 0)?;
        let is_whole = made.dtype().bits() >= 8 && made.bytes() > 0;
        if !is_whole || !made.bytes().is_multiple_of(rows) {
            return None;
        }
        let (mut reads, mut wholes) = (Vec::new(), Vec::new());
        let mut taken = None;
        for (input, value) in node.reads_bytes_of() {
            let Some(&window) = windows.clone().find(|window| window.input == input) else {
                wholes.push(value);
                continue;
            };
            let operand = graph.value(value);
            let rows = *operand.shape().get(axis)?;
            reads.push(Read { value, window, rows });
            let may_take = window.is_pointwise()
                && effects.in_place.iter().any(|it| (it.input, it.output) == (input, position))
                && users[value.index()].len() == 1
                && operand.kind() == ValueKind::Activation
                && !graph.outputs().contains(&value)
                && (operand.shape(), operand.dtype()) == (made.shape(), made.dtype());
            if may_take && taken.is_none() {
                taken = Some(value);
            }
        }
        windows.next()?;
        let row_bytes = made.bytes() / rows;
        Some(Self { value, rows, row_bytes, axis, reads, wholes, taken })
    }

    /// Iterates over the values that it reads.
    pub(super) fn operands(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.reads.iter().map(|read| read.value).chain(self.wholes.iter().copied())
    }

    /// Returns whether the stage can read what another one makes, as far as it reads that.
    pub(super) fn can_follow(&self, other: &Self) -> bool {
        let is_read = self.reads.iter().any(|read| read.value == other.value);
        (!is_read || self.axis == other.axis) && !self.wholes.contains(&other.value)
    }
}

/// The rows of a value that its readers need, by strip: from `low` up to `high`, which is 0 where
/// none is needed.
#[derive(Clone, Debug)]
struct Needs {
    low: Vec<u64>,
    high: Vec<u64>,
}

/// The memory for rows of one value.
#[derive(Clone, Copy, Debug)]
struct Line {
    value: ValueId,
    rows: u64,
    bytes: u64,
    /// Whether rows stay from strip to strip.
    is_kept: bool,
    /// Positions, counted from the last stage, of the stage that makes the value and of the last
    /// one that reads the value.
    made: usize,
    read: usize,
}

/// Stages that end with one value, in strips of some height: added from the last one back, since
/// rows depend on later stages only.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    /// Rows of a strip.
    pub(super) rows: u64,
    /// Runs of stages for all strips.
    pub(super) calls: u64,
    needs: BTreeMap<ValueId, Needs>,
    /// By value, the position of the last stage that reads it.
    read: BTreeMap<ValueId, usize>,
    lines: Vec<Line>,
    at: usize,
}

impl Growth {
    /// Returns no stage yet, for the last value; `None` if its strips were too many.
    pub(super) fn new(last: &Stage, rows: u64) -> Option<Self> {
        let strips = last.rows.div_ceil(rows);
        if strips > MOST_STRIPS {
            return None;
        }
        let low: Vec<u64> = (0..strips).map(|strip| strip * rows).collect();
        let high = low.iter().map(|low| (low + rows).min(last.rows)).collect();
        let needs = BTreeMap::from([(last.value, Needs { low, high })]);
        Some(Self { rows, calls: 0, needs, read: BTreeMap::new(), lines: Vec::new(), at: 0 })
    }

    /// Adds the stage before those that are there, whose result is in a line buffer unless it is
    /// in the rows of another value, or the last one; returns whether the stages can run so.
    pub(super) fn add(&mut self, stage: &Stage, has_line: bool) -> bool {
        let Some(Needs { low, high }) = self.needs.remove(&stage.value) else { return false };
        for read in &stage.reads {
            let needs = self.needs.entry(read.value).or_insert_with(|| Needs {
                low: vec![u64::MAX; low.len()],
                high: vec![0; low.len()],
            });
            let mut done = 0;
            for (strip, (&low, &high)) in low.iter().zip(&high).enumerate() {
                let made = low.max(done)..high;
                done = done.max(high);
                if made.is_empty() {
                    continue;
                }
                let seen = read.window.needs(made, read.rows);
                if seen.is_empty() {
                    return false; // The windows lie in the padding.
                }
                needs.low[strip] = needs.low[strip].min(seen.start);
                needs.high[strip] = needs.high[strip].max(seen.end);
            }
            self.read.entry(read.value).or_insert(self.at);
        }
        let (mut done, mut base, mut rows, mut is_kept) = (0, 0, 0, false);
        for (&low, &high) in low.iter().zip(&high) {
            is_kept |= low < done && high > 0;
            if low.max(done) < high {
                base = low.max(base);
                rows = rows.max(high - base);
                self.calls += 1;
            }
            done = done.max(high);
        }
        if has_line {
            let bytes = rows.saturating_mul(stage.row_bytes);
            let read = self.read.get(&stage.value).copied().unwrap_or(self.at);
            let (value, made) = (stage.value, self.at);
            self.lines.push(Line { value, rows, bytes, is_kept, made, read });
        }
        self.at += 1;
        true
    }

    /// Returns the bytes of line buffers that are needed at once.
    pub(super) fn bytes(&self) -> u64 {
        let mut brief = vec![0_u64; self.at];
        let mut kept = 0_u64;
        for line in &self.lines {
            let bytes = padded(line.bytes);
            if line.is_kept {
                kept = kept.saturating_add(bytes);
                continue;
            }
            for sum in &mut brief[line.read..=line.made] {
                *sum = sum.saturating_add(bytes);
            }
        }
        kept.saturating_add(brief.into_iter().max().unwrap_or(0))
    }
}

/// Returns the strips in which `nodes` run, the last of which makes `rows` rows at once, with places
/// for all line buffers; `None` if they cannot run so.
pub(super) fn strips_of(
    stages: &Stages,
    nodes: &[NodeId],
    rows: u64,
    budget: &Budget<'_>,
) -> Result<Option<Strips>> {
    let Some(stages_of) = nodes.iter().map(|&id| stages.get(id)).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let Some((last, _)) = stages_of.split_last() else { return Ok(None) };
    let takers = stages.takers(nodes);
    let Some(mut growth) = Growth::new(last, rows) else { return Ok(None) };
    for stage in stages_of.iter().rev() {
        let has_line = stage.value != last.value && !takers.contains_key(&stage.value);
        if !growth.add(stage, has_line) {
            return Ok(None);
        }
    }
    // A line buffer is in use from the first value that is made in its rows.
    let mut first: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut in_place = Vec::new();
    for (at, stage) in stages_of.iter().enumerate() {
        let made = first.get(&stage.value).copied().unwrap_or(at);
        if let Some(of) = takers.get(&stage.value).and_then(|&id| stages.get(id)) {
            in_place.push(RowsInPlace { value: stage.value.into(), of: of.value.into() });
            let known = first.entry(of.value).or_insert(made);
            *known = made.min(*known);
        }
    }
    let count = stages_of.len();
    let mut lines = growth.lines;
    lines.reverse();
    let buffers = lines
        .iter()
        .map(|line| {
            let made = count - 1 - line.made;
            let made = first.get(&line.value).copied().unwrap_or(made);
            let span = if line.is_kept { 0..count } else { made..count - line.read };
            let at = |position| u32::try_from(position).unwrap_or(u32::MAX);
            Ok(Buffer::new(padded(line.bytes), LiveRange::new(at(span.start), at(span.end))?))
        })
        .collect::<Result<Vec<_>>>()?;
    let packing = solve(&Problem::new(buffers, vec![Space::new("lines")])?, budget)?;
    let placed = lines.iter().zip(packing.offsets());
    let buffers = placed
        .map(|(line, &offset)| LineBuffer { value: line.value.into(), offset, rows: line.rows })
        .collect();
    Ok(Some(Strips { rows, buffers, in_place }))
}

fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}
