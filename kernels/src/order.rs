//! The larger and the smaller of two numbers, by one rule for every instruction set.
//!
//! If an operand is not a number, a processor instruction's result depends on the processor and on
//! the operand's position. The functions here consist of comparisons, which are false for NaN
//! everywhere.

use rten_simd::Isa;
use rten_simd::ops::{BitOps, NumOps};

/// Returns the larger number, or the operand that is not a number. Of equal numbers the second.
#[inline(always)]
pub(crate) fn larger<I: Isa>(isa: I, a: I::F32, b: I::F32) -> I::F32 {
    let ops = isa.f32();
    let found = ops.select(a, b, ops.gt(a, b));
    ops.select(found, a, ops.eq(a, a))
}

/// Returns the smaller number, or the operand that is not a number. Of equal numbers the second.
#[inline(always)]
pub(crate) fn smaller<I: Isa>(isa: I, a: I::F32, b: I::F32) -> I::F32 {
    let ops = isa.f32();
    let found = ops.select(a, b, ops.lt(a, b));
    ops.select(found, a, ops.eq(a, a))
}

/// Returns [`larger`] for two numbers.
#[inline(always)]
pub(crate) fn larger_of(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns numbers from `low` to `high`, which are numbers. An element that is not a number stays.
#[inline(always)]
pub(crate) fn bounded<I: Isa>(isa: I, x: I::F32, low: I::F32, high: I::F32) -> I::F32 {
    let ops = isa.f32();
    let x = ops.select(low, x, ops.lt(x, low));
    ops.select(high, x, ops.gt(x, high))
}

/// Returns numbers from `low` to `high`, which are numbers. An element that is not a number becomes `low`.
#[inline(always)]
pub(crate) fn numbered<I: Isa>(isa: I, x: I::F32, low: I::F32, high: I::F32) -> I::F32 {
    let ops = isa.f32();
    let x = ops.select(x, low, ops.gt(x, low));
    ops.select(high, x, ops.gt(x, high))
}

#[cfg(test)]
mod tests {
    use rten_simd::isa::GenericIsa;
    use rten_simd::ops::BitOps;
    use rten_simd::{Isa, SimdOp};

    use super::{bounded, larger, larger_of, numbered, smaller};

    const NUMBERS: [f32; 9] =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-45, f32::MAX, f32::MIN, 1.0];

    /// Compares every function with its definition, for every pair of numbers.
    struct Pairs;

    impl SimdOp for Pairs {
        type Output = ();

        #[allow(clippy::float_cmp, reason = "a result is one of the operands")]
        fn eval<I: Isa>(self, isa: I) {
            let ops = isa.f32();
            let vector = |x: f32| ops.splat(x);
            let first = |x: I::F32| {
                let mut all = [0.0; 64];
                ops.store(x, &mut all);
                all[0]
            };
            let same = |found: f32, wanted: f32| {
                assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{found} {wanted}");
            };
            for a in NUMBERS {
                for b in NUMBERS {
                    let unordered = a.is_nan() || b.is_nan();
                    let (most, least) =
                        if unordered { (f32::NAN, f32::NAN) } else { (a.max(b), a.min(b)) };
                    same(first(larger(isa, vector(a), vector(b))), most);
                    same(larger_of(a, b), most);
                    same(first(smaller(isa, vector(a), vector(b))), least);
                }
                let (low, high) = (vector(-1.0), vector(6.0));
                same(first(bounded(isa, vector(a), low, high)), a.clamp(-1.0, 6.0));
                let wanted = if a.is_nan() { -1.0 } else { a.clamp(-1.0, 6.0) };
                same(first(numbered(isa, vector(a), low, high)), wanted);
            }
        }
    }

    #[test]
    fn what_is_no_number_is_kept_with_any_instructions() {
        Pairs.dispatch();
        Pairs.eval(GenericIsa::new());
    }
}
