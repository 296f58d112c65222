//! Product columns that are copied side by side, for a processor with 16 registers.
//!
//! Such a processor has registers for a tile with six rows and two vectors, which reads operands
//! more often than a larger tile. So a tile's columns are copied into a first-level cache, and stay
//! there while all weight rows are multiplied by them: the packing in "Anatomy of High-Performance
//! Matrix Multiplication" (Goto and van de Geijn, 2008).

use std::ops::Range;

use rten_simd::ops::BitOps;
use rten_simd::{Isa, SimdOp};

use crate::pack::Channels;
use crate::product::{Framed, Made, Pass, Place, Unrolled};
use crate::raw::load_part;
use crate::tile::{COLUMNS, COPIED_COLUMNS, COPIED_ROWS, FEW_ROWS, FEW_VECTORS};

/// So few weight rows are not worth a copy of the columns.
pub(crate) const FEW: usize = FEW_ROWS;

/// A tile row.
type TileRow = [f32; COPIED_COLUMNS];
/// A tile's columns.
pub(crate) type Copied<'a> = Unrolled<'a, COPIED_COLUMNS>;

/// A right operand whose columns can be copied.
pub(crate) trait Copiable {
    /// Writes successive columns of some rows, with a row pitch of [`COPIED_COLUMNS`] elements.
    /// Elements behind the columns, and in a row behind the last, are undefined afterwards.
    fn copy<I: Isa>(&self, isa: I, rows: Range<usize>, at: usize, count: usize, target: &mut [f32]);
}

/// Memory for the columns of a tile, and for lanes behind the last row.
#[repr(align(64))]
pub(crate) struct Memory([TileRow; COPIED_ROWS + 1]);

impl Memory {
    #[allow(clippy::large_stack_arrays, reason = "half of a first-level cache")]
    pub(crate) fn new() -> Self {
        Self([[0.0; COPIED_COLUMNS]; COPIED_ROWS + 1])
    }

    /// Copies `count` columns of some rows, at most [`COPIED_COLUMNS`] columns and [`COPIED_ROWS`]
    /// rows.
    #[inline(always)]
    pub(crate) fn fill<I: Isa>(
        &mut self,
        isa: I,
        columns: &impl Copiable,
        rows: Range<usize>,
        at: usize,
        count: usize,
    ) -> Copied<'_> {
        let depth = rows.len();
        self.fill_from(0, isa, columns, rows, at, count);
        self.part(0, depth)
    }

    /// Copies as [`Self::fill`] does, from a row of the memory on. Content behind these rows is
    /// lost.
    #[inline(always)]
    pub(crate) fn fill_from<I: Isa>(
        &mut self,
        first: usize,
        isa: I,
        columns: &impl Copiable,
        rows: Range<usize>,
        at: usize,
        count: usize,
    ) {
        let target = &mut self.0[first..=first + rows.len()];
        columns.copy(isa, rows, at, count, target.as_flattened_mut());
    }

    /// Returns some rows in the memory.
    #[inline(always)]
    pub(crate) fn part(&self, first: usize, depth: usize) -> Copied<'_> {
        Unrolled(&self.0[first..first + depth])
    }
}

impl Copiable for Unrolled<'_> {
    #[inline(always)]
    fn copy<I: Isa>(
        &self,
        isa: I,
        rows: Range<usize>,
        at: usize,
        count: usize,
        target: &mut [f32],
    ) {
        let ops = isa.f32();
        let stop = COLUMNS.min(at + count.next_multiple_of(ops.len()));
        for (row, target) in self.0[rows].iter().zip(target.as_chunks_mut::<COPIED_COLUMNS>().0) {
            for (from, to) in
                row[at..stop].chunks_exact(ops.len()).zip(target.chunks_exact_mut(ops.len()))
            {
                ops.store(ops.load(from), to);
            }
        }
    }
}

impl Copiable for Framed<'_> {
    #[inline(always)]
    fn copy<I: Isa>(
        &self,
        isa: I,
        rows: Range<usize>,
        at: usize,
        count: usize,
        target: &mut [f32],
    ) {
        // The places of each result row's positions in the frame, and in the tile.
        let mut pieces = [(0, 0); COPIED_COLUMNS];
        let mut len = 0;
        let mut lane = 0;
        while lane < count {
            let (row, column) = ((at + lane) / self.width, (at + lane) % self.width);
            pieces[len] = (lane, row * self.pitch + column);
            len += 1;
            lane += self.width - column;
        }
        // With one and with two pieces the compiler knows the number.
        match &pieces[..len] {
            [piece] => self.copy_pieces(isa, rows, &[*piece], target),
            [first, second] => self.copy_pieces(isa, rows, &[*first, *second], target),
            pieces => self.copy_pieces(isa, rows, pieces, target),
        }
    }
}

impl Framed<'_> {
    /// Writes pieces of some rows, each a tile lane and an element in a frame part. The next piece
    /// overwrites elements behind the end of a piece.
    #[inline(always)]
    fn copy_pieces<I: Isa>(
        &self,
        isa: I,
        rows: Range<usize>,
        pieces: &[(usize, usize)],
        target: &mut [f32],
    ) {
        let ops = isa.f32();
        let count = rows.len();
        let mut skipped = rows.start % self.taps.len();
        let mut start = rows.start / self.taps.len() * self.plane;
        let mut row = 0;
        while row < count {
            let elements = &self.elements[start..];
            for tap in self.taps[skipped..].iter().take(count - row) {
                let target = &mut target[row * COPIED_COLUMNS..][..2 * COPIED_COLUMNS];
                for (lane, first) in pieces {
                    let from = &elements[first + tap..][..COPIED_COLUMNS];
                    let to = &mut target[*lane..][..COPIED_COLUMNS];
                    for v in (0..COPIED_COLUMNS).step_by(ops.len()) {
                        ops.store(ops.load(&from[v..]), &mut to[v..]);
                    }
                }
                row += 1;
            }
            (start, skipped) = (start + self.plane, 0);
        }
    }
}

/// An image's channels, for a window with one element.
pub(crate) struct Whole<'c, 'a, 'i>(pub(crate) &'c Channels<'a, 'i>);

impl Copiable for Whole<'_, '_, '_> {
    #[inline(always)]
    fn copy<I: Isa>(
        &self,
        isa: I,
        rows: Range<usize>,
        at: usize,
        count: usize,
        target: &mut [f32],
    ) {
        let ops = isa.f32();
        let lanes = ops.len();
        for (row, target) in rows.zip(target.as_chunks_mut::<COPIED_COLUMNS>().0) {
            let line = &self.0.plane(row)[at..at + count];
            if count == FEW_VECTORS * lanes {
                for v in 0..FEW_VECTORS {
                    ops.store(ops.load(&line[v * lanes..]), &mut target[v * lanes..]);
                }
            } else {
                for (line, target) in line.chunks(lanes).zip(target.chunks_exact_mut(lanes)) {
                    ops.store(load_part(isa, line), target);
                }
            }
        }
    }
}

/// The products of weight panels and a tile's columns, where all sums are results.
///
/// A separate function, as in [`Panel`]: between the loads and stores of other tiles the compiler
/// would keep numbers in registers which the sums need, and a sum in memory halves the rate.
pub(crate) struct WholePanels<'p, 'a, 'i, 'o> {
    /// Weights in whole panels, one panel after another.
    pub(crate) weights: &'p [f32],
    /// Rows per panel.
    pub(crate) depth: usize,
    /// The first row that counts.
    pub(crate) row: usize,
    pub(crate) columns: &'p Copied<'p>,
    /// The first channel.
    pub(crate) channel: usize,
    /// The first element in a result plane.
    pub(crate) at: usize,
    pub(crate) pass: Pass,
    pub(crate) result: &'p mut Made<'a, 'i, 'o>,
}

impl SimdOp for WholePanels<'_, '_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { weights, depth, row, columns, channel, at, pass, result } = self;
        let rows = weights.as_chunks::<FEW_ROWS>().0;
        for (panel, rows) in rows.chunks_exact(depth).enumerate() {
            let channel = channel + panel * FEW_ROWS;
            let rows = &rows[row..];
            result.whole::<I, _, FEW_ROWS, FEW_VECTORS>(isa, rows, columns, channel, at, pass);
        }
    }
}

/// The product of a weight panel and a tile's columns.
pub(crate) struct Panel<'p, 'a, 'i, 'o> {
    pub(crate) weights: &'p [f32],
    pub(crate) columns: &'p Copied<'p>,
    pub(crate) vectors: usize,
    pub(crate) place: &'p Place<'p>,
    pub(crate) result: &'p mut Made<'a, 'i, 'o>,
}

impl SimdOp for Panel<'_, '_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self { weights, columns, vectors, place, result } = self;
        result.panel(isa, weights, vectors, columns, 0, place);
    }
}
