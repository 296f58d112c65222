//! Bytes as numbers in single precision, and back.
//!
//! Compilers take bytes out of vectors one by one here, unless they are told how to widen and narrow
//! these.

use rten_simd::ops::{BitOps, Extend, NarrowSaturate, NumOps, ToFloat};
use rten_simd::{Isa, Simd};

/// Elements that become bytes at a time, four vectors of any processor.
pub(crate) const SOME: usize = 64;
/// 2²³ + 2²². The numbers next to it are the integers: the lowest bits of a sum with it are an integer,
/// in two's complement, rounded to the nearest one with ties to even.
pub(crate) const MIDDLE: f32 = 12_582_912.0;

/// Writes bytes as numbers: integers, signed ones in two's complement, less `zero`.
#[inline(always)]
pub(crate) fn widen<I: Isa>(isa: I, is_signed: bool, zero: i16, source: &[u8], target: &mut [f32]) {
    let some = isa.u8().len();
    let whole = source.len() - source.len() % some;
    for at in (0..whole).step_by(some) {
        widen_some(isa, is_signed, zero, &source[at..at + some], &mut target[at..at + some]);
    }
    let rest = &source[whole..];
    if !rest.is_empty() {
        let (mut bytes, mut numbers) = ([0; SOME], [0.0; SOME]);
        bytes[..rest.len()].copy_from_slice(rest);
        widen_some(isa, is_signed, zero, &bytes, &mut numbers);
        target[whole..source.len()].copy_from_slice(&numbers[..rest.len()]);
    }
}

/// Writes a vector of bytes as four vectors of numbers.
#[inline(always)]
fn widen_some<I: Isa>(isa: I, is_signed: bool, zero: i16, source: &[u8], target: &mut [f32]) {
    let (bytes, shorts, ints, ops) = (isa.i8(), isa.i16(), isa.i32(), isa.f32());
    // An unsigned byte with its highest bit changed is signed, and smaller by 128.
    let (flip, less) = if is_signed { (0, 0) } else { (0x80, 128) };
    let zero = ints.splat(i32::from(zero - less));
    let signed = isa.u8().xor(isa.u8().load(source), isa.u8().splat(flip)).reinterpret_cast();
    let (low, high) = (bytes.extend_low(signed), bytes.extend_high(signed));
    let (first, second) = (shorts.extend_low(low), shorts.extend_high(low));
    let (third, fourth) = (shorts.extend_low(high), shorts.extend_high(high));
    for (part, integers) in [first, second, third, fourth].into_iter().enumerate() {
        let numbers = ints.to_float(ints.sub(integers, zero));
        ops.store(numbers, &mut target[part * ops.len()..]);
    }
}

/// Writes some integers next to [`MIDDLE`], plus `zero`, as bytes, and perhaps some more.
#[inline(always)]
pub(crate) fn narrow<I: Isa>(
    isa: I,
    is_signed: bool,
    zero: i16,
    numbers: &[f32; SOME],
    count: usize,
    bytes: &mut [u8; SOME],
) {
    let (ints, shorts, ops) = (isa.i32(), isa.i16(), isa.u8());
    let width = isa.f32().len();
    // A signed byte with its highest bit changed is unsigned, and larger by 128.
    let (flip, more) = if is_signed { (0x80, 128) } else { (0, 0) };
    let zero = i32::from(zero + more) - MIDDLE.to_bits().cast_signed();
    let (flip, zero) = (ops.splat(flip), ints.splat(zero));
    for at in (0..count).step_by(4 * width) {
        let integers = |part: usize| {
            let numbers = isa.f32().load(&numbers[at + part * width..]);
            ints.add(numbers.reinterpret_cast(), zero)
        };
        let low = ints.narrow_saturate(integers(0), integers(1));
        let high = ints.narrow_saturate(integers(2), integers(3));
        let narrow = ops.xor(shorts.narrow_saturate(low, high), flip);
        ops.store(narrow, &mut bytes[at..]);
    }
}
