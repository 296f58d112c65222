//! Bytes that stand for real numbers, and exact product sums as such bytes.

use rten_simd::ops::{BitOps, FloatOps, NumOps, ToFloat};
use rten_simd::{Isa, Simd};

use crate::bytes::{Encoding, MIDDLE, SOME};
use crate::error::{Result, check};
use crate::order::{bounded, numbered};
use crate::raw::load_part;

/// The way from exact sums to bytes: a sum of channel `c` stands for the real number
/// `sum · scale[c] + shift[c]`, which is bounded, divided by `divisor`, and rounded to the nearest
/// integer, ties to even.
///
/// Sums with added integers, as in `QLinearConv`, need only a `divisor` of 1; the conversions in
/// `QuantizeLinear` have a shift.
#[derive(Clone, Copy, Debug)]
pub struct Requantization<'a> {
    /// One number for each channel.
    pub scale: &'a [f32],
    /// As many numbers.
    pub shift: &'a [f32],
    /// Smaller and larger numbers become these bounds.
    pub bounds: (f32, f32),
    /// The result scale.
    pub divisor: f32,
    /// The result bytes.
    pub result: Encoding,
}

impl Requantization<'_> {
    pub(crate) fn check(&self, channels: usize) -> Result<()> {
        check("the scales", self.scale.len(), channels)?;
        check("the shifts", self.shift.len(), channels)
    }

    /// Returns the conversion for some channels.
    pub(crate) fn part(&self, channels: std::ops::Range<usize>) -> Self {
        Self { scale: &self.scale[channels.clone()], shift: &self.shift[channels], ..*self }
    }

    /// Writes a channel's sums, which are the bits of integers, as bytes.
    #[inline(always)]
    pub(crate) fn integers<I: Isa>(&self, isa: I, channel: usize, sums: &[f32], target: &mut [u8]) {
        self.write(isa, channel, sums, target, |sums| isa.i32().to_float(sums.reinterpret_cast()));
    }

    /// Writes the sums of successive channels, which are the bits of integers, as bytes.
    #[inline(always)]
    pub(crate) fn row<I: Isa>(&self, isa: I, channel: usize, sums: &[f32], target: &mut [u8]) {
        let ops = isa.f32();
        let channels = channel..channel + target.len();
        let (scale, shift) = (&self.scale[channels.clone()], &self.shift[channels]);
        let limits = Limits::new(isa, self);
        let (mut numbers, mut bytes) = ([0.0_f32; SOME], [0; SOME]);
        let factors = scale.chunks(SOME).zip(shift.chunks(SOME));
        for ((target, sums), (scale, shift)) in
            target.chunks_mut(SOME).zip(sums.chunks(SOME)).zip(factors)
        {
            for at in (0..target.len()).step_by(ops.len()) {
                let sums = load_part(isa, &sums[at..]);
                let real = isa.i32().to_float(sums.reinterpret_cast());
                let (scale, shift) = (load_part(isa, &scale[at..]), load_part(isa, &shift[at..]));
                let rounded = limits.rounded(isa, ops.mul_add(real, scale, shift));
                ops.store(rounded, &mut numbers[at..]);
            }
            self.result.narrow(isa, &numbers, target.len(), &mut bytes);
            target.copy_from_slice(&bytes[..target.len()]);
        }
    }

    /// Writes a channel's sums, which are integers in single precision, as bytes.
    #[inline(always)]
    pub(crate) fn singles<I: Isa>(&self, isa: I, channel: usize, sums: &[f32], target: &mut [u8]) {
        self.write(isa, channel, sums, target, |sums| sums);
    }

    #[inline(always)]
    fn write<I: Isa>(
        &self,
        isa: I,
        channel: usize,
        sums: &[f32],
        target: &mut [u8],
        convert: impl Fn(I::F32) -> I::F32,
    ) {
        let ops = isa.f32();
        let (scale, shift) = (ops.splat(self.scale[channel]), ops.splat(self.shift[channel]));
        let limits = Limits::new(isa, self);
        let (mut numbers, mut bytes) = ([0.0_f32; SOME], [0; SOME]);
        for (target, sums) in target.chunks_mut(SOME).zip(sums.chunks(SOME)) {
            for at in (0..target.len()).step_by(ops.len()) {
                let real = ops.mul_add(convert(load_part(isa, &sums[at..])), scale, shift);
                ops.store(limits.rounded(isa, real), &mut numbers[at..]);
            }
            self.result.narrow(isa, &numbers, target.len(), &mut bytes);
            target.copy_from_slice(&bytes[..target.len()]);
        }
    }
}

/// The numbers of a [`Requantization`] that are the same for all channels, in vectors.
#[derive(Clone, Copy)]
struct Limits<I: Isa> {
    low: I::F32,
    high: I::F32,
    divisor: I::F32,
    least: I::F32,
    most: I::F32,
}

impl<I: Isa> Limits<I> {
    #[inline(always)]
    fn new(isa: I, of: &Requantization<'_>) -> Self {
        let ops = isa.f32();
        let (least, most) = of.result.limits();
        Self {
            low: ops.splat(of.bounds.0),
            high: ops.splat(of.bounds.1),
            divisor: ops.splat(of.divisor),
            least: ops.splat(least),
            most: ops.splat(most),
        }
    }

    /// Returns real numbers as integers next to [`MIDDLE`], within bounds.
    #[inline(always)]
    fn rounded(&self, isa: I, real: I::F32) -> I::F32 {
        let ops = isa.f32();
        let real = ops.div(bounded(isa, real, self.low, self.high), self.divisor);
        ops.add(numbered(isa, real, self.least, self.most), ops.splat(MIDDLE))
    }
}
