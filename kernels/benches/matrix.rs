//! Prints the rate of products with a packed matrix: `cargo bench --package arenaplan-kernels`,
//! on as many threads as the variable `THREADS` says.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]
#![allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "rates need no last bit")]

use std::time::Instant;

use arenaplan_kernels::{
    Encoding, Lanes, Matrix, Planes, PlanesMut, QuantizedMatrix, Requantization, Team,
};

fn main() {
    let threads = std::env::var("THREADS").map_or(1, |threads| threads.parse().unwrap());
    let team = Team::new(threads).unwrap();
    for (count, depth, columns) in [
        (1, 512, 512),
        (1, 768, 50257),
        (16, 64, 64),
        (32, 128, 512),
        (128, 768, 768),
        (128, 768, 3072),
        (128, 3072, 768),
        (197, 384, 1152),
        (512, 512, 512),
        (128, 768, 6282),
        (3136, 96, 384),
    ] {
        let matrix = Matrix::new(depth, columns).unwrap();
        let (rows, packed) = (vec![0.5; count * depth], vec![0.25; matrix.packed_len()]);
        let mut made = vec![0.0; count * columns];
        let rows = Planes::new(&rows, [1, count], depth).unwrap();
        let mut best = f64::INFINITY;
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < 0.3 {
            let one = Instant::now();
            let mut output = PlanesMut::new(&mut made, [1, count], columns).unwrap();
            matrix.run(&rows, &packed, None, &mut output, &team).unwrap();
            best = best.min(one.elapsed().as_secs_f64());
        }
        let rate = (2 * count * depth * columns) as f64 / best / 1e9;
        println!("{count} x {depth} x {columns:<16}{:>10.1} us{rate:>8.1} GF/s", best * 1e6);
        report_bytes(count, depth, columns, &team);
    }
}

/// Prints the rate of a product of bytes.
fn report_bytes(count: usize, depth: usize, columns: usize, team: &Team) {
    let integers = vec![2; depth * columns];
    let matrix = QuantizedMatrix::new(depth, columns, Lanes::of(&integers)).unwrap();
    let (rows, mut packed) = (vec![3; count * depth], vec![0.0; matrix.packed_len()]);
    matrix.pack(&integers, &mut packed).unwrap();
    let (mut made, mut scratch) = (vec![0; count * columns], vec![0.0; matrix.scratch_len(count)]);
    let rows = Planes::new(&rows, [1, count], depth).unwrap();
    let encoding = Encoding { is_signed: false, zero: 128 };
    let (scale, shift) = (vec![0.01; columns], vec![0.5; columns]);
    let (bounds, result) = ((f32::NEG_INFINITY, f32::INFINITY), encoding);
    let finish = Requantization { scale: &scale, shift: &shift, bounds, divisor: 0.02, result };
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.3 {
        let one = Instant::now();
        let mut output = PlanesMut::new(&mut made, [1, count], columns).unwrap();
        matrix
            .run(&rows, encoding, &packed, None, &finish, &mut output, &mut scratch, team)
            .unwrap();
        best = best.min(one.elapsed().as_secs_f64());
    }
    let rate = (2 * count * depth * columns) as f64 / best / 1e9;
    println!("  of bytes{:<18}{:>10.1} us{rate:>8.1} GF/s", "", best * 1e6);
}
