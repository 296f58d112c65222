//! Rows over time: the rows that a run of nodes makes for each strip, and the needed line buffers.
//!
//! For each strip of the last result, every node makes the rows that the readers need and that are
//! not yet present. Rows needed by a later strip stay, so no row is made twice (`StreamNet`, Zheng
//! et al., `NeurIPS` 2023).

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use super::kernels::{Inside, Kernels, RowKernel, RowMoveCost, Way};
use super::stage::Stage;
use crate::base::{LiveRange, NodeId, Result, ValueId};
use crate::pack::{Budget, Buffer, Problem, Space, solve};
use crate::plan::{LineBuffer, RowsInPlace, Strips};

/// Line buffers begin at multiples of this byte count, so that kernels find aligned rows.
const ALIGNMENT: u64 = 64;
/// Most strips of a result.
const MOST_STRIPS: u64 = 4096;

/// The rows of a value that the readers need, by strip: from `low` up to `high`, which is 0 if no
/// row is needed.
#[derive(Clone, Debug)]
struct RowNeeds {
    low: Vec<u64>,
    high: Vec<u64>,
}

/// The memory for a value's rows.
#[derive(Clone, Copy, Debug)]
struct Line {
    value: ValueId,
    rows: u64,
    bytes: u64,
    /// Whether rows stay from strip to strip.
    is_kept: bool,
    /// Positions, counted from the last node, of the first and last nodes that use the memory.
    made: usize,
    read: usize,
}

/// Kernels that end with a value, in strips of a given height: added from the last kernel backward,
/// because rows depend only on later nodes.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    /// Rows per strip.
    pub(super) rows: u64,
    needs: BTreeMap<ValueId, RowNeeds>,
    /// By value, the position of the last reader.
    read: BTreeMap<ValueId, usize>,
    lines: Vec<Line>,
    at: usize,
    /// Scratch memory and time of all calls, per scratch size.
    ways: Vec<Way>,
    /// Time of moves.
    moves: u64,
}

impl Growth {
    /// Returns an empty list of kernels for the last value; `None` if there were too many strips,
    /// or there are no rows.
    pub(super) fn new(kernels: &Kernels, last: &Stage, rows: u64) -> Option<Self> {
        let strips = last.rows.checked_add(rows.checked_sub(1)?)? / rows;
        if strips > MOST_STRIPS {
            return None;
        }
        let low: Vec<u64> = (0..strips).map(|strip| strip * rows).collect();
        let high = low.iter().map(|low| low.saturating_add(rows).min(last.rows)).collect();
        Some(Self {
            rows,
            needs: BTreeMap::from([(last.value, RowNeeds { low, high })]),
            read: BTreeMap::new(),
            lines: Vec::new(),
            at: 0,
            ways: vec![Way { bytes: 0, time: 0 }; kernels.sizes],
            moves: 0,
        })
    }

    /// Adds the kernel before the present kernels; returns whether the kernels can run so. Results
    /// are in line buffers, except the last result and results in another value's rows.
    pub(super) fn add(
        &mut self,
        kernels: &Kernels,
        kernel: &RowKernel,
        takers: &BTreeMap<ValueId, NodeId>,
    ) -> bool {
        for (position, &id) in kernel.nodes.iter().rev().enumerate() {
            let Some(stage) = kernels.stage(id) else { return false };
            let Some(needs) = self.needs.remove(&stage.value) else { return false };
            if !self.add_needs(stage, &needs) {
                return false;
            }
            if position == 0 && !self.add_calls(kernel, &needs) {
                return false;
            }
            if self.at > 0 {
                self.add_line(kernels, stage, &needs, takers);
            }
            self.at += 1;
        }
        true
    }

    /// Adds the rows that a node reads; returns whether there are any for each strip.
    fn add_needs(&mut self, stage: &Stage, RowNeeds { low, high }: &RowNeeds) -> bool {
        for read in &stage.reads {
            let needs = self.needs.entry(read.value).or_insert_with(|| RowNeeds {
                low: vec![u64::MAX; low.len()],
                high: vec![0; low.len()],
            });
            let mut done = 0;
            for (strip, (&low, &high)) in low.iter().zip(high).enumerate() {
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
        true
    }

    /// Adds a kernel's calls; returns whether the kernel can make the rows.
    fn add_calls(&mut self, kernel: &RowKernel, RowNeeds { low, high }: &RowNeeds) -> bool {
        let (mut done, mut known, mut ways) = (0, 0, Vec::new());
        for (&low, &high) in low.iter().zip(high) {
            let rows = high.saturating_sub(low.max(done));
            done = done.max(high);
            if rows == 0 {
                continue;
            }
            if rows != known {
                (known, ways) = (rows, kernel.ways(rows));
            }
            if ways.is_empty() && !self.ways.is_empty() {
                return false;
            }
            for (sum, way) in self.ways.iter_mut().zip(&ways) {
                sum.bytes = sum.bytes.max(way.bytes);
                sum.time = sum.time.saturating_add(way.time);
            }
        }
        true
    }

    /// Adds the memory for a result's rows, unless another value has the memory.
    fn add_line(
        &mut self,
        kernels: &Kernels,
        stage: &Stage,
        RowNeeds { low, high }: &RowNeeds,
        takers: &BTreeMap<ValueId, NodeId>,
    ) {
        let mut home = stage.value;
        while let Some(&taker) = takers.get(&home) {
            home = kernels.stage(taker).map_or(home, |stage| stage.value);
        }
        if home != stage.value {
            // The memory is in use from the first value made in it.
            if let Some(line) = self.lines.iter_mut().find(|line| line.value == home) {
                line.made = self.at;
            }
            return;
        }
        let (mut done, mut base, mut rows, mut is_kept) = (0, 0, 0, false);
        let (mut strips, mut made) = (0_u64, 0_u64);
        for (&low, &high) in low.iter().zip(high) {
            is_kept |= low < done && high > 0;
            if low.max(done) < high {
                base = low.max(base);
                rows = rows.max(high - base);
                strips += 1;
                made += high - low.max(done);
            }
            done = done.max(high);
        }
        let bytes = rows.saturating_mul(stage.row_bytes);
        let read = self.read.get(&stage.value).copied().unwrap_or(self.at);
        self.lines.push(Line { value: home, rows, bytes, is_kept, made: self.at, read });
        if is_kept && strips > 0 {
            // As many rows at once as are new.
            let new = (made / strips).max(1);
            let kept = rows.saturating_sub(new);
            let RowMoveCost { call, thousand_bytes } = kernels.moves;
            let moved = kept.saturating_mul(stage.row_bytes).saturating_mul(thousand_bytes) / 1000;
            let each = kept.div_ceil(new).saturating_mul(call).saturating_add(moved);
            self.moves = self.moves.saturating_add(strips.saturating_mul(each));
        }
    }

    /// Iterates over the needed bytes of line buffers and scratch memory, and the time, per scratch
    /// size.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> + '_ {
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
        let lines = kept.saturating_add(brief.into_iter().max().unwrap_or(0));
        self.ways.iter().map(move |way| Way {
            bytes: lines.saturating_add(way.bytes),
            time: self.moves.saturating_add(way.time),
        })
    }
}

/// Nodes in execution order, and how the nodes run.
pub(super) struct InStrips {
    pub(super) nodes: Vec<NodeId>,
    pub(super) strips: Strips,
}

/// Returns the strips in which `nodes` run, with `rows` rows of the last node at once and places
/// for all line buffers; `None` if impossible.
pub(super) fn strips_of(
    kernels: &Kernels,
    nodes: &[NodeId],
    rows: u64,
    budget: &Budget<'_>,
) -> Result<Option<InStrips>> {
    let Some(ordered) = kernels.in_order(nodes) else { return Ok(None) };
    let nodes: Vec<NodeId> =
        ordered.iter().flat_map(|kernel| kernel.nodes.iter().copied()).collect();
    let last = nodes.last().and_then(|&id| kernels.stage(id));
    let growth = last.and_then(|last| Growth::new(kernels, last, rows));
    let Some(mut growth) = growth else { return Ok(None) };
    let takers = kernels.takers(&nodes);
    let mut inside = Inside::default();
    for kernel in ordered.iter().rev() {
        if !inside.add(kernels, kernel) || !growth.add(kernels, kernel, &takers) {
            return Ok(None);
        }
    }
    let in_place = nodes.iter().filter_map(|&id| {
        let value = kernels.stage(id)?.value;
        let of = kernels.stage(*takers.get(&value)?)?.value;
        Some(RowsInPlace { value: value.into(), of: of.into() })
    });
    let in_place = in_place.collect();
    let count = nodes.len();
    let mut lines = growth.lines;
    lines.reverse();
    let buffers = lines
        .iter()
        .map(|line| {
            let span =
                if line.is_kept { 0..count } else { count - 1 - line.made..count - line.read };
            let at = |position| u32::try_from(position).unwrap_or(u32::MAX);
            Ok(Buffer::new(padded(line.bytes), LiveRange::new(at(span.start), at(span.end))?))
        })
        .collect::<Result<Vec<_>>>()?;
    let packing = solve(&Problem::new(buffers, vec![Space::new("lines")])?, budget)?;
    let placed = lines.iter().zip(packing.offsets());
    let buffers = placed
        .map(|(line, &offset)| LineBuffer { value: line.value.into(), offset, rows: line.rows })
        .collect();
    Ok(Some(InStrips { nodes, strips: Strips { rows, buffers, in_place } }))
}

fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}
