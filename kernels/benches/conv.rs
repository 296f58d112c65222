//! Prints the rate of convolutions of several sizes: `cargo bench --package arenaplan-kernels`,
//! on as many threads as the variable `THREADS` says.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "a benchmark"
)]
#![allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "rates need no last bit")]

use std::time::Instant;

use arenaplan_kernels::{
    Conv, Depthwise, Encoding, Lanes, Planes, PlanesMut, QuantizedConv, QuantizedDepthwise,
    Requantization, Side, Sliding, Start, Team, packed_weights_len,
};

const BOUNDS: (f32, f32) = (0.0, 6.0);
const BYTES: Encoding = Encoding { is_signed: false, zero: 128 };
/// Bytes of scratch memory of convolutions of bytes, at most.
const ROOM: usize = 1 << 17;

/// Prints the rate of a convolution of bytes.
fn report_bytes(window: Sliding, fan_in: usize, fan_out: usize, name: &str, team: &Team) {
    let integers = vec![2; fan_out * fan_in * window.taps()];
    let sizes = QuantizedConv::new(window, 1, fan_in, fan_out, Lanes::of(&integers)).unwrap();
    let way = sizes.schedule(ROOM / 4, team.threads());
    let image = vec![3; fan_in * window.plane()];
    let mut weights = vec![0; sizes.packed_len()];
    sizes.pack(&integers, &mut weights).unwrap();
    let mut made = vec![0; fan_out * window.positions()];
    let mut scratch = vec![0.0; way.scratch_len()];
    let image = Planes::new(&image, [1, fan_in], window.plane()).unwrap();
    let (scale, shift) = (vec![0.01; fan_out], vec![0.5; fan_out]);
    let finish = Requantization {
        scale: &scale,
        shift: &shift,
        bounds: BOUNDS,
        divisor: 0.02,
        result: BYTES,
    };
    let operations = 2 * fan_out * fan_in * window.taps() * window.positions();
    report(name, operations, || {
        let mut output = PlanesMut::new(&mut made, [1, fan_out], window.positions()).unwrap();
        let scratch = &mut scratch;
        sizes
            .run(&way, &image, BYTES, &weights, None, &finish, &mut output, scratch, team)
            .unwrap();
    });
}

/// Prints the rate of a convolution of each channel of bytes by itself.
fn report_planes_of_bytes(window: Sliding, channels: usize, name: &str, team: &Team) {
    let sizes = QuantizedDepthwise::new(window, channels, 1).unwrap();
    let image = vec![3; channels * window.plane()];
    let weights = vec![2.0; channels * window.taps()];
    let mut made = vec![0; channels * window.positions()];
    let mut scratch = vec![0.0; sizes.scratch_len()];
    let image = Planes::new(&image, [1, channels], window.plane()).unwrap();
    let (scale, shift) = (vec![0.01; channels], vec![0.5; channels]);
    let finish = Requantization {
        scale: &scale,
        shift: &shift,
        bounds: BOUNDS,
        divisor: 0.02,
        result: BYTES,
    };
    let operations = 2 * channels * window.taps() * window.positions();
    report(name, operations, || {
        let mut output = PlanesMut::new(&mut made, [1, channels], window.positions()).unwrap();
        let scratch = &mut scratch;
        sizes.run(&image, BYTES, &weights, None, &finish, &mut output, scratch, team).unwrap();
    });
}

fn window(size: usize, kernel: usize, stride: usize) -> Sliding {
    let before = kernel / 2;
    let out = (size + 2 * before - kernel) / stride + 1;
    let side = Side { size, out, kernel, stride, dilation: 1, before };
    Sliding::new(side, side).unwrap()
}

/// Prints the rate of a function, if its name contains the argument of the command.
fn report(name: &str, operations: usize, mut run: impl FnMut()) {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    if wanted.is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.3 {
        let one = Instant::now();
        run();
        best = best.min(one.elapsed().as_secs_f64());
    }
    println!("{name:<32}{:>10.1} us{:>8.1} GF/s", best * 1e6, operations as f64 / best / 1e9);
}

fn main() {
    let threads = std::env::var("THREADS").map_or(1, |threads| threads.parse().unwrap());
    let team = Team::new(threads).unwrap();
    for (fan_in, fan_out, size, kernel, stride) in [
        (3, 64, 224, 7, 2),
        (64, 64, 56, 3, 1),
        (64, 64, 56, 1, 1),
        (64, 256, 56, 1, 1),
        (128, 128, 28, 3, 1),
        (512, 128, 28, 1, 1),
        (256, 256, 14, 3, 1),
        (1024, 256, 14, 1, 1),
        (512, 512, 7, 3, 1),
        (2048, 512, 7, 1, 1),
        (256, 512, 56, 1, 2),
        (128, 128, 56, 3, 2),
        (16, 96, 112, 1, 1),
        (24, 144, 56, 1, 1),
        (96, 24, 56, 1, 1),
        (960, 160, 7, 1, 1),
        (16, 16, 32, 3, 1),
        (32, 32, 256, 3, 1),
    ] {
        let window = window(size, kernel, stride);
        let conv = Conv::new(window, 1, fan_in, fan_out).unwrap();
        let image = vec![0.5; fan_in * window.plane()];
        let weights = vec![0.25; packed_weights_len(1, fan_out, conv.depth())];
        let mut made = vec![0.0; fan_out * window.positions()];
        let mut scratch = vec![0.0; conv.scratch_len()];
        let image = Planes::new(&image, [1, fan_in], window.plane()).unwrap();
        let schedule = conv.schedule(1, scratch.len(), team.threads());
        let operations = 2 * fan_out * conv.depth() * window.positions();
        report(
            &format!("{fan_in} to {fan_out}, {size}², {kernel}² / {stride}"),
            operations,
            || {
                let mut output =
                    PlanesMut::new(&mut made, [1, fan_out], window.positions()).unwrap();
                let (start, scratch) = (Start::Nothing, &mut scratch);
                conv.run(
                    &schedule,
                    &image,
                    &weights,
                    None,
                    start,
                    BOUNDS,
                    &mut output,
                    scratch,
                    &team,
                )
                .unwrap();
            },
        );
        let name = format!("bytes {fan_in} to {fan_out}, {size}², {kernel}² / {stride}");
        report_bytes(window, fan_in, fan_out, &name, &team);
    }
    for (channels, size, kernel, stride) in [
        (32, 112, 3, 1),
        (96, 112, 3, 2),
        (144, 56, 3, 1),
        (384, 14, 3, 1),
        (960, 7, 3, 1),
        (96, 56, 7, 1),
        (44, 32, 5, 1),
        (336, 3, 3, 1),
        (960, 6, 5, 1),
        (240, 14, 5, 1),
        (240, 28, 5, 2),
    ] {
        let window = window(size, kernel, stride);
        let sizes = Depthwise::new(window, channels, 1).unwrap();
        let image = vec![0.5; channels * window.plane()];
        let weights = vec![0.25; channels * window.taps()];
        let mut made = vec![0.0; channels * window.positions()];
        let mut scratch = vec![0.0; sizes.scratch_len()];
        let image = Planes::new(&image, [1, channels], window.plane()).unwrap();
        let operations = 2 * channels * window.taps() * window.positions();
        report(&format!("each of {channels}, {size}², {kernel}² / {stride}"), operations, || {
            let mut output = PlanesMut::new(&mut made, [1, channels], window.positions()).unwrap();
            sizes.run(&image, &weights, None, BOUNDS, &mut output, &mut scratch, &team).unwrap();
        });
        let name = format!("bytes each of {channels}, {size}², {kernel}² / {stride}");
        report_planes_of_bytes(window, channels, &name, &team);
    }
}
