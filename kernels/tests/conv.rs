//! Convolutions compute what their definition says.

#![allow(
    clippy::similar_names,
    clippy::needless_range_loop,
    clippy::unwrap_used,
    reason = "a test"
)]

use arenaplan_kernels::{
    Conv, Depthwise, Planes, PlanesMut, Side, Sliding, Start, Team, packed_weights,
    packed_weights_len,
};

mod numbers;

use numbers::numbers;

struct Case {
    batch: usize,
    groups: usize,
    fan_in: usize,
    fan_out: usize,
    rows: Side,
    columns: Side,
}

impl Case {
    fn wanted(&self, image: &[f32], weights: &[f32], bias: &[f32]) -> Vec<f32> {
        let mut made = Vec::new();
        let channels = self.groups * self.fan_in;
        for n in 0..self.batch {
            for channel in 0..self.groups * self.fan_out {
                for row in 0..self.rows.out {
                    for column in 0..self.columns.out {
                        let mut sum = f64::from(bias[channel]);
                        for c in 0..self.fan_in {
                            for y in 0..self.rows.kernel {
                                for x in 0..self.columns.kernel {
                                    let inside = (row * self.rows.stride + y * self.rows.dilation)
                                        .checked_sub(self.rows.before)
                                        .zip(
                                            (column * self.columns.stride
                                                + x * self.columns.dilation)
                                                .checked_sub(self.columns.before),
                                        )
                                        .filter(|&(h, w)| {
                                            h < self.rows.size && w < self.columns.size
                                        });
                                    let Some((h, w)) = inside else { continue };
                                    let source = channel / self.fan_out * self.fan_in + c;
                                    let plane = (n * channels + source) * self.rows.size;
                                    let element = image[(plane + h) * self.columns.size + w];
                                    let at = (channel * self.fan_in + c) * self.rows.kernel + y;
                                    let weight = weights[at * self.columns.kernel + x];
                                    sum += f64::from(element) * f64::from(weight);
                                }
                            }
                        }
                        #[allow(clippy::cast_possible_truncation, clippy::as_conversions)]
                        made.push(sum as f32);
                    }
                }
            }
        }
        made
    }
}

fn side(size: usize, kernel: usize, stride: usize, dilation: usize, pads: (usize, usize)) -> Side {
    let extent = (kernel - 1) * dilation + 1;
    let out = (size + pads.0 + pads.1 - extent) / stride + 1;
    Side { size, out, kernel, stride, dilation, before: pads.0 }
}

fn near(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    for (at, (a, b)) in found.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "element {at}: {a}, not {b}");
    }
}

/// Runs a convolution on one thread.
#[allow(clippy::too_many_arguments, reason = "those of the kernel")]
fn run(
    conv: &Conv,
    image: &Planes<'_>,
    weights: &[f32],
    bias: Option<&[f32]>,
    start: Start<'_>,
    bounds: (f32, f32),
    output: &mut PlanesMut<'_>,
    scratch: &mut [f32],
) {
    let schedule = conv.schedule(image.counts()[0], scratch.len(), 1);
    let team = Team::alone();
    conv.run(&schedule, image, weights, bias, start, bounds, output, scratch, &team).unwrap();
}

/// Sizes of one dimension: with and without padding, strides, gaps, and more padding than image.
fn sides() -> Vec<Side> {
    vec![
        side(9, 1, 1, 1, (0, 0)),
        side(17, 3, 1, 1, (1, 1)),
        side(70, 3, 1, 1, (1, 1)),
        side(13, 3, 2, 1, (1, 1)),
        side(14, 3, 2, 1, (0, 1)),
        side(11, 5, 3, 2, (4, 3)),
        side(4, 7, 1, 1, (3, 3)),
        side(1, 3, 1, 1, (1, 1)),
        side(10, 1, 2, 1, (0, 0)),
        side(3, 2, 4, 3, (5, 6)),
        side(3, 3, 1, 1, (1, 1)),
        side(20, 11, 1, 1, (5, 5)),
    ]
}

#[test]
fn convolutions_of_all_sizes_are_those_of_the_definition() {
    let sides = sides();
    for (at, rows) in sides.iter().enumerate() {
        for (to, columns) in sides.iter().enumerate() {
            let sizes = [(1, 3, 5), (2, 2, 8), (1, 1, 1), (3, 4, 20)][(at + to) % 4];
            let (groups, fan_in, fan_out) = sizes;
            let case =
                Case { batch: 1 + at % 2, groups, fan_in, fan_out, rows: *rows, columns: *columns };
            let window = Sliding::new(*rows, *columns).unwrap();
            let depth = fan_in * window.taps();
            let channels = groups * fan_in;
            let image = numbers(case.batch * channels * window.plane(), 1);
            let weights = numbers(groups * fan_out * depth, 2);
            let bias = numbers(groups * fan_out, 3);
            let mut packed = vec![0.0; packed_weights_len(groups, fan_out, depth)];
            packed_weights(&weights, groups, fan_out, depth, &mut packed).unwrap();
            let wanted = case.wanted(&image, &weights, &bias);
            let conv = Conv::new(window, groups, fan_in, fan_out).unwrap();
            let planes = Planes::new(&image, [case.batch, channels], window.plane()).unwrap();
            let mut bits: Vec<Vec<u32>> = Vec::new();
            // One row of the matrix at a time, a few; frames of some channels and rows, and of all.
            for scratch in [48, 150, 300, 700, 2000, conv.scratch_len()] {
                let mut made = vec![f32::NAN; wanted.len()];
                let counts = [case.batch, groups * fan_out];
                let mut output = PlanesMut::new(&mut made, counts, window.positions()).unwrap();
                let mut scratch = vec![f32::NAN; scratch];
                let bounds = (f32::NEG_INFINITY, f32::INFINITY);
                let (bias, start) = (Some(&*bias), Start::Nothing);
                run(&conv, &planes, &packed, bias, start, bounds, &mut output, &mut scratch);
                near(&made, &wanted);
                bits.push(made.iter().map(|x| x.to_bits()).collect());
            }
            assert!(bits.iter().all(|each| *each == bits[0]), "bits depend on scratch memory");
            for len in [48, conv.scratch_len()] {
                let counts = [case.batch, groups * fan_out];
                let addend = numbers(wanted.len(), 4);
                let numbers = Planes::new(&addend, counts, window.positions()).unwrap();
                let mut apart = vec![f32::NAN; wanted.len()];
                let mut over = addend.clone();
                for (start, made) in
                    [(Start::Numbers(numbers), &mut apart), (Start::Result, &mut over)]
                {
                    let mut output = PlanesMut::new(made, counts, window.positions()).unwrap();
                    let (bias, mut scratch) = (Some(&*bias), vec![f32::NAN; len]);
                    let bounds = (-0.75, f32::INFINITY);
                    run(&conv, &planes, &packed, bias, start, bounds, &mut output, &mut scratch);
                }
                let sums = wanted.iter().zip(&addend).map(|(a, b)| (a + b).max(-0.75));
                near(&apart, &sums.collect::<Vec<_>>());
                assert_eq!(apart, over, "bits depend on where the addend is");
            }
        }
    }
}

/// More rows of the operand, and more weights, than stay in a cache; positions that end anywhere.
#[test]
fn many_channels_are_convolved_as_the_definition_says() {
    for (kernel, height, width) in [(3, 7, 9), (3, 5, 7), (1, 5, 5), (1, 4, 8)] {
        let fan_in = 320 / kernel;
        for fan_out in [7, 150] {
            let before = kernel / 2;
            let rows = side(height, kernel, 1, 1, (before, before));
            let columns = side(width, kernel, 1, 1, (before, before));
            let case = Case { batch: 1, groups: 1, fan_in, fan_out, rows, columns };
            let window = Sliding::new(rows, columns).unwrap();
            let conv = Conv::new(window, 1, fan_in, fan_out).unwrap();
            let depth = conv.depth();
            let image = numbers(fan_in * window.plane(), 1);
            let weights = numbers(fan_out * depth, 2);
            let bias = numbers(fan_out, 3);
            let mut packed = vec![0.0; packed_weights_len(1, fan_out, depth)];
            packed_weights(&weights, 1, fan_out, depth, &mut packed).unwrap();
            let addend = numbers(fan_out * window.positions(), 4);
            let wanted = case.wanted(&image, &weights, &bias);
            let wanted: Vec<f32> =
                wanted.iter().zip(&addend).map(|(a, b)| (a + b).clamp(-2.0, 2.0)).collect();
            let planes = Planes::new(&image, [1, fan_in], window.plane()).unwrap();
            let numbers = Planes::new(&addend, [1, fan_out], window.positions()).unwrap();
            let mut bits: Vec<Vec<u32>> = Vec::new();
            for room in [48, 5000, conv.scratch_len()] {
                let mut made = vec![f32::NAN; wanted.len()];
                let mut output =
                    PlanesMut::new(&mut made, [1, fan_out], window.positions()).unwrap();
                let mut scratch = vec![f32::NAN; room];
                let (bias, start) = (Some(&*bias), Start::Numbers(numbers));
                let bounds = (-2.0, 2.0);
                run(&conv, &planes, &packed, bias, start, bounds, &mut output, &mut scratch);
                near(&made, &wanted);
                bits.push(made.iter().map(|x| x.to_bits()).collect());
            }
            assert!(bits.iter().all(|each| *each == bits[0]), "bits depend on scratch memory");
        }
    }
}

/// Vectors of positions begin and end anywhere in a row, and between rows.
#[test]
fn wide_images_are_convolved_as_the_definition_says() {
    for width in [17, 30, 46, 47, 56, 64] {
        for (fan_in, fan_out, stride) in [(5, 8, 1), (40, 9, 1), (3, 4, 2)] {
            let rows = side(9, 3, stride, 1, (1, 1));
            let columns = side(width, 3, stride, 1, (1, 1));
            let case = Case { batch: 1, groups: 1, fan_in, fan_out, rows, columns };
            let window = Sliding::new(rows, columns).unwrap();
            let image = numbers(fan_in * window.plane(), 1);
            let weights = numbers(fan_out * fan_in * 9, 2);
            let bias = numbers(fan_out, 3);
            let mut packed = vec![0.0; packed_weights_len(1, fan_out, fan_in * 9)];
            packed_weights(&weights, 1, fan_out, fan_in * 9, &mut packed).unwrap();
            let wanted = case.wanted(&image, &weights, &bias);
            let conv = Conv::new(window, 1, fan_in, fan_out).unwrap();
            let planes = Planes::new(&image, [1, fan_in], window.plane()).unwrap();
            for room in [48, 1000, 3000, 1 << 15] {
                let mut made = vec![f32::NAN; wanted.len()];
                let mut output =
                    PlanesMut::new(&mut made, [1, fan_out], window.positions()).unwrap();
                let mut scratch = vec![f32::NAN; conv.way(room).scratch_len()];
                let (bias, start) = (Some(&*bias), Start::Nothing);
                let bounds = (f32::NEG_INFINITY, f32::INFINITY);
                run(&conv, &planes, &packed, bias, start, bounds, &mut output, &mut scratch);
                near(&made, &wanted);
            }
        }
    }
}

#[test]
fn depthwise_convolutions_of_all_sizes_are_those_of_the_definition() {
    let sides = sides();
    for (at, rows) in sides.iter().enumerate() {
        for (to, columns) in sides.iter().enumerate() {
            let (groups, fan_out) = (1 + to % 3, 1 + at % 2);
            let case =
                Case { batch: 2, groups, fan_in: 1, fan_out, rows: *rows, columns: *columns };
            let window = Sliding::new(*rows, *columns).unwrap();
            let image = numbers(2 * groups * window.plane(), 1);
            let weights = numbers(groups * fan_out * window.taps(), 2);
            let bias = numbers(groups * fan_out, 3);
            let mut wanted = case.wanted(&image, &weights, &bias);
            for number in &mut wanted {
                *number = number.clamp(-0.5, 0.75);
            }
            let sizes = Depthwise::new(window, groups, fan_out).unwrap();
            let planes = Planes::new(&image, [2, groups], window.plane()).unwrap();
            let mut made = vec![f32::NAN; wanted.len()];
            let counts = [2, groups * fan_out];
            let mut output = PlanesMut::new(&mut made, counts, window.positions()).unwrap();
            let mut scratch = vec![f32::NAN; sizes.scratch_len()];
            let (bias, bounds) = (Some(&*bias), (-0.5, 0.75));
            sizes
                .run(&planes, &weights, bias, bounds, &mut output, &mut scratch, &Team::alone())
                .unwrap();
            near(&made, &wanted);
        }
    }
}

#[test]
fn operands_of_other_sizes_are_refused() {
    let window = Sliding::new(side(4, 3, 1, 1, (1, 1)), side(4, 3, 1, 1, (1, 1))).unwrap();
    let sizes = Depthwise::new(window, 2, 1).unwrap();
    let (image, weights) = (numbers(32, 1), numbers(18, 2));
    let planes = Planes::new(&image, [1, 2], 16).unwrap();
    let mut made = vec![0.0; 32];
    let mut scratch = vec![0.0; sizes.scratch_len()];
    let bounds = (f32::NEG_INFINITY, f32::INFINITY);
    let mut run = |weights: &[f32], scratch: &mut [f32]| {
        let mut output = PlanesMut::new(&mut made, [1, 2], 16).unwrap();
        sizes.run(&planes, weights, None, bounds, &mut output, scratch, &Team::alone())
    };
    assert!(run(&weights, &mut scratch).is_ok());
    assert!(run(&weights[1..], &mut scratch).is_err());
    assert!(run(&weights, &mut scratch[1..]).is_err());
    assert!(Planes::new(&image, [1, 3], 16).is_err());
}
