//! Converts bytes that stand for integers to wider numbers and back.
//!
//! Without explicit widening and narrowing, compilers here take bytes out of vectors one by one.

use rten_simd::ops::{BitOps, Extend, NarrowSaturate, NumOps, ToFloat};
use rten_simd::{Isa, Simd};

/// Bytes per conversion: four vectors on any processor.
pub(crate) const SOME: usize = 64;
/// 2²³ + 2²². The neighboring numbers are the integers: the lowest bits of `x + MIDDLE` are an
/// integer, in two's complement, rounded to the nearest with ties to even.
pub(crate) const MIDDLE: f32 = 12_582_912.0;

/// The integers that bytes stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Whether a byte is a signed integer, in two's complement.
    pub is_signed: bool,
    /// The integer that stands for zero, within the byte's range.
    pub zero: i16,
}

impl Encoding {
    /// Returns the integers that bytes can be, less the zero point.
    pub(crate) fn limits(self) -> (f32, f32) {
        let (low, high) = if self.is_signed { (-128, 127) } else { (0, 255) };
        (f32::from(low - self.zero), f32::from(high - self.zero))
    }

    /// Returns the bits to change such that a byte is unsigned, and the integer that then stands
    /// for zero: a signed byte with the highest bit changed is larger by 128.
    #[inline(always)]
    pub(crate) fn unsigned(self) -> (u8, i16) {
        if self.is_signed { (0x80, self.zero + 128) } else { (0, self.zero) }
    }

    /// Writes bytes as single-precision numbers, the integers less the zero point.
    #[inline(always)]
    pub(crate) fn singles<I: Isa>(self, isa: I, source: &[u8], target: &mut [f32]) {
        let some = isa.u8().len();
        let whole = source.len() - source.len() % some;
        for at in (0..whole).step_by(some) {
            self.some_singles(isa, &source[at..at + some], &mut target[at..at + some]);
        }
        let rest = &source[whole..];
        if !rest.is_empty() {
            let (mut bytes, mut numbers) = ([0; SOME], [0.0; SOME]);
            bytes[..rest.len()].copy_from_slice(rest);
            self.some_singles(isa, &bytes, &mut numbers);
            target[whole..source.len()].copy_from_slice(&numbers[..rest.len()]);
        }
    }

    /// Writes a byte vector as four number vectors.
    #[inline(always)]
    fn some_singles<I: Isa>(self, isa: I, source: &[u8], target: &mut [f32]) {
        let (bytes, shorts, ints, ops) = (isa.i8(), isa.i16(), isa.i32(), isa.f32());
        // An unsigned byte with the highest bit changed is signed, and smaller by 128.
        let (flip, less) = if self.is_signed { (0, 0) } else { (0x80, 128) };
        let zero = ints.splat(i32::from(self.zero - less));
        let signed = isa.u8().xor(isa.u8().load(source), isa.u8().splat(flip)).reinterpret_cast();
        let (low, high) = (bytes.extend_low(signed), bytes.extend_high(signed));
        let (first, second) = (shorts.extend_low(low), shorts.extend_high(low));
        let (third, fourth) = (shorts.extend_low(high), shorts.extend_high(high));
        for (part, integers) in [first, second, third, fourth].into_iter().enumerate() {
            let numbers = ints.to_float(ints.sub(integers, zero));
            ops.store(numbers, &mut target[part * ops.len()..]);
        }
    }

    /// Writes some integers next to [`MIDDLE`], plus the zero point, as bytes, and perhaps some more.
    #[inline(always)]
    pub(crate) fn narrow<I: Isa>(
        self,
        isa: I,
        numbers: &[f32; SOME],
        count: usize,
        bytes: &mut [u8; SOME],
    ) {
        let (ints, shorts, ops) = (isa.i32(), isa.i16(), isa.u8());
        let width = isa.f32().len();
        let (flip, zero) = self.unsigned();
        let zero = i32::from(zero) - MIDDLE.to_bits().cast_signed();
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
}
