//! Views of memory that other languages own. The only `unsafe` in this crate.

#![allow(unsafe_code, reason = "operands are addresses that Python gives")]

use std::any::Any;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::mem::transmute;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::yield_now;

#[cfg(target_arch = "x86_64")]
use rten_simd::isa::Avx512Isa;
use rten_simd::ops::{BitOps, IntOps, NumOps};
use rten_simd::{Isa, Simd, SimdOp};

use crate::bytes::{Encoding, MIDDLE, SOME};
use crate::error::{Error, Result};
use crate::order::numbered;

/// The place of planes in memory: each plane is contiguous, and planes are at equal distances.
///
/// Invariant: `end` elements from the first on contain all planes, and no product of sizes and
/// steps below overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    counts: [usize; 2],
    steps: [usize; 2],
    size: usize,
    end: usize,
}

impl Layout {
    /// Returns the layout for `counts[0]` times `counts[1]` planes with `size` elements.
    fn new(counts: [usize; 2], steps: [usize; 2], size: usize) -> Result<Self> {
        let span = |count: usize, step: usize| count.checked_sub(1)?.checked_mul(step);
        let end = span(counts[0], steps[0])
            .zip(span(counts[1], steps[1]))
            .and_then(|(a, b)| a.checked_add(b)?.checked_add(size))
            .filter(|&end| end <= isize::MAX.unsigned_abs() / 8)
            .ok_or(Error::OutOfRange { what: "the number of elements" })?;
        Ok(Self { counts, steps, size, end })
    }

    /// Returns the elements of a plane, relative to the first element.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    #[inline(always)]
    fn plane(&self, image: usize, channel: usize) -> Range<usize> {
        assert!(image < self.counts[0] && channel < self.counts[1], "no such plane");
        let start = image * self.steps[0] + channel * self.steps[1];
        start..start + self.size
    }

    /// Returns the layout of some planes, or of some elements per plane, and the layout's first
    /// element.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    fn part(&self, images: Range<usize>, channels: Range<usize>, elements: Range<usize>) -> Self {
        let all = [self.counts[0], self.counts[1], self.size];
        for (part, all) in [&images, &channels, &elements].into_iter().zip(all) {
            assert!(part.start <= part.end && part.end <= all, "no such part");
        }
        let span = |count: usize, step: usize| count.saturating_sub(1) * step;
        let end = span(images.len(), self.steps[0])
            + span(channels.len(), self.steps[1])
            + elements.len();
        Self {
            counts: [images.len(), channels.len()],
            steps: self.steps,
            size: elements.len(),
            end,
        }
    }

    /// Returns the first element of such a part, or 0 for a part without planes, which may lie
    /// behind the last plane.
    fn start(&self, image: usize, channel: usize, element: usize) -> usize {
        if image < self.counts[0] && channel < self.counts[1] {
            image * self.steps[0] + channel * self.steps[1] + element
        } else {
            0
        }
    }
}

/// Planes that a kernel reads: images, each with some channels.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a, T = f32> {
    first: *const T,
    layout: Layout,
    memory: PhantomData<&'a [T]>,
}

/// A way to divide planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// By images.
    Images,
    /// By channels.
    Channels,
    /// The elements within every plane.
    Elements,
}

/// Planes that a kernel writes.
#[derive(Debug)]
pub struct PlanesMut<'a, T = f32> {
    first: *mut T,
    layout: Layout,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: as a shared slice, which the contract of `Planes::from_raw` permits for each plane.
unsafe impl<T: Sync> Send for Planes<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Planes<'_, T> {}
// SAFETY: as an exclusive slice, which the contract of `PlanesMut::from_raw` permits for each
// plane.
unsafe impl<T: Send> Send for PlanesMut<'_, T> {}

impl<'a, T> Planes<'a, T> {
    /// Returns a view of planes at an address.
    ///
    /// # Arguments
    ///
    /// * `counts`: images, and channels per image.
    /// * `steps`: elements from one image, and from one channel, to the next.
    /// * `size`: elements per plane.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if there is no plane, or the elements do not fit an address space.
    ///
    /// # Safety
    ///
    /// For `'a`, each plane is initialized memory of `T`, aligned for `T`, and nobody writes the
    /// plane while a slice of the plane is in use.
    pub unsafe fn from_raw(
        first: *const T,
        counts: [usize; 2],
        steps: [usize; 2],
        size: usize,
    ) -> Result<Self> {
        Ok(Self { first, layout: Layout::new(counts, steps, size)?, memory: PhantomData })
    }

    /// Returns a view of contiguous planes.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if the data has more or fewer elements.
    pub fn new(data: &'a [T], counts: [usize; 2], size: usize) -> Result<Self> {
        let layout = contiguous(data.len(), counts, size)?;
        Ok(Self { first: data.as_ptr(), layout, memory: PhantomData })
    }

    /// Returns some elements of some planes.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    pub(crate) fn part(
        &self,
        images: Range<usize>,
        channels: Range<usize>,
        elements: Range<usize>,
    ) -> Self {
        let start = self.layout.start(images.start, channels.start, elements.start);
        let layout = self.layout.part(images, channels, elements);
        // SAFETY: `start` does not exceed `end` elements, which are in one piece of memory: see
        // `Planes::plane`.
        let first = unsafe { self.first.add(start) };
        Self { first, layout, memory: PhantomData }
    }

    /// Returns the image count, and the channels per image.
    pub fn counts(&self) -> [usize; 2] {
        self.layout.counts
    }

    /// Returns the elements from one channel to the next.
    pub(crate) fn step(&self) -> usize {
        self.layout.steps[1]
    }

    /// Returns the elements per plane.
    pub fn size(&self) -> usize {
        self.layout.size
    }

    /// Returns a plane.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    #[inline(always)]
    pub fn plane(&self, image: usize, channel: usize) -> &'a [T] {
        let range = self.layout.plane(image, channel);
        // SAFETY: the range is within `end` elements (invariant of `Layout`), which do not exceed
        // `isize::MAX` bytes; the plane is memory of `T` by the contract of `from_raw`, or in the
        // slice that `new` was given.
        let first = unsafe { self.first.add(range.start) };
        // SAFETY: as above; nobody writes the plane meanwhile.
        unsafe { slice::from_raw_parts(first, range.len()) }
    }
}

impl<'a, T> PlanesMut<'a, T> {
    /// Returns a view of planes at an address: see [`Planes::from_raw`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] as there, and [`Error::Overlap`] if planes overlap each other.
    ///
    /// # Safety
    ///
    /// For `'a`, each plane is initialized memory of `T`, aligned for `T`, and nobody else reads or
    /// writes the plane while a slice of the plane is in use.
    pub unsafe fn from_raw(
        first: *mut T,
        counts: [usize; 2],
        steps: [usize; 2],
        size: usize,
    ) -> Result<Self> {
        let layout = Layout::new(counts, steps, size)?;
        let image = Layout::new([1, counts[1]], steps, size)?.end;
        if (counts[1] > 1 && steps[1] < size) || (counts[0] > 1 && steps[0] < image) {
            return Err(Error::Overlap { what: "another part of itself" });
        }
        Ok(Self { first, layout, memory: PhantomData })
    }

    /// Returns a view of contiguous planes.
    ///
    /// # Errors
    ///
    /// [`Error::WrongSize`] if the data has more or fewer elements.
    pub fn new(data: &'a mut [T], counts: [usize; 2], size: usize) -> Result<Self> {
        let layout = contiguous(data.len(), counts, size)?;
        Ok(Self { first: data.as_mut_ptr(), layout, memory: PhantomData })
    }

    /// Returns whether each plane equals the plane with the same number in `others`, or shares no
    /// element with any.
    pub(crate) fn is_same_or_apart(&self, others: &Planes<'_, T>) -> bool {
        let span = |first: usize, layout: &Layout| first..first + layout.end * size_of::<T>();
        let own = span(self.first.addr(), &self.layout);
        let others_span = span(others.first.addr(), &others.layout);
        (own.start == others_span.start && self.layout == others.layout)
            || own.end <= others_span.start
            || others_span.end <= own.start
    }

    /// Returns some elements of some planes.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    pub(crate) fn part(
        &mut self,
        images: Range<usize>,
        channels: Range<usize>,
        elements: Range<usize>,
    ) -> PlanesMut<'_, T> {
        let start = self.layout.start(images.start, channels.start, elements.start);
        let layout = self.layout.part(images, channels, elements);
        // SAFETY: as in `Planes::part`; the result borrows `self` mutably.
        let first = unsafe { self.first.add(start) };
        PlanesMut { first, layout, memory: PhantomData }
    }

    /// Returns the same planes for a shorter time.
    pub(crate) fn reborrow(&mut self) -> PlanesMut<'_, T> {
        PlanesMut { first: self.first, layout: self.layout, memory: PhantomData }
    }

    /// Returns the first images, channels or plane elements, and keeps the others.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    pub(crate) fn split_off(&mut self, axis: Axis, count: usize) -> Self {
        let Layout { counts, size, .. } = self.layout;
        let mut front = [0..counts[0], 0..counts[1], 0..size];
        let mut back = front.clone();
        let (first, rest) = match axis {
            Axis::Images => (&mut front[0], &mut back[0]),
            Axis::Channels => (&mut front[1], &mut back[1]),
            Axis::Elements => (&mut front[2], &mut back[2]),
        };
        (first.end, rest.start) = (count, count);
        let [images, channels, elements] = front;
        let taken = self.layout.part(images, channels, elements);
        let [images, channels, elements] = back;
        let start = self.layout.start(images.start, channels.start, elements.start);
        let taken = Self { first: self.first, layout: taken, memory: PhantomData };
        // SAFETY: `start` does not exceed `end` elements, which are in one piece of memory: see
        // `Planes::plane`. The two parts have no element in common, since no two planes do.
        self.first = unsafe { self.first.add(start) };
        self.layout = self.layout.part(images, channels, elements);
        taken
    }

    /// Returns the image count, and the channels per image.
    pub fn counts(&self) -> [usize; 2] {
        self.layout.counts
    }

    /// Returns the elements per plane.
    pub fn size(&self) -> usize {
        self.layout.size
    }

    /// Returns a plane.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    #[inline(always)]
    pub fn plane(&mut self, image: usize, channel: usize) -> &mut [T] {
        let range = self.layout.plane(image, channel);
        // SAFETY: as in `Planes::plane`.
        let first = unsafe { self.first.add(range.start) };
        // SAFETY: as in `Planes::plane`; nobody else has a slice of the plane, since the result
        // borrows `self` mutably.
        unsafe { slice::from_raw_parts_mut(first, range.len()) }
    }
}

/// Elements per vector from which on processors have mask registers.
const MASKED: usize = 16;
/// Elements in the widest vectors.
const WIDEST: usize = 64;
/// From `n` elements before the middle on, `n` elements are one, and all later elements zero.
const EDGE: [f32; 2 * WIDEST] = {
    let mut edge = [0.0; 2 * WIDEST];
    let mut at = 0;
    while at < WIDEST {
        edge[at] = 1.0;
        at += 1;
    }
    edge
};

/// Returns a mask of the first lanes. `first_n_mask` builds one lane by lane where there are no
/// registers for masks.
#[inline(always)]
fn first_lanes<I: Isa>(isa: I, count: usize) -> <I::F32 as Simd>::Mask {
    let ops = isa.f32();
    ops.gt(ops.load(&EDGE[WIDEST - count..]), ops.zero())
}

/// Reads the elements of a slice, at most a vector's elements; other lanes are zero.
#[inline(always)]
pub(crate) fn load_part<I: Isa>(isa: I, source: &[f32]) -> I::F32 {
    let ops = isa.f32();
    if source.len() >= ops.len() {
        return ops.load(source);
    }
    let mask = first_lanes(isa, source.len());
    // SAFETY: the elements that the mask names are in `source`.
    unsafe { ops.load_ptr_mask(source.as_ptr(), mask) }
}

/// Reads `V` vectors that lie side by side, as far as `source` goes; other lanes are zero.
///
/// The function of `rten_simd` calls a closure, which the compiler may give other vector instructions.
#[inline(always)]
pub(crate) fn load_vectors<I: Isa, const V: usize>(isa: I, source: &[f32]) -> [I::F32; V] {
    let ops = isa.f32();
    let mut vectors = [ops.zero(); V];
    if source.len() >= V * ops.len() {
        for (v, vector) in vectors.iter_mut().enumerate() {
            *vector = ops.load(&source[v * ops.len()..]);
        }
    } else {
        for (vector, part) in vectors.iter_mut().zip(source.chunks(ops.len())) {
            *vector = load_part(isa, part);
        }
    }
    vectors
}

/// Adds products of `factor` to sums: row `r` has vectors side by side from `source[r * step]` on.
#[inline(always)]
pub(crate) fn add_products<I: Isa, const R: usize, const V: usize>(
    isa: I,
    sums: &mut [[I::F32; V]; R],
    source: &[f32],
    step: usize,
    factor: I::F32,
) {
    let ops = isa.f32();
    assert!((R - 1) * step + V * ops.len() <= source.len(), "the last row ends behind its slice");
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            let first = source.as_ptr().wrapping_add(r * step + v * ops.len());
            // SAFETY: `r` is at most `R - 1` and `v` at most `V - 1`, so that the vector ends where
            // the last vector does, or ahead: in the slice.
            let vector = unsafe { ops.load_ptr(first) };
            *sum = ops.mul_add(factor, vector, *sum);
        }
    }
}

/// Adds products with `factors[K * apart]` to sums: row `r` has vectors side by side from
/// `source[(r * S + K) * step]` on. Where several rows coincide, for another `K`, compilers load
/// the vectors once, since the places are the same expressions.
#[inline(always)]
pub(crate) fn add_row<I: Isa, const K: usize, const S: usize, const R: usize, const V: usize>(
    isa: I,
    sums: &mut [[I::F32; V]; R],
    source: &[f32],
    step: usize,
    factors: &[f32],
    apart: usize,
) {
    let ops = isa.f32();
    let factor = ops.splat(factors[K * apart]);
    let last = ((R - 1) * S + K) * step;
    assert!(last + V * ops.len() <= source.len(), "the last row ends behind its slice");
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            let first = source.as_ptr().wrapping_add((r * S + K) * step + v * ops.len());
            // SAFETY: `r` is at most `R - 1` and `v` at most `V - 1`, so that the vector ends where
            // the last vector does, or ahead: in the slice.
            let vector = unsafe { ops.load_ptr(first) };
            *sum = ops.mul_add(factor, vector, *sum);
        }
    }
}

/// Writes as many elements of a vector as a slice has.
#[inline(always)]
pub(crate) fn store_part<I: Isa>(isa: I, vector: I::F32, target: &mut [f32]) {
    let ops = isa.f32();
    if target.len() >= ops.len() {
        ops.store(vector, target);
    } else if ops.len() >= MASKED {
        let mask = first_lanes(isa, target.len());
        // SAFETY: the elements that the mask names are in `target`.
        unsafe { ops.store_ptr_mask(vector, target.as_mut_ptr(), mask) };
    } else {
        // A masked AVX2 store takes a dozen cycles on some processors.
        let mut all = [0.0; MASKED];
        ops.store(vector, &mut all);
        let count = target.len();
        if let Some(first) = target.first_chunk_mut::<4>() {
            *first = [all[0], all[1], all[2], all[3]];
            target[count - 4..].copy_from_slice(&all[count - 4..][..4]);
        } else {
            for (to, from) in target.iter_mut().zip(all) {
                *to = from;
            }
        }
    }
}

/// Returns, for each lane of two vectors, the sum of the products of the lower halves and of the
/// upper halves, which are signed 16-bit numbers.
#[inline(always)]
pub(crate) fn pair_products<I: Isa>(isa: I, a: I::I32, b: I::I32) -> I::I32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64 as x86;
        use std::mem::transmute_copy;

        // The vector length alone tells the instructions: among the sets that `rten_simd` knows on
        // this architecture, AVX2 has 32-byte vectors, and AVX-512 with BW has 64-byte vectors. A
        // value of an `Isa` exists only where its instructions do.
        match size_of::<I::I32>() {
            32 => {
                // SAFETY: both types are 32 bytes, and any bits are a value of either.
                let a = unsafe { transmute_copy::<I::I32, x86::__m256i>(&a) };
                // SAFETY: as above.
                let b = unsafe { transmute_copy::<I::I32, x86::__m256i>(&b) };
                // SAFETY: the processor has AVX2, see above.
                let sums = unsafe { x86::_mm256_madd_epi16(a, b) };
                // SAFETY: as above.
                return unsafe { transmute_copy(&sums) };
            }
            64 => {
                // SAFETY: both types are 64 bytes, and any bits are a value of either.
                let a = unsafe { transmute_copy::<I::I32, x86::__m512i>(&a) };
                // SAFETY: as above.
                let b = unsafe { transmute_copy::<I::I32, x86::__m512i>(&b) };
                // SAFETY: the processor has AVX-512 with BW, see above.
                let sums = unsafe { x86::_mm512_madd_epi16(a, b) };
                // SAFETY: as above.
                return unsafe { transmute_copy(&sums) };
            }
            _ => {}
        }
    }
    let ops = isa.i32();
    let lower = |x| ops.shift_right::<16>(ops.shift_left::<16>(x));
    let upper = |x| ops.shift_right::<16>(x);
    ops.add(ops.mul(lower(a), lower(b)), ops.mul(upper(a), upper(b)))
}

/// The proof that this processor multiplies four bytes at a time in vectors of 64 bytes (AVX-512 VNNI).
#[derive(Clone, Copy)]
#[cfg(target_arch = "x86_64")]
pub(crate) struct Vnni(Avx512Isa);

#[cfg(target_arch = "x86_64")]
impl Vnni {
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512vnni");
        Avx512Isa::new().filter(|_| has).map(Self)
    }

    /// Runs an operation with such instructions.
    ///
    /// No other processor kind runs the same operation: where two kinds share closures, compilers
    /// may inline the closures into neither function, and each vector instruction becomes a call.
    pub(crate) fn dispatch<Op: SimdOp>(self, op: Op) -> Op::Output {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,f16c")]
        fn with<Op: SimdOp>(isa: Avx512Isa, op: Op) -> Op::Output {
            op.eval(isa)
        }

        // SAFETY: the processor has VNNI, as `new` found, and an `Avx512Isa` exists only where the other
        // features do.
        unsafe { with(self.0, op) }
    }

    /// Returns sums and, for each lane of two vectors, the sum of the products of four unsigned
    /// bytes and four signed bytes.
    ///
    /// # Panics
    ///
    /// If vectors have another size than 64 bytes: in a function that another set of instructions runs.
    #[inline(always)]
    #[allow(clippy::unused_self, reason = "the proof that the processor has the instruction")]
    pub(crate) fn add_products<I: Isa>(
        self,
        _: I,
        sums: I::I32,
        unsigned: I::I32,
        signed: I::I32,
    ) -> I::I32 {
        use std::arch::x86_64::{__m512i, _mm512_dpbusd_epi32};
        use std::mem::transmute_copy;

        assert!(size_of::<I::I32>() == size_of::<__m512i>(), "vectors are those of AVX-512");
        let [sums, unsigned, signed] = [sums, unsigned, signed].map(|vector| {
            // SAFETY: both types are 64 bytes, and any bits are a value of either.
            unsafe { transmute_copy::<I::I32, __m512i>(&vector) }
        });
        // SAFETY: the processor has VNNI, as `new` found.
        let sums = unsafe { _mm512_dpbusd_epi32(sums, unsigned, signed) };
        // SAFETY: as above.
        unsafe { transmute_copy(&sums) }
    }
}

/// The proof that this processor multiplies four bytes at a time: none of this architecture does.
#[derive(Clone, Copy)]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) enum Vnni {}

#[cfg(not(target_arch = "x86_64"))]
impl Vnni {
    pub(crate) fn new() -> Option<Self> {
        None
    }

    pub(crate) fn dispatch<Op: SimdOp>(self, _: Op) -> Op::Output {
        match self {}
    }

    pub(crate) fn add_products<I: Isa>(self, _: I, _: I::I32, _: I::I32, _: I::I32) -> I::I32 {
        match self {}
    }
}

/// Replaces bytes by the table entries with their numbers.
pub(crate) fn look_up(table: &[u8; 256], codes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi") {
        // SAFETY: the processor has the instructions.
        unsafe { look_up_in_vectors(table, codes) };
        return;
    }
    for code in codes {
        *code = table[usize::from(*code)];
    }
}

/// The same, 64 bytes at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up_in_vectors(table: &[u8; 256], codes: &mut [u8]) {
    use std::arch::x86_64::{
        __m512i, _mm512_mask_blend_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8,
    };
    const LANES: usize = size_of::<__m512i>();

    // SAFETY: both types are 256 bytes, and any bits are a value of either.
    let parts = unsafe { transmute::<[u8; 256], [__m512i; 4]>(*table) };
    for codes in codes.chunks_mut(LANES) {
        let mut bytes = [0; LANES];
        bytes[..codes.len()].copy_from_slice(codes);
        // SAFETY: both types are 64 bytes, and any bits are a value of either.
        let numbers = unsafe { transmute::<[u8; LANES], __m512i>(bytes) };
        // The lowest seven bits of a number select among 128 bytes, the highest bit selects the
        // half.
        let low = _mm512_permutex2var_epi8(parts[0], numbers, parts[1]);
        let high = _mm512_permutex2var_epi8(parts[2], numbers, parts[3]);
        let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(numbers), low, high);
        // SAFETY: as above.
        let bytes = unsafe { transmute::<__m512i, [u8; LANES]>(found) };
        codes.copy_from_slice(&bytes[..codes.len()]);
    }
}

/// Returns the layout of planes that lie one after another.
fn contiguous(found: usize, counts: [usize; 2], size: usize) -> Result<Layout> {
    let image = counts[1].checked_mul(size).ok_or(Error::OutOfRange { what: "a size" })?;
    let layout = Layout::new(counts, [image, size], size)?;
    crate::error::check("the memory of planes", found, layout.end)?;
    Ok(layout)
}

/// Bytes that are the integers themselves.
const SIGNED: Encoding = Encoding { is_signed: true, zero: 0 };
const UNSIGNED: Encoding = Encoding { is_signed: false, zero: 0 };

/// The type of elements that chains compute with as single-precision numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Single-precision numbers.
    Single,
    /// Signed 8-bit integers.
    Signed,
    /// Unsigned 8-bit integers.
    Unsigned,
}

impl Kind {
    /// Returns the bytes per element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Single => size_of::<f32>(),
            Self::Signed | Self::Unsigned => 1,
        }
    }
}

/// Elements at an address that may be read and written through other views, too.
///
/// Elements are copied in and out, so no reference to them exists: the result of an elementwise kernel
/// may be the memory of an operand.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    first: *mut u8,
    kind: Kind,
    len: usize,
    memory: PhantomData<&'a [f32]>,
}

// SAFETY: elements are copied by threads that have the view, under the contract of `from_raw`.
unsafe impl Send for Elements<'_> {}
// SAFETY: as above.
unsafe impl Sync for Elements<'_> {}

impl<'a> Elements<'a> {
    /// Returns a view of elements at an address.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the elements do not fit an address space.
    ///
    /// # Safety
    ///
    /// For the lifetime of the result, `len` elements of this kind at `first` are initialized
    /// memory, aligned for the kind. While a method runs, no other thread writes the elements that
    /// the method copies, and no Rust reference to these elements is in use. `Elements::write` is
    /// called only where the elements can be written.
    pub unsafe fn from_raw(first: *mut u8, kind: Kind, len: usize) -> Result<Self> {
        if len > isize::MAX.unsigned_abs() / size_of::<f32>() {
            return Err(Error::OutOfRange { what: "the number of elements" });
        }
        Ok(Self { first, kind, len, memory: PhantomData })
    }

    /// Returns the element count.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a view of memory, not a collection")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether each element is also the element of `other` at the same index, or shares no
    /// byte with any.
    pub(crate) fn is_same_or_apart(&self, other: &Elements<'_>) -> bool {
        let span = |elements: &Elements<'_>| {
            let first = elements.first.addr();
            first..first + elements.len * elements.kind.bytes()
        };
        let (own, others) = (span(self), span(other));
        (self.first == other.first && self.kind == other.kind)
            || own.end <= others.start
            || others.end <= own.start
    }

    /// Returns the address of an element with at least `count` elements from there on.
    ///
    /// # Panics
    ///
    /// If there are fewer elements.
    #[inline(always)]
    fn at(&self, start: usize, count: usize) -> *mut u8 {
        assert!(start <= self.len && count <= self.len - start, "elements out of range");
        // SAFETY: `start` is not behind the end of the elements.
        unsafe { self.first.add(start * self.kind.bytes()) }
    }

    /// Copies elements from `start` on to `target`, as numbers.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    #[inline(always)]
    #[allow(clippy::cast_ptr_alignment, reason = "elements are aligned for their kind")]
    pub(crate) fn read<I: Isa>(&self, isa: I, start: usize, target: &mut [f32]) {
        let first = self.at(start, target.len());
        match self.kind {
            // SAFETY: so many elements are there. `target` is the caller's memory, and no reference
            // to the elements is in use (contract of `from_raw`), so the two do not overlap.
            Kind::Single => unsafe {
                first.cast::<f32>().copy_to_nonoverlapping(target.as_mut_ptr(), target.len());
            },
            Kind::Signed => self.read_bytes(isa, start, target, SIGNED),
            Kind::Unsigned => self.read_bytes(isa, start, target, UNSIGNED),
        }
    }

    /// Copies `source` to the elements from `start` on. Integers are rounded to the nearest, and
    /// bounded.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    #[inline(always)]
    #[allow(clippy::cast_ptr_alignment, reason = "elements are aligned for their kind")]
    pub(crate) fn write<I: Isa>(&mut self, isa: I, start: usize, source: &[f32]) {
        let first = self.at(start, source.len());
        match self.kind {
            // SAFETY: as in `read`; the elements can be written (contract of `from_raw`).
            Kind::Single => unsafe {
                first.cast::<f32>().copy_from_nonoverlapping(source.as_ptr(), source.len());
            },
            Kind::Signed => self.write_bytes(isa, start, source, SIGNED),
            Kind::Unsigned => self.write_bytes(isa, start, source, UNSIGNED),
        }
    }

    /// Returns byte views, to read the first and write the second.
    ///
    /// # Panics
    ///
    /// If the elements of either are not bytes.
    pub(crate) fn of_codes(
        source: &'a [u8],
        kind: Kind,
        target: &'a mut [u8],
        made: Kind,
    ) -> (Self, Self) {
        assert!(kind.bytes() == 1 && made.bytes() == 1, "elements are bytes");
        let memory = PhantomData;
        let (read, len) = (source.as_ptr().cast_mut(), source.len());
        let first = target.as_mut_ptr();
        (
            Self { first: read, kind, len, memory },
            Self { first, kind: made, len: target.len(), memory },
        )
    }

    /// Copies one-byte elements from `start` on, unchanged.
    ///
    /// # Panics
    ///
    /// If there are fewer elements, or elements are not bytes.
    #[inline(always)]
    pub(crate) fn read_codes(&self, start: usize, target: &mut [u8]) {
        assert!(self.kind.bytes() == 1, "elements are bytes");
        let first = self.at(start, target.len());
        // SAFETY: so many bytes are there. `target` is the caller's memory, and no reference to the
        // elements is in use (contract of `from_raw`), so the two do not overlap.
        unsafe { first.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
    }

    /// Copies bytes to the elements from `start` on.
    ///
    /// # Panics
    ///
    /// If there are not as many, or elements are no bytes.
    #[inline(always)]
    pub(crate) fn write_codes(&mut self, start: usize, source: &[u8]) {
        assert!(self.kind.bytes() == 1, "elements are bytes");
        let first = self.at(start, source.len());
        // SAFETY: as in `read_codes`; the elements can be written (contract of `from_raw`).
        unsafe { first.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
    }

    /// Copies one-byte elements from `start` on to `target`, as numbers.
    #[inline(always)]
    fn read_bytes<I: Isa>(&self, isa: I, start: usize, target: &mut [f32], kind: Encoding) {
        let mut bytes = [0; SOME];
        for (index, part) in target.chunks_mut(SOME).enumerate() {
            let first = self.at(start + index * SOME, part.len());
            // SAFETY: so many elements with at least a byte are there; `bytes` is memory of this
            // function, so the two do not overlap.
            unsafe { first.copy_to_nonoverlapping(bytes.as_mut_ptr(), part.len()) };
            kind.singles(isa, &bytes[..part.len()], part);
        }
    }

    /// Copies `source` to the elements of one byte from `start` on, as integers between two bounds.
    #[inline(always)]
    fn write_bytes<I: Isa>(&mut self, isa: I, start: usize, source: &[f32], kind: Encoding) {
        let ops = isa.f32();
        let (low, high) = kind.limits();
        let (low, high, middle) = (ops.splat(low), ops.splat(high), ops.splat(MIDDLE));
        let (mut numbers, mut bytes) = ([0.0; SOME], [0; SOME]);
        for (index, part) in source.chunks(SOME).enumerate() {
            for at in (0..part.len()).step_by(ops.len()) {
                let bounded = numbered(isa, load_part(isa, &part[at..]), low, high);
                ops.store(ops.add(bounded, middle), &mut numbers[at..]);
            }
            kind.narrow(isa, &numbers, part.len(), &mut bytes);
            let first = self.at(start + index * SOME, part.len());
            // SAFETY: as in `read_bytes`; the elements can be written (contract of `from_raw`).
            unsafe { first.copy_from_nonoverlapping(bytes.as_ptr(), part.len()) };
        }
    }
}

/// A function that is called with the number of a thread.
type ThreadFunction<'f> = dyn Fn(usize) + Sync + 'f;

/// A function that a thread lends to other threads, and takes back before it goes on.
#[derive(Clone, Copy, Debug)]
struct Lent(*const ThreadFunction<'static>);

// SAFETY: any thread may call the function, since it is `Sync`.
unsafe impl Send for Lent {}

/// A place where one thread lends functions to others that attend.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<TeamState>,
    /// Told when there is a function, or none will come any more.
    lent: Condvar,
    /// Told when no thread is in a function any more.
    returned: Condvar,
    /// Number of functions so far; written under the lock.
    rounds: AtomicUsize,
    /// Threads that are in the function; written under the lock.
    inside: AtomicUsize,
}

#[derive(Debug)]
struct TeamState {
    function: Option<Lent>,
    /// Threads that sleep until there is a function.
    asleep: usize,
    is_closed: bool,
    /// The panic of a thread in the function.
    panic: Option<Box<dyn Any + Send>>,
}

/// Looks at a counter in a row: some tens of microseconds, the time between two kernels.
const LOOKS: usize = 1 << 10;
/// Looks in between which others may have the processor: about a millisecond.
const POLITE_LOOKS: usize = 1 << 11;

/// Waits a while for a condition, and returns whether the condition came true.
///
/// A sleeping thread is woken on the waking thread's processor, so two threads that sleep in turns
/// may never run at the same time.
fn looked(is_true: impl Fn() -> bool) -> bool {
    for look in 0..LOOKS + POLITE_LOOKS {
        if is_true() {
            return true;
        }
        if look < LOOKS { spin_loop() } else { yield_now() }
    }
    false
}

impl Board {
    /// Returns an empty place.
    pub(crate) const fn new() -> Self {
        let state = TeamState { function: None, asleep: 0, is_closed: false, panic: None };
        Self {
            state: Mutex::new(state),
            lent: Condvar::new(),
            returned: Condvar::new(),
            rounds: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, TeamState> {
        // All changes are made in one piece: a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a function to the threads that attend while `own` runs. One thread lends at a time.
    ///
    /// # Panics
    ///
    /// If `own` does, or the function did in another thread.
    pub(crate) fn lend(&self, function: &ThreadFunction<'_>, own: impl FnOnce()) {
        let function: *const ThreadFunction<'_> = function;
        #[allow(clippy::transmute_ptr_to_ptr, reason = "a cast changes no lifetime of an object")]
        // SAFETY: the two types differ in a lifetime alone. The function is called only while it is
        // in `state`, or `inside` counts the caller. `Loan` ends both before this method returns or
        // unwinds, which the borrow outlives.
        let function = unsafe {
            transmute::<*const ThreadFunction<'_>, *const ThreadFunction<'static>>(function)
        };
        let lent = Lent(function);
        let loan = Loan(self);
        let mut state = self.lock();
        state.function = Some(lent);
        self.rounds.fetch_add(1, Ordering::Release);
        let is_awaited = state.asleep > 0;
        drop(state);
        if is_awaited {
            self.lent.notify_all();
        }
        own();
        drop(loan);
        let panic = self.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Waits for a function other than the function in round `seen`, and calls the function with a
    /// number, unless it was taken back meanwhile. Returns the round, or `None` if no function will
    /// come any more.
    pub(crate) fn attend(&self, seen: usize, number: usize) -> Option<usize> {
        let _: bool = looked(|| self.rounds.load(Ordering::Acquire) != seen);
        let mut state = self.lock();
        while self.rounds.load(Ordering::Relaxed) == seen && !state.is_closed {
            state.asleep += 1;
            state = self.lent.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep -= 1;
        }
        if state.is_closed {
            return None;
        }
        let round = self.rounds.load(Ordering::Relaxed);
        let Some(lent) = state.function else { return Some(round) };
        self.inside.fetch_add(1, Ordering::Relaxed);
        drop(state);
        // SAFETY: the function is there until `inside` is zero: see `Board::lend`.
        let function = unsafe { &*lent.0 };
        let result = catch_unwind(AssertUnwindSafe(|| function(number)));
        let mut state = self.lock();
        if let Err(panic) = result {
            state.panic = Some(panic);
        }
        if self.inside.fetch_sub(1, Ordering::Release) == 1 {
            self.returned.notify_all();
        }
        Some(round)
    }

    /// Lets all threads that attend go.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.lent.notify_all();
    }
}

/// Takes a function back, and waits until all threads have left the function.
struct Loan<'b>(&'b Board);

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let board = self.0;
        board.lock().function = None;
        // From here on no thread enters.
        if looked(|| board.inside.load(Ordering::Acquire) == 0) {
            return;
        }
        let mut state = board.lock();
        while board.inside.load(Ordering::Acquire) > 0 {
            state = board.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
