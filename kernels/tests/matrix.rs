//! Products with a packed matrix compute what their definition says.

#![allow(clippy::unwrap_used, reason = "a test")]

use arenaplan_kernels::{Matrix, Planes, PlanesMut, Team};

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap()) / 32768.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn product(
    rows: &[f32],
    matrix: &Matrix,
    packed: &[f32],
    bias: Option<&[f32]>,
    (count, depth, columns): (usize, usize, usize),
) -> Vec<f32> {
    let mut made = vec![f32::NAN; count * columns];
    let rows = Planes::new(rows, [1, count], depth).unwrap();
    let mut output = PlanesMut::new(&mut made, [1, count], columns).unwrap();
    matrix.run(&rows, packed, bias, &mut output, &Team::alone()).unwrap();
    made
}

#[test]
fn products_of_all_sizes_are_those_of_the_definition() {
    for count in [1, 2, 3, 4, 5, 7, 8, 9, 13, 70] {
        for depth in [1, 7, 191, 400] {
            for columns in [1, 15, 16, 17, 33, 48, 49, 64, 65, 100] {
                let (rows, elements) = (numbers(count * depth, 1), numbers(depth * columns, 2));
                let bias = numbers(columns, 3);
                let matrix = Matrix::new(depth, columns).unwrap();
                let mut packed = vec![f32::NAN; matrix.packed_len()];
                matrix.pack(&elements, false, &mut packed).unwrap();
                let sizes = (count, depth, columns);
                let made = product(&rows, &matrix, &packed, Some(&bias), sizes);
                for (at, made) in made.iter().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    let terms = (0..depth).map(|k| {
                        f64::from(rows[row * depth + k]) * f64::from(elements[k * columns + column])
                    });
                    let wanted = terms.sum::<f64>() + f64::from(bias[column]);
                    assert!((f64::from(*made) - wanted).abs() < 2e-4, "{sizes:?}: {made} {wanted}");
                }
                // The last rows alone have the same bits.
                let some = count.min(3);
                let last = &rows[(count - some) * depth..];
                let part = product(last, &matrix, &packed, Some(&bias), (some, depth, columns));
                assert_eq!(part, made[(count - some) * columns..]);
                // So has the product with the matrix given column by column.
                let columns_first: Vec<f32> = (0..columns * depth)
                    .map(|at| elements[at % depth * columns + at / depth])
                    .collect();
                matrix.pack(&columns_first, true, &mut packed).unwrap();
                assert_eq!(product(&rows, &matrix, &packed, Some(&bias), sizes), made);
            }
        }
    }
}

/// Rows that are 4096 bytes apart are copied, but not a single one; of many rows only some elements are
/// worked on at a time.
#[test]
fn copied_rows_have_the_same_bits() {
    for count in [13, 140] {
        let (depth, columns) = (1024, 50);
        let (rows, elements) = (numbers(count * depth, 1), numbers(depth * columns, 2));
        let matrix = Matrix::new(depth, columns).unwrap();
        let mut packed = vec![f32::NAN; matrix.packed_len()];
        matrix.pack(&elements, false, &mut packed).unwrap();
        let made = product(&rows, &matrix, &packed, None, (count, depth, columns));
        for (row, made) in rows.chunks(depth).zip(made.chunks(columns)) {
            assert_eq!(product(row, &matrix, &packed, None, (1, depth, columns)), made);
        }
    }
}

#[test]
fn operands_of_other_sizes_are_refused() {
    let matrix = Matrix::new(4, 5).unwrap();
    let mut packed = vec![0.0; matrix.packed_len()];
    assert!(matrix.pack(&[0.0; 19], false, &mut packed).is_err());
    assert!(matrix.pack(&[0.0; 20], false, &mut packed[1..]).is_err());
    assert!(matrix.pack(&[0.0; 20], false, &mut packed).is_ok());
    let rows = Planes::new(&[0.0; 8], [1, 2], 4).unwrap();
    let mut made = [0.0; 10];
    let mut run = |packed: &[f32], bias: Option<&[f32]>| {
        let mut output = PlanesMut::new(&mut made, [1, 2], 5).unwrap();
        matrix.run(&rows, packed, bias, &mut output, &Team::alone())
    };
    assert!(run(&packed, None).is_ok());
    assert!(run(&packed[1..], None).is_err());
    assert!(run(&packed, Some(&[0.0; 4])).is_err());
    assert!(Matrix::new(0, 5).is_err());
    assert!(Matrix::new(usize::MAX / 8, 64).is_err());
}
