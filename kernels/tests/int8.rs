//! Products of bytes are exact.

#![allow(
    clippy::similar_names,
    clippy::needless_range_loop,
    clippy::unwrap_used,
    reason = "a test"
)]

use arenaplan_kernels::{Byte, Team, multiply_bytes, packed_bytes, packed_bytes_len};

fn wanted<A: Byte, B: Byte>(
    a: &[A],
    b: &[B],
    zeros: (A, B),
    depth: usize,
    columns: usize,
) -> Vec<i32> {
    let mut made = Vec::new();
    for row in a.chunks(depth) {
        for column in 0..columns {
            let terms = row.iter().enumerate().map(|(at, x)| {
                let x = i32::from(x.wide()) - i32::from(zeros.0.wide());
                x * (i32::from(b[at * columns + column].wide()) - i32::from(zeros.1.wide()))
            });
            made.push(terms.sum());
        }
    }
    made
}

#[test]
fn products_of_bytes_are_exact_for_all_sizes_and_signs() {
    for (rows, depth, columns) in [(1, 1, 1), (3, 7, 5), (4, 64, 64), (9, 33, 130), (5, 2, 65)] {
        let bytes = |count: usize, seed: usize| -> Vec<u8> {
            (0..count)
                .map(|at| u8::try_from((at * 167 + seed * 31 + at * at) % 256).unwrap())
                .collect()
        };
        let unsigned = bytes(rows * depth, 1);
        let signed: Vec<i8> = bytes(depth * columns, 2).iter().map(|&b| b.cast_signed()).collect();
        let mut packed = vec![1_i16; packed_bytes_len(depth, columns)];
        packed_bytes(&signed, columns, -128, &mut packed).unwrap();
        let (team, mut made) = (Team::alone(), vec![-1; rows * columns]);
        multiply_bytes(&unsigned, 255, &packed, depth, columns, &mut made, &team).unwrap();
        assert_eq!(made, wanted(&unsigned, &signed, (255, -128), depth, columns));
        assert!(
            multiply_bytes(&unsigned, 0, &packed, depth, columns + 64, &mut made, &team).is_err()
        );
    }
}
