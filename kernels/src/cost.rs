//! Costs: about how many cycles products take.

use crate::tile::{COPIED_COLUMNS, COPIED_ROWS, COPIED_WEIGHTS, FEW_ROWS, ROWS};

/// Returns an estimate of the cycles for a product of column vectors and weight rows.
pub(crate) fn product_cycles(vectors: usize, rows: usize, depth: usize, passes: usize) -> usize {
    let halves = rows.div_ceil(ROWS / 2);
    // Two multiplications per cycle. Each pass loads and stores the sums, and begins to read weights
    // at as many places as there are panels.
    vectors * halves * (depth * 2 + passes * 48) + passes * halves * 100
}

/// Returns an estimate of the cycles for a product with copied columns. The unit is that of
/// [`product_cycles`]: a processor with AVX-512 takes half the time of this processor.
///
/// # Arguments
///
/// * `passes`: parts of the operand's rows.
/// * `pieces`: pieces of a row from which a tile is copied.
pub(crate) fn copied_cycles(
    positions: usize,
    fan_out: usize,
    depth: usize,
    passes: usize,
    pieces: usize,
) -> usize {
    let each = depth.div_ceil(passes);
    let passes = passes * each.div_ceil(COPIED_ROWS);
    let panels = fan_out.div_ceil(FEW_ROWS);
    let parts = (panels * depth.div_ceil(passes) * FEW_ROWS).div_ceil(COPIED_WEIGHTS);
    // Twelve multiplications per row, two at a time, and twelve loads and stores of sums per pass.
    let product = panels * (depth * 3 + passes * 24);
    // Weights come from a third-level cache, where other parts find the weights as well.
    let read = fan_out * depth / 4;
    positions.div_ceil(COPIED_COLUMNS) * (product + parts * depth * (1 + pieces)) + read
}
