//! Chains, rows and pooling compute what their definitions say.

#![allow(
    clippy::similar_names,
    clippy::needless_range_loop,
    clippy::unwrap_used,
    reason = "a test"
)]

use arenaplan_kernels::{
    Argument, Chain, Function, Normalization, Planes, PlanesMut, Pooling, Side, Sliding, Step,
    Team, pool, softmax,
};

fn side(size: usize, kernel: usize, stride: usize, before: usize, after: usize) -> Side {
    let out = (size + before + after - kernel) / stride + 1;
    Side { size, out, kernel, stride, dilation: 1, before }
}

#[test]
fn rows_are_divided_by_the_sum_of_their_exponentials() {
    let source: Vec<f32> =
        (0..3 * 37).map(|at| f32::from(i16::try_from(at % 19).unwrap())).collect();
    let mut made = vec![0.0; source.len()];
    let planes = Planes::new(&source, [1, 3], 37).unwrap();
    softmax(Some(&planes), &mut PlanesMut::new(&mut made, [1, 3], 37).unwrap(), &Team::alone())
        .unwrap();
    let mut replaced = source.clone();
    softmax(None, &mut PlanesMut::new(&mut replaced, [1, 3], 37).unwrap(), &Team::alone()).unwrap();
    assert_eq!(made, replaced);
    for (row, source) in made.chunks(37).zip(source.chunks(37)) {
        let sum: f64 = source.iter().map(|&x| f64::from(x).exp()).sum();
        for (found, x) in row.iter().zip(source) {
            assert!((f64::from(*found) - f64::from(*x).exp() / sum).abs() < 1e-6);
        }
    }
}

#[test]
fn normalized_rows_have_mean_and_deviation_of_scale_and_shift() {
    let source: Vec<f32> =
        (0..2 * 50).map(|at| f32::from(i16::try_from(at * at % 23).unwrap())).collect();
    let (scale, shift) = (vec![2.0; 50], vec![5.0; 50]);
    for is_centered in [true, false] {
        let mut made = vec![0.0; 100];
        let planes = Planes::new(&source, [2, 1], 50).unwrap();
        let mut output = PlanesMut::new(&mut made, [2, 1], 50).unwrap();
        let normalization =
            Normalization { is_centered, epsilon: 1e-5, scale: Some(&scale), shift: Some(&shift) };
        normalization.run(Some(&planes), &mut output, &Team::alone()).unwrap();
        for (row, source) in made.chunks(50).zip(source.chunks(50)) {
            let mean = if is_centered { source.iter().sum::<f32>() / 50.0 } else { 0.0 };
            let variance = source.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 50.0;
            for (found, x) in row.iter().zip(source) {
                let wanted = (x - mean) / (variance + 1e-5).sqrt() * 2.0 + 5.0;
                assert!((found - wanted).abs() < 1e-4, "{found}, not {wanted}");
            }
        }
    }
}

#[test]
fn windows_are_pooled_whatever_their_size_stride_and_padding() {
    let all = [side(9, 3, 1, 1, 1), side(8, 2, 2, 0, 0), side(7, 3, 2, 1, 1), side(5, 5, 3, 2, 2)];
    for rows in all {
        for columns in all {
            let window = Sliding::new(rows, columns).unwrap();
            let size = rows.size * columns.size;
            let source: Vec<f32> = (0..2 * size)
                .map(|at| f32::from(i16::try_from(at * 7 % 31).unwrap()) - 15.0)
                .collect();
            let image = Planes::new(&source, [1, 2], size).unwrap();
            let by_row: Vec<f32> =
                (0..rows.out).map(|at| f32::from(u8::try_from(at + 1).unwrap())).collect();
            let by_column = vec![2.0; columns.out];
            for is_mean in [false, true] {
                let pooling = if is_mean {
                    Pooling::Mean { rows: &by_row, columns: &by_column }
                } else {
                    Pooling::Max
                };
                let mut made = vec![0.0; 2 * rows.out * columns.out];
                let mut output = PlanesMut::new(&mut made, [1, 2], rows.out * columns.out).unwrap();
                let mut scratch = vec![0.0; columns.size];
                pool(&window, pooling, &image, &mut output, &mut scratch, &Team::alone()).unwrap();
                for (at, found) in made.iter().enumerate() {
                    let (plane, rest) =
                        (at / (rows.out * columns.out), at % (rows.out * columns.out));
                    let (row, column) = (rest / columns.out, rest % columns.out);
                    let inside = |side: &Side, position: usize| {
                        let start = position * side.stride;
                        (start.max(side.before) - side.before)
                            ..(start + side.kernel).min(side.before + side.size) - side.before
                    };
                    let elements: Vec<f32> = inside(&rows, row)
                        .flat_map(|y| inside(&columns, column).map(move |x| (y, x)))
                        .map(|(y, x)| source[plane * size + y * columns.size + x])
                        .collect();
                    let wanted = if is_mean {
                        elements.iter().sum::<f32>() / (by_row[row] * 2.0)
                    } else {
                        elements.iter().copied().fold(f32::NEG_INFINITY, f32::max)
                    };
                    assert!((found - wanted).abs() < 1e-5, "{found}, not {wanted}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_number_stays_that() {
    let source = [1.0, f32::NAN, 2.0, 3.0];
    let window = Sliding::new(side(1, 1, 1, 0, 0), side(4, 2, 1, 0, 0)).unwrap();
    let mut made = [0.0; 3];
    let image = Planes::new(&source, [1, 1], 4).unwrap();
    let mut output = PlanesMut::new(&mut made, [1, 1], 3).unwrap();
    pool(&window, Pooling::Max, &image, &mut output, &mut [0.0; 4], &Team::alone()).unwrap();
    assert!(made[0].is_nan() && made[1].is_nan());
    assert_eq!(made[2].to_bits(), 3.0_f32.to_bits());
}

#[test]
fn programs_with_faults_are_refused() {
    let add = |first, second, to| Step::Apply {
        function: Function::Add,
        arguments: [Argument::Register(first), Argument::Register(second), Argument::Number(0.0)],
        to,
    };
    let load = Step::Load { from: 0, to: 0 };
    let strides = vec![vec![1], vec![1]];
    let of = |steps, result| Chain::new(steps, result, &[4], &strides);
    assert!(of(vec![load, add(0, 0, 1)], 1).is_ok());
    assert!(of(vec![load, add(0, 0, 0)], 0).is_err(), "a result in the place of an argument");
    assert!(of(vec![load, add(0, 1, 2)], 2).is_err(), "a register without content");
    assert!(of(vec![load, add(0, 0, 99)], 0).is_err(), "no such register");
    assert!(of(vec![Step::Load { from: 1, to: 0 }], 0).is_err(), "no such operand");
    assert!(of(vec![load], 3).is_err(), "a result that nobody made");
    assert!(Chain::new(vec![load], 0, &[4, 4], &[vec![4, 2], vec![4, 1]]).is_err());
}

#[test]
fn rows_of_one_element_may_be_apart() {
    let chain = |shape: &[usize], strides: &[Vec<usize>]| {
        Chain::new(vec![Step::Load { from: 0, to: 0 }], 0, shape, strides)
    };
    assert!(chain(&[2, 1], &[vec![1, 1], vec![3, 1]]).is_ok());
    assert!(chain(&[2, 3, 1], &[vec![3, 1, 1], vec![9, 3, 7]]).is_ok());
    assert!(chain(&[2, 3], &[vec![3, 1], vec![9, 3]]).is_err());
}
