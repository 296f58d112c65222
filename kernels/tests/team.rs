//! Kernels that a team divides make the bits of kernels that one thread runs.

#![allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    reason = "a test"
)]

use std::fmt::Debug;

use arenaplan_kernels::{
    Conv, Depthwise, Matrix, Normalization, Planes, PlanesMut, Pooling, Side, Sliding, Start, Team,
    packed_weights_len, pool, softmax,
};

mod numbers;

use numbers::numbers;

const BOUNDS: (f32, f32) = (-0.9, 40.0);

fn side(size: usize, kernel: usize, stride: usize, dilation: usize, pad: usize) -> Side {
    let out = (size + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
    Side { size, out, kernel, stride, dilation, before: pad }
}

/// Compares what teams make with what one thread makes.
fn same<T: PartialEq + Debug>(name: &str, make: impl Fn(&Team) -> Vec<T>) {
    let alone = make(&Team::alone());
    for threads in [2, 3, 7] {
        let team = Team::new(threads).unwrap();
        for _ in 0..3 {
            assert!(make(&team) == alone, "{name}: {threads} threads make other bits");
        }
    }
}

#[test]
fn divided_convolutions_have_the_same_bits() {
    let line = |size| Side { size, out: size, kernel: 1, stride: 1, dilation: 1, before: 0 };
    for (name, images, groups, fan_in, fan_out, rows, columns) in [
        ("rows", 1, 1, 24, 40, side(56, 3, 1, 1, 1), side(56, 3, 1, 1, 1)),
        ("strides", 1, 1, 16, 40, side(57, 5, 2, 1, 2), side(61, 5, 2, 1, 2)),
        ("gaps", 1, 1, 16, 40, side(40, 3, 1, 4, 4), side(40, 3, 1, 4, 4)),
        ("padding alone", 1, 1, 64, 64, side(5, 3, 1, 1, 16), side(40, 3, 1, 1, 1)),
        ("one element", 1, 1, 96, 200, side(15, 1, 1, 1, 0), side(13, 1, 1, 1, 0)),
        ("a line", 1, 1, 80, 64, line(1), side(400, 9, 1, 1, 4)),
        ("strides of a line", 1, 1, 80, 64, line(1), side(700, 9, 3, 2, 4)),
        ("channels", 1, 1, 300, 513, side(7, 3, 1, 1, 1), side(7, 3, 1, 1, 1)),
        ("one position", 1, 1, 1500, 1001, side(1, 1, 1, 1, 0), side(1, 1, 1, 1, 0)),
        ("groups", 1, 5, 24, 20, side(28, 3, 1, 1, 1), side(28, 3, 1, 1, 1)),
        ("images", 5, 1, 24, 20, side(28, 3, 2, 1, 1), side(28, 3, 1, 1, 1)),
    ] {
        let window = Sliding::new(rows, columns).unwrap();
        let conv = Conv::new(window, groups, fan_in, fan_out).unwrap();
        let image = numbers(images * groups * fan_in * window.plane(), 1);
        let weights = numbers(packed_weights_len(groups, fan_out, conv.depth()), 2);
        let bias = numbers(groups * fan_out, 3);
        let counts = [images, groups * fan_out];
        let addend = numbers(counts[0] * counts[1] * window.positions(), 4);
        for room in [48 * 5, conv.scratch_len()] {
            let run = |team: &Team, start: Start<'_>, made: &mut [f32]| {
                let image = Planes::new(&image, [images, groups * fan_in], window.plane()).unwrap();
                let mut output = PlanesMut::new(made, counts, window.positions()).unwrap();
                let schedule = conv.schedule(images, room, team.threads());
                assert!(team.threads() == 1 || format!("{schedule:?}").contains("Some"), "{name}");
                let (bias, mut scratch) = (Some(&*bias), vec![f32::NAN; room]);
                let scratch = &mut scratch;
                conv.run(
                    &schedule,
                    &image,
                    &weights,
                    bias,
                    start,
                    BOUNDS,
                    &mut output,
                    scratch,
                    team,
                )
                .unwrap();
            };
            same(name, |team| {
                let mut made = vec![f32::NAN; addend.len()];
                let numbers = Planes::new(&addend, counts, window.positions()).unwrap();
                run(team, Start::Numbers(numbers), &mut made);
                let mut over = addend.clone();
                run(team, Start::Result, &mut over);
                assert!(made == over, "{name}: bits depend on where the addend is");
                made
            });
        }
    }
}

#[test]
fn divided_channels_have_the_same_bits() {
    let window = Sliding::new(side(56, 3, 2, 1, 1), side(57, 5, 1, 1, 2)).unwrap();
    let sizes = Depthwise::new(window, 37, 2).unwrap();
    let image = numbers(2 * 37 * window.plane(), 1);
    let (weights, bias) = (numbers(74 * window.taps(), 2), numbers(74, 3));
    let planes = Planes::new(&image, [2, 37], window.plane()).unwrap();
    same("depthwise", |team| {
        let mut made = vec![f32::NAN; 2 * 74 * window.positions()];
        let mut output = PlanesMut::new(&mut made, [2, 74], window.positions()).unwrap();
        let mut scratch = vec![f32::NAN; sizes.scratch_len()];
        let (bias, scratch) = (Some(&*bias), &mut scratch);
        sizes.run(&planes, &weights, bias, BOUNDS, &mut output, scratch, team).unwrap();
        made
    });
    same("pooling", |team| {
        let mut made = vec![f32::NAN; 2 * 37 * window.positions()];
        let mut output = PlanesMut::new(&mut made, [2, 37], window.positions()).unwrap();
        let mut scratch = vec![f32::NAN; 57];
        pool(&window, Pooling::Max, &planes, &mut output, &mut scratch, team).unwrap();
        made
    });
}

#[test]
fn divided_products_have_the_same_bits() {
    for (count, depth, columns) in [(1, 700, 1000), (3, 500, 1003), (200, 300, 65), (90, 400, 211)]
    {
        let matrix = Matrix::new(depth, columns).unwrap();
        let mut packed = vec![0.0; matrix.packed_len()];
        matrix.pack(&numbers(depth * columns, 1), false, &mut packed).unwrap();
        let (rows, bias) = (numbers(2 * count * depth, 2), numbers(columns, 3));
        let rows = Planes::new(&rows, [2, count], depth).unwrap();
        same("product", |team| {
            let mut made = vec![f32::NAN; 2 * count * columns];
            let mut output = PlanesMut::new(&mut made, [2, count], columns).unwrap();
            matrix.run(&rows, &packed, Some(&bias), &mut output, team).unwrap();
            made
        });
    }
}

#[test]
fn divided_rows_have_the_same_bits() {
    let source = numbers(600 * 301, 1);
    let (scale, shift) = (numbers(301, 2), numbers(301, 3));
    for counts in [[1, 600], [600, 1], [4, 150]] {
        let planes = Planes::new(&source, counts, 301).unwrap();
        same("softmax", |team| {
            let mut made = vec![f32::NAN; source.len()];
            let mut output = PlanesMut::new(&mut made, counts, 301).unwrap();
            softmax(Some(&planes), &mut output, team).unwrap();
            made
        });
        let (scale, shift) = (Some(&*scale), Some(&*shift));
        let how = Normalization { is_centered: true, epsilon: 1e-5, scale, shift };
        same("normalization", |team| {
            let mut made = source.clone();
            let mut output = PlanesMut::new(&mut made, counts, 301).unwrap();
            how.run(None, &mut output, team).unwrap();
            made
        });
    }
}

/// Threads that work with one team at the same time each have their results.
#[test]
fn a_team_serves_several_threads() {
    let team = Team::new(3).unwrap();
    let rows = numbers(2000 * 64, 1);
    let run = |team: &Team| {
        let mut made = vec![f32::NAN; rows.len()];
        let source = Planes::new(&rows, [1, 2000], 64).unwrap();
        let mut output = PlanesMut::new(&mut made, [1, 2000], 64).unwrap();
        softmax(Some(&source), &mut output, team).unwrap();
        made
    };
    let wanted = run(&Team::alone());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert!(run(&team) == wanted, "other bits")));
        }
    });
}
