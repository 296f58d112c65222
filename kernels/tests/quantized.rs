//! Convolutions of bytes have exact sums, and results that are rounded once.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::as_conversions,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "a test"
)]

use arenaplan_kernels::{
    Encoding, Lanes, Planes, PlanesMut, QuantizedConv, QuantizedDepthwise, QuantizedMatrix,
    Requantization, Side, Sliding, Team,
};

struct Case {
    batch: usize,
    groups: usize,
    fan_in: usize,
    fan_out: usize,
    rows: Side,
    columns: Side,
    image: Encoding,
    result: Encoding,
}

fn side(size: usize, kernel: usize, stride: usize, dilation: usize, before: usize) -> Side {
    let reach = (kernel - 1) * dilation + 1;
    let out = (size + 2 * before - reach) / stride + 1;
    Side { size, out, kernel, stride, dilation, before }
}

fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 167 + seed * 31 + at * at * 13) % 251) as u8).collect()
}

/// The lanes that hold some weights: pairs, and those of this processor.
fn kinds(weights: &[i16]) -> Vec<Lanes> {
    let mut kinds = vec![Lanes::Pairs, Lanes::of(weights)];
    kinds.dedup();
    kinds
}

impl Case {
    fn weights(&self) -> Vec<i16> {
        let depth = self.fan_in * self.rows.kernel * self.columns.kernel;
        let count = self.groups * self.fan_out * depth;
        bytes(count, 5).into_iter().map(|byte| i16::from(byte) - 125).collect()
    }

    /// Returns the sums by definition, and the results of them.
    fn wanted(
        &self,
        image: &[u8],
        weights: &[i16],
        addend: &[i32],
        finish: &Requantization<'_>,
    ) -> Vec<u8> {
        let channels = self.groups * self.fan_in;
        let plane = self.rows.size * self.columns.size;
        let element = |n: usize, channel: usize, y: usize, x: usize| {
            let byte = image[(n * channels + channel) * plane + y * self.columns.size + x];
            let integer =
                if self.image.is_signed { i32::from(byte.cast_signed()) } else { i32::from(byte) };
            integer - i32::from(self.image.zero)
        };
        let at = |side: &Side, position: usize, tap: usize| {
            (position * side.stride + tap * side.dilation)
                .checked_sub(side.before)
                .filter(|&element| element < side.size)
        };
        let mut made = Vec::new();
        for n in 0..self.batch {
            for channel in 0..self.groups * self.fan_out {
                for row in 0..self.rows.out {
                    for column in 0..self.columns.out {
                        let mut sum = addend[channel];
                        let mut weights = weights[channel * self.depth()..].iter();
                        for c in 0..self.fan_in {
                            let from = channel / self.fan_out * self.fan_in + c;
                            for y in 0..self.rows.kernel {
                                for x in 0..self.columns.kernel {
                                    let weight = i32::from(*weights.next().unwrap());
                                    let place =
                                        at(&self.rows, row, y).zip(at(&self.columns, column, x));
                                    if let Some((y, x)) = place {
                                        sum += weight * element(n, from, y, x);
                                    }
                                }
                            }
                        }
                        let real =
                            (sum as f32).mul_add(finish.scale[channel], finish.shift[channel]);
                        let real = real.max(finish.bounds.0).min(finish.bounds.1);
                        let quotient = (real / finish.divisor).round_ties_even();
                        let integer = quotient as i64 + i64::from(self.result.zero);
                        let (low, high) =
                            if self.result.is_signed { (-128, 127) } else { (0, 255) };
                        made.push(integer.clamp(low, high) as u8);
                    }
                }
            }
        }
        made
    }

    fn depth(&self) -> usize {
        self.fan_in * self.rows.kernel * self.columns.kernel
    }
}

const UNSIGNED: Encoding = Encoding { is_signed: false, zero: 128 };
const SIGNED: Encoding = Encoding { is_signed: true, zero: -7 };

fn cases() -> Vec<Case> {
    let sides = [
        (side(9, 3, 1, 1, 1), side(11, 3, 1, 1, 1)),
        (side(14, 1, 1, 1, 0), side(14, 1, 1, 1, 0)),
        (side(7, 1, 1, 1, 0), side(3, 1, 1, 1, 0)),
        (side(16, 3, 2, 1, 1), side(33, 3, 2, 1, 1)),
        (side(12, 3, 1, 2, 2), side(10, 5, 3, 1, 2)),
        (side(1, 1, 1, 1, 0), side(70, 7, 1, 1, 3)),
        (side(20, 7, 2, 1, 3), side(20, 7, 2, 1, 3)),
    ];
    let channels = [(1, 1, 3, 8), (2, 1, 5, 13), (1, 3, 2, 4), (1, 1, 40, 20), (1, 6, 1, 1)];
    let encodings = [(UNSIGNED, UNSIGNED), (SIGNED, UNSIGNED), (UNSIGNED, SIGNED)];
    let mut made = Vec::new();
    for (at, (rows, columns)) in sides.into_iter().enumerate() {
        for (of, (batch, groups, fan_in, fan_out)) in channels.into_iter().enumerate() {
            let (image, result) = encodings[(at + of) % encodings.len()];
            made.push(Case { batch, groups, fan_in, fan_out, rows, columns, image, result });
        }
    }
    made
}

/// Scales, shifts and addends of some channels, with which results of all sizes occur.
fn numbers(case: &Case) -> (Vec<f32>, Vec<f32>, Vec<i32>) {
    let channels = case.groups * case.fan_out;
    let scale = |channel: usize| 1.0 / (40.0 * case.depth() as f32 + channel as f32);
    let scales = (0..channels).map(scale).collect();
    let shifts = (0..channels).map(|channel| channel as f32 / 10.0 - 1.0).collect();
    let addends = (0..channels as i32).map(|channel| channel * 300 - 900).collect();
    (scales, shifts, addends)
}

#[test]
fn sums_are_exact_and_results_rounded_once_for_all_ways_and_threads() {
    for case in cases() {
        let window = Sliding::new(case.rows, case.columns).unwrap();
        let image = bytes(case.batch * case.groups * case.fan_in * window.plane(), 3);
        let (weights, (scale, shift, addend)) = (case.weights(), numbers(&case));
        let bounds = (-90.0, 2.0e3);
        let finish = Requantization {
            scale: &scale,
            shift: &shift,
            bounds,
            divisor: 0.75,
            result: case.result,
        };
        let wanted = case.wanted(&image, &weights, &addend, &finish);
        let image = Planes::new(&image, [case.batch, case.groups * case.fan_in], window.plane());
        let (image, counts) = (image.unwrap(), [case.batch, case.groups * case.fan_out]);
        for (lanes, threads) in
            kinds(&weights).into_iter().flat_map(|lanes| [(lanes, 1), (lanes, 2)])
        {
            let (groups, fan_in, fan_out) = (case.groups, case.fan_in, case.fan_out);
            let of = |lanes| QuantizedConv::new(window, groups, fan_in, fan_out, lanes).unwrap();
            let sizes = of(lanes);
            let mut packed = vec![-1; sizes.packed_len()];
            sizes.pack(&weights, &mut packed).unwrap();
            let team = Team::new(threads).unwrap();
            let ways = [0, 1500, 5000, 1 << 20].map(|room| {
                // Plans have room for a way of pairs, whatever the lanes are.
                let room = of(Lanes::Pairs).way(room).scratch_len();
                let ways = [sizes.way(room), sizes.schedule(room, threads)];
                let needed = ways.map(|way| way.scratch_len());
                assert!(needed.iter().all(|len| *len <= room), "{room} elements: {ways:?}");
                ways
            });
            for way in ways.as_flattened() {
                let mut scratch = vec![f32::NAN; way.scratch_len()];
                let mut made = vec![77; wanted.len()];
                let mut output = PlanesMut::new(&mut made, counts, window.positions()).unwrap();
                let run = sizes.run(
                    way,
                    &image,
                    case.image,
                    &packed,
                    Some(&addend),
                    &finish,
                    &mut output,
                    &mut scratch,
                    &team,
                );
                run.unwrap();
                assert_eq!(made, wanted, "{way:?}");
            }
        }
    }
}

#[test]
fn channels_by_themselves_have_the_same_results() {
    let mut count = 0;
    for case in cases().into_iter().filter(|case| case.fan_in == 1 || case.groups > 1) {
        let case = Case { groups: 5, fan_in: 1, fan_out: case.fan_out.min(2), ..case };
        let window = Sliding::new(case.rows, case.columns).unwrap();
        let sizes = QuantizedDepthwise::new(window, case.groups, case.fan_out).unwrap();
        let image = bytes(case.batch * case.groups * window.plane(), 3);
        let (weights, (scale, shift, addend)) = (case.weights(), numbers(&case));
        let bounds = (f32::NEG_INFINITY, 100.0);
        let finish = Requantization {
            scale: &scale,
            shift: &shift,
            bounds,
            divisor: 1.0,
            result: case.result,
        };
        let wanted = case.wanted(&image, &weights, &addend, &finish);
        let real: Vec<f32> = weights.iter().copied().map(f32::from).collect();
        let starts: Vec<f32> = addend.iter().map(|&integer| integer as f32).collect();
        let image = Planes::new(&image, [case.batch, case.groups], window.plane()).unwrap();
        for threads in [1, 2] {
            let team = Team::new(threads).unwrap();
            let mut made = vec![77; wanted.len()];
            let counts = [case.batch, case.groups * case.fan_out];
            let mut output = PlanesMut::new(&mut made, counts, window.positions()).unwrap();
            let mut scratch = vec![f32::NAN; sizes.scratch_len()];
            let run = sizes.run(
                &image,
                case.image,
                &real,
                Some(&starts),
                &finish,
                &mut output,
                &mut scratch,
                &team,
            );
            run.unwrap();
            assert_eq!(made, wanted);
            count += 1;
        }
    }
    assert!(count > 20);
}

#[test]
fn extreme_bytes_do_not_overflow_a_sum() {
    // As many terms of the largest product of two differences as 32 bits hold.
    let depth = 33_025;
    let one = side(1, 1, 1, 1, 0);
    let window = Sliding::new(one, one).unwrap();
    assert!(QuantizedConv::new(window, 1, depth + 1, 1, Lanes::Pairs).is_err());
    for weight in [-255, -128] {
        let weights = vec![weight; depth];
        for (lanes, room) in
            kinds(&weights).into_iter().flat_map(|kind| [(kind, 0), (kind, 1 << 20)])
        {
            let sizes = QuantizedConv::new(window, 1, depth, 1, lanes).unwrap();
            let mut packed = vec![0; sizes.packed_len()];
            sizes.pack(&weights, &mut packed).unwrap();
            for (byte, zero) in [(255, 0), (0, 255)] {
                let image = vec![byte; depth];
                let image = Planes::new(&image, [1, depth], 1).unwrap();
                let finish = Requantization {
                    scale: &[1.0],
                    shift: &[0.0],
                    bounds: (f32::NEG_INFINITY, f32::INFINITY),
                    divisor: 255.0 * f32::from(-weight) * 33_025.0 / 100.0,
                    result: Encoding { is_signed: true, zero: 0 },
                };
                let way = sizes.way(room);
                let (mut made, mut scratch) = ([0], vec![0.0; way.scratch_len()]);
                let mut output = PlanesMut::new(&mut made, [1, 1], 1).unwrap();
                let encoding = Encoding { is_signed: false, zero };
                let (scratch, team) = (&mut scratch, Team::alone());
                let output = &mut output;
                sizes
                    .run(&way, &image, encoding, &packed, None, &finish, output, scratch, &team)
                    .unwrap();
                let sum = if zero == 0 { -100_i8 } else { 100 };
                assert_eq!(made, [sum.cast_unsigned()], "{lanes:?}");
            }
        }
    }
}

#[test]
fn lanes_are_those_that_hold_all_weights() {
    assert_eq!(Lanes::of(&[0, -128, 128]), Lanes::Pairs);
    assert_eq!(Lanes::of(&[-129, 127]), Lanes::Pairs);
    for lanes in [Lanes::Pairs, Lanes::Quads] {
        assert_eq!(Lanes::with_channels(lanes.channels()), Some(lanes));
    }
    assert_eq!(Lanes::with_channels(3), None);
    let one = side(1, 1, 1, 1, 0);
    let window = Sliding::new(one, one).unwrap();
    let sizes = QuantizedConv::new(window, 1, 2, 1, Lanes::Quads).unwrap();
    let mut packed = vec![0; sizes.packed_len()];
    assert!(sizes.pack(&[-128, 127], &mut packed).is_ok());
    assert!(sizes.pack(&[0, 128], &mut packed).is_err());
    let matrix = QuantizedMatrix::new(2, 1, Lanes::Quads).unwrap();
    let mut packed = vec![0.0; matrix.packed_len()];
    assert!(matrix.pack(&[-128, 127], &mut packed).is_ok());
    assert!(matrix.pack(&[-129, 0], &mut packed).is_err());
}

#[test]
fn every_schedule_has_room_in_the_scratch_memory_that_is_planned_for_pairs() {
    for (size, kernel, stride) in
        [(14, 1, 1), (9, 1, 2), (9, 3, 1), (17, 3, 2), (6, 4, 1), (12, 5, 1), (30, 7, 2), (9, 9, 1)]
    {
        let side = side(size, kernel, stride, 1, kernel / 2);
        let window = Sliding::new(side, side).unwrap();
        for (fan_in, fan_out) in (1..40).flat_map(|fan_in| [(fan_in, 1), (fan_in, 31)]) {
            let [pairs, quads] = [Lanes::Pairs, Lanes::Quads]
                .map(|lanes| QuantizedConv::new(window, 1, fan_in, fan_out, lanes).unwrap());
            for room in [0, 500, 3000, 1 << 15] {
                let planned = pairs.way(room).scratch_len();
                let ways = [&pairs, &quads].into_iter().flat_map(|sizes| {
                    [sizes.way(planned), sizes.schedule(planned, 1), sizes.schedule(planned, 2)]
                });
                for way in ways {
                    assert!(way.scratch_len() <= planned, "{fan_in} {fan_out} {way:?}");
                }
            }
        }
    }
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    let one = side(4, 1, 1, 1, 0);
    let window = Sliding::new(one, one).unwrap();
    let sizes = QuantizedConv::new(window, 1, 2, 3, Lanes::Pairs).unwrap();
    assert!(sizes.pack(&[0; 5], &mut vec![0; sizes.packed_len()]).is_err());
    let packed = vec![0; sizes.packed_len()];
    let image = Planes::new(&[0; 32], [1, 2], 16).unwrap();
    let (way, team) = (sizes.way(0), Team::alone());
    let run = |scale: &[f32], made: usize, room: usize, addend: &[i32]| {
        let finish = Requantization {
            scale,
            shift: &[0.0; 3],
            bounds: (0.0, 1.0),
            divisor: 1.0,
            result: UNSIGNED,
        };
        let mut made = vec![0; made * 16];
        let channels = made.len() / 16;
        let mut output = PlanesMut::new(&mut made, [1, channels], 16)?;
        let mut scratch = vec![0.0; room];
        sizes.run(
            &way,
            &image,
            UNSIGNED,
            &packed,
            Some(addend),
            &finish,
            &mut output,
            &mut scratch,
            &team,
        )
    };
    let room = way.scratch_len();
    assert!(run(&[1.0; 3], 3, room, &[0; 3]).is_ok());
    assert!(run(&[1.0; 2], 3, room, &[0; 3]).is_err());
    assert!(run(&[1.0; 3], 4, room, &[0; 3]).is_err());
    assert!(run(&[1.0; 3], 3, room - 1, &[0; 3]).is_err());
    assert!(run(&[1.0; 3], 3, room, &[0; 2]).is_err());
}

#[test]
fn rows_times_a_matrix_are_exact_for_all_sizes() {
    let sizes =
        [(1, 1, 1), (3, 7, 5), (9, 33, 48), (8, 64, 130), (70, 20, 61), (5, 2, 100), (64, 9, 16)];
    for (at, (rows, depth, columns)) in sizes.into_iter().enumerate() {
        let encoding = if at % 2 == 0 { UNSIGNED } else { SIGNED };
        let x = bytes(2 * rows * depth, at);
        let weights: Vec<i16> =
            bytes(depth * columns, 9).into_iter().map(|byte| i16::from(byte) - 125).collect();
        let scale: Vec<f32> =
            (0..columns).map(|column| 1.0 / (50.0 * depth as f32 + column as f32)).collect();
        let shift: Vec<f32> = (0..columns).map(|column| column as f32 / 7.0 - 3.0).collect();
        let addend: Vec<i32> = (0..columns as i32).map(|column| column * 111 - 500).collect();
        let finish = Requantization {
            scale: &scale,
            shift: &shift,
            bounds: (-80.0, 1000.0),
            divisor: 0.9,
            result: UNSIGNED,
        };
        let mut wanted = Vec::new();
        for row in x.chunks(depth) {
            for column in 0..columns {
                let mut sum = addend[column];
                for (k, &byte) in row.iter().enumerate() {
                    let integer = if encoding.is_signed {
                        i32::from(byte.cast_signed())
                    } else {
                        i32::from(byte)
                    };
                    let weight = i32::from(weights[k * columns + column]);
                    sum += weight * (integer - i32::from(encoding.zero));
                }
                let real = (sum as f32).mul_add(scale[column], shift[column]);
                let real = real.clamp(finish.bounds.0, finish.bounds.1);
                let integer = (real / finish.divisor).round_ties_even() as i64 + 128;
                wanted.push(integer.clamp(0, 255) as u8);
            }
        }
        let source = Planes::new(&x, [2, rows], depth).unwrap();
        for lanes in kinds(&weights) {
            let of = |lanes| QuantizedMatrix::new(depth, columns, lanes).unwrap();
            let matrix = of(lanes);
            let mut packed = vec![f32::NAN; matrix.packed_len()];
            matrix.pack(&weights, &mut packed).unwrap();
            for (threads, room) in [(1, 1), (1, rows), (2, rows)] {
                let team = Team::new(threads).unwrap();
                let mut made = vec![77; wanted.len()];
                let mut output = PlanesMut::new(&mut made, [2, rows], columns).unwrap();
                // Plans have room for pairs, whatever the lanes are.
                let mut scratch = vec![f32::NAN; of(Lanes::Pairs).scratch_len(room)];
                matrix
                    .run(
                        &source,
                        encoding,
                        &packed,
                        Some(&addend),
                        &finish,
                        &mut output,
                        &mut scratch,
                        &team,
                    )
                    .unwrap();
                assert_eq!(made, wanted, "{rows} {depth} {columns}");
            }
            let mut made = vec![0; wanted.len()];
            let mut output = PlanesMut::new(&mut made, [2, rows], columns).unwrap();
            let run = matrix.run(
                &source,
                encoding,
                &packed[1..],
                None,
                &finish,
                &mut output,
                &mut vec![0.0; matrix.scratch_len(1)],
                &Team::alone(),
            );
            assert!(run.is_err());
        }
    }
    assert!(QuantizedMatrix::new(33_026, 1, Lanes::Pairs).is_err());
    assert!(QuantizedMatrix::new(0, 1, Lanes::Pairs).is_err());
}
