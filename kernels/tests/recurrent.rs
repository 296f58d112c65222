//! Steps of recurrent layers compute what their definitions say.

#![allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    reason = "a test"
)]

use arenaplan_kernels::{Cell, PlanesMut, Recurrence, State};

mod numbers;

use numbers::numbers;

/// Numbers that look random, between -1 and 1.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Does one step of one sequence by the definition; `weights` has one row per hidden element.
fn step(
    cell: Cell,
    sums: &[f32],
    (hidden, memory): (&mut [f64], &mut [f64]),
    weights: &[f32],
    bias: &[f32],
) {
    let size = hidden.len();
    let gates = sums.len() / size;
    let product = |state: &[f64], column: usize| -> f64 {
        let rows = weights.chunks(gates * size);
        state.iter().zip(rows).map(|(x, row)| x * f64::from(row[column])).sum()
    };
    let before = hidden.to_vec();
    let sum = |gate: usize, at: usize| {
        let column = gate * size + at;
        f64::from(sums[column]) + product(&before, column)
    };
    let reset: Vec<f64> = match cell {
        Cell::Gated { .. } => (0..size).map(|at| before[at] * sigmoid(sum(1, at))).collect(),
        _ => Vec::new(),
    };
    for at in 0..size {
        hidden[at] = match cell {
            Cell::Plain => sum(0, at).tanh(),
            Cell::Rectified => sum(0, at).max(0.0),
            Cell::Memory => {
                let kept = memory[at] * sigmoid(sum(2, at));
                memory[at] = kept + sigmoid(sum(0, at)) * sum(3, at).tanh();
                sigmoid(sum(1, at)) * memory[at].tanh()
            }
            Cell::Gated { resets_late } => {
                let given = f64::from(sums[2 * size + at]);
                let fresh = if resets_late {
                    let made = product(&before, 2 * size + at) + f64::from(bias[at]);
                    given + sigmoid(sum(1, at)) * made
                } else {
                    given + product(&reset, 2 * size + at)
                };
                let update = sigmoid(sum(0, at));
                (1.0 - update) * fresh.tanh() + update * before[at]
            }
        };
    }
}

#[test]
fn steps_of_all_cells_are_those_of_the_definition() {
    let cells = [
        Cell::Plain,
        Cell::Rectified,
        Cell::Gated { resets_late: false },
        Cell::Gated { resets_late: true },
        Cell::Memory,
    ];
    for cell in cells {
        for (size, sequences, steps) in [(1, 1, 3), (16, 2, 4), (37, 9, 3)] {
            let sizes = Recurrence::new(cell, size).unwrap();
            let rows = sizes.gates() * size;
            let weights: Vec<f32> = numbers(size * rows, 1).iter().map(|x| x / 4.0).collect();
            let bias = numbers(size, 2);
            let early = sizes.early().unwrap();
            let split = if let Cell::Gated { .. } = cell { 2 * size } else { rows };
            let part = |start: usize, stop: usize| -> Vec<f32> {
                weights.chunks(rows).flat_map(|row| row[start..stop].to_vec()).collect()
            };
            let mut packed = vec![0.0; early.packed_len()];
            early.pack(&part(0, split), false, &mut packed).unwrap();
            let mut late = Vec::new();
            if split < rows {
                late = vec![0.0; sizes.late().unwrap().packed_len()];
                sizes.late().unwrap().pack(&part(split, rows), false, &mut late).unwrap();
            }
            for is_backward in [false, true] {
                let given = numbers(steps * sequences * rows, 3);
                let mut sums = given.clone();
                let (mut hidden, mut memory) =
                    (numbers(sequences * size, 4), numbers(sequences * size, 5));
                let mut wanted: Vec<f64> = hidden.iter().copied().map(f64::from).collect();
                let mut cells: Vec<f64> = memory.iter().copied().map(f64::from).collect();
                let mut made = vec![f32::NAN; steps * sequences * size];
                let mut output = PlanesMut::new(&mut made, [steps, sequences], size).unwrap();
                let mut state = State { hidden: &mut hidden, cell: &mut memory };
                let mut planes = PlanesMut::new(&mut sums, [steps, sequences], rows).unwrap();
                let (bias, output) = (Some(&*bias), Some(&mut output));
                sizes
                    .run(&mut planes, &mut state, &packed, &late, bias, output, is_backward)
                    .unwrap();
                for at in 0..steps {
                    let at = if is_backward { steps - 1 - at } else { at };
                    for n in 0..sequences {
                        let sums = &given[(at * sequences + n) * rows..][..rows];
                        let own = n * size..(n + 1) * size;
                        let state = (&mut wanted[own.clone()], &mut cells[own.clone()]);
                        step(cell, sums, state, &weights, bias.unwrap());
                        let made = &made[(at * sequences + n) * size..][..size];
                        for (found, wanted) in made.iter().zip(&wanted[own]) {
                            let error = (f64::from(*found) - wanted).abs();
                            assert!(error < 2e-6, "{cell:?}, {size}: {found}, not {wanted}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn operands_of_other_sizes_are_refused() {
    let sizes = Recurrence::new(Cell::Memory, 4).unwrap();
    let packed = vec![0.0; sizes.early().unwrap().packed_len()];
    let run = |packed: &[f32], hidden: usize, made: usize| {
        let (mut sums, mut made) = (vec![0.0; 32], vec![0.0; 2 * made]);
        let size = made.len() / 2;
        let mut planes = PlanesMut::new(&mut sums, [2, 1], 16).unwrap();
        let mut output = PlanesMut::new(&mut made, [2, 1], size).unwrap();
        let (mut hidden, mut cell) = (vec![0.0; hidden], vec![0.0; 4]);
        let mut state = State { hidden: &mut hidden, cell: &mut cell };
        sizes.run(&mut planes, &mut state, packed, &[], None, Some(&mut output), false)
    };
    assert!(run(&packed, 4, 4).is_ok());
    assert!(run(&packed[1..], 4, 4).is_err());
    assert!(run(&packed, 5, 4).is_err());
    assert!(run(&packed, 4, 3).is_err());
    assert!(Recurrence::new(Cell::Plain, 0).is_err());
}
