//! Views of memory that other languages own. The only `unsafe` of this crate.

#![allow(unsafe_code, reason = "operands are addresses that Python gives")]

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use rten_simd::Isa;
use rten_simd::ops::BitOps;

use crate::error::{Error, Result};

/// The place of planes in memory: each is contiguous, and they are at equal distances.
///
/// Invariant: `end` elements from the first one on contain all planes, and no product of sizes and
/// steps below overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    counts: [usize; 2],
    steps: [usize; 2],
    size: usize,
    end: usize,
}

impl Layout {
    /// Returns the layout of `counts[0]` times `counts[1]` planes of `size` elements.
    fn new(counts: [usize; 2], steps: [usize; 2], size: usize) -> Result<Self> {
        let span = |count: usize, step: usize| count.checked_sub(1)?.checked_mul(step);
        let end = span(counts[0], steps[0])
            .zip(span(counts[1], steps[1]))
            .and_then(|(a, b)| a.checked_add(b)?.checked_add(size))
            .filter(|&end| end <= isize::MAX.unsigned_abs() / 8)
            .ok_or(Error::OutOfRange { what: "the number of elements" })?;
        Ok(Self { counts, steps, size, end })
    }

    /// Returns the elements of a plane, counted from the first one.
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
}

/// Planes that a kernel reads: images, each of some channels.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a, T = f32> {
    first: *const T,
    layout: Layout,
    memory: PhantomData<&'a [T]>,
}

/// Planes that a kernel writes.
#[derive(Debug)]
pub struct PlanesMut<'a, T = f32> {
    first: *mut T,
    layout: Layout,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: as a shared slice, which the contract of `Planes::from_raw` makes of each plane.
unsafe impl<T: Sync> Send for Planes<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Planes<'_, T> {}
// SAFETY: as an exclusive slice, which the contract of `PlanesMut::from_raw` makes of each plane.
unsafe impl<T: Send> Send for PlanesMut<'_, T> {}

impl<'a, T> Planes<'a, T> {
    /// Returns a view of planes at an address.
    ///
    /// # Arguments
    ///
    /// * `counts`: images, and channels of each.
    /// * `steps`: elements from one image, and from one channel, to the next.
    /// * `size`: elements of a plane.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if there is no plane, or the elements do not fit an address space.
    ///
    /// # Safety
    ///
    /// For `'a`, each plane is initialized memory of `T`, aligned for `T`, and nobody writes it
    /// while a slice of it is in use.
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
    /// [`Error::WrongSize`] if the data is not of that many elements.
    pub fn new(data: &'a [T], counts: [usize; 2], size: usize) -> Result<Self> {
        let layout = contiguous(data.len(), counts, size)?;
        Ok(Self { first: data.as_ptr(), layout, memory: PhantomData })
    }

    /// Returns the number of images, and that of channels of each.
    pub fn counts(&self) -> [usize; 2] {
        self.layout.counts
    }

    /// Returns the number of elements of a plane.
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
        // SAFETY: the range is part of `end` elements (invariant of `Layout`), which do not
        // exceed `isize::MAX` bytes; the plane is memory of `T` by the contract of `from_raw`, or
        // part of the slice that `new` was given.
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
    /// writes it while a slice of it is in use.
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
    /// [`Error::WrongSize`] if the data is not of that many elements.
    pub fn new(data: &'a mut [T], counts: [usize; 2], size: usize) -> Result<Self> {
        let layout = contiguous(data.len(), counts, size)?;
        Ok(Self { first: data.as_mut_ptr(), layout, memory: PhantomData })
    }

    /// Returns the number of images, and that of channels of each.
    pub fn counts(&self) -> [usize; 2] {
        self.layout.counts
    }

    /// Returns the number of elements of a plane.
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

/// Writes as many elements of a vector as a slice has.
#[inline(always)]
pub(crate) fn store_part<I: Isa>(isa: I, vector: I::F32, target: &mut [f32]) {
    let ops = isa.f32();
    let mask = ops.first_n_mask(target.len().min(ops.len()));
    // SAFETY: the elements that the mask names are those of `target`.
    unsafe { ops.store_ptr_mask(vector, target.as_mut_ptr(), mask) };
}

/// Returns the layout of planes that lie one after another.
fn contiguous(found: usize, counts: [usize; 2], size: usize) -> Result<Layout> {
    let image = counts[1].checked_mul(size).ok_or(Error::OutOfRange { what: "a size" })?;
    let layout = Layout::new(counts, [image, size], size)?;
    crate::error::check("the memory of planes", found, layout.end)?;
    Ok(layout)
}

/// Bytes that are converted at a time: there are vector instructions for that.
const BYTES: usize = 64;
/// The numbers next to this one are the integers: the lowest bits of a sum with it are an integer, in
/// two's complement.
const MIDDLE: f32 = 12_582_912.0;

/// The type of elements that chains compute with as single-precision numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Single-precision numbers.
    Single,
    /// Signed integers of 8 bits.
    Signed,
    /// Unsigned integers of 8 bits.
    Unsigned,
}

impl Kind {
    /// Returns the bytes of an element.
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

// SAFETY: elements are copied by the thread that has the view, under the contract of `from_raw`.
unsafe impl Send for Elements<'_> {}

impl Elements<'_> {
    /// Returns a view of elements at an address.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the elements do not fit an address space.
    ///
    /// # Safety
    ///
    /// For the lifetime of the result, `len` elements of this kind at `first` are initialized memory,
    /// aligned for it; only this thread writes them while one of the methods runs, and no reference of
    /// Rust to them is in use then. `Elements::write` is called only where they can be written.
    pub unsafe fn from_raw(first: *mut u8, kind: Kind, len: usize) -> Result<Self> {
        if len > isize::MAX.unsigned_abs() / size_of::<f32>() {
            return Err(Error::OutOfRange { what: "the number of elements" });
        }
        Ok(Self { first, kind, len, memory: PhantomData })
    }

    /// Returns the address of an element, of which `count` are there from that one on.
    ///
    /// # Panics
    ///
    /// If there are not as many.
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
    pub(crate) fn read(&self, start: usize, target: &mut [f32]) {
        let first = self.at(start, target.len());
        match self.kind {
            // SAFETY: so many elements are there. `target` is memory of the caller, and no reference
            // to the elements is in use (contract of `from_raw`), so the two do not overlap.
            Kind::Single => unsafe {
                first.cast::<f32>().copy_to_nonoverlapping(target.as_mut_ptr(), target.len());
            },
            Kind::Signed => self.read_bytes(start, target, |byte| f32::from(byte.cast_signed())),
            Kind::Unsigned => self.read_bytes(start, target, f32::from),
        }
    }

    /// Copies `source` to the elements from `start` on. Integers are the nearest ones, and bounded.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    #[inline(always)]
    #[allow(clippy::cast_ptr_alignment, reason = "elements are aligned for their kind")]
    pub(crate) fn write(&mut self, start: usize, source: &[f32]) {
        let first = self.at(start, source.len());
        match self.kind {
            // SAFETY: as in `read`; the elements can be written (contract of `from_raw`).
            Kind::Single => unsafe {
                first.cast::<f32>().copy_from_nonoverlapping(source.as_ptr(), source.len());
            },
            Kind::Signed => self.write_bytes(start, source, [-128.0, 127.0]),
            Kind::Unsigned => self.write_bytes(start, source, [0.0, 255.0]),
        }
    }

    /// Copies elements of one byte from `start` on to `target`, converted.
    #[inline(always)]
    fn read_bytes(&self, start: usize, target: &mut [f32], convert: impl Fn(u8) -> f32) {
        let mut bytes = [0; BYTES];
        for (index, part) in target.chunks_mut(BYTES).enumerate() {
            let first = self.at(start + index * BYTES, part.len());
            // SAFETY: so many elements of at least a byte are there; `bytes` is memory of this function,
            // so the two do not overlap.
            unsafe { first.copy_to_nonoverlapping(bytes.as_mut_ptr(), part.len()) };
            for (number, &byte) in part.iter_mut().zip(&bytes) {
                *number = convert(byte);
            }
        }
    }

    /// Copies `source` to the elements of one byte from `start` on, as integers between two bounds.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "the lowest byte is the integer")]
    fn write_bytes(&mut self, start: usize, source: &[f32], [low, high]: [f32; 2]) {
        let mut bytes = [0; BYTES];
        for (index, part) in source.chunks(BYTES).enumerate() {
            for (byte, &number) in bytes.iter_mut().zip(part) {
                // Vector instructions have no conversion to bytes that bounds.
                *byte = (number.max(low).min(high) + MIDDLE).to_bits() as u8;
            }
            let first = self.at(start + index * BYTES, part.len());
            // SAFETY: as in `read_bytes`; the elements can be written (contract of `from_raw`).
            unsafe { first.copy_from_nonoverlapping(bytes.as_ptr(), part.len()) };
        }
    }
}
