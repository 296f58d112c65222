//! C programs' memory: structs of any version, arrays, strings and slots for results.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use crate::error::{Code, Failure, Result, guarded, required};
use crate::types::{
    Buffer, ModelInfo, ModelShape, Options, PlanInfo, PlanOptions, PlanSpace, PlanStep, PlanValue,
    PoolNumbers, PoolOptions, Space, SpacePacking, StepMemory, position,
};

/// Puts the handle that `make` returns into a slot; a null pointer if there is none.
pub(super) fn make<T>(
    slot: Option<&mut MaybeUninit<Option<Box<T>>>>,
    make: impl FnOnce() -> Result<T>,
) -> Code {
    guarded(|| {
        let slot = required(slot, "the pointer for the result")?.write(None);
        *slot = Some(Box::new(make()?));
        Ok(())
    })
}

/// A struct that C programs may have compiled with fewer or more fields.
///
/// # Safety
///
/// The type is `repr(C)`, and the first field is a `u32`, the size.
pub(super) unsafe trait Versioned: Copy {
    /// Bytes in the first version that had the struct.
    const FIRST: usize = size_of::<Self>();
}

/// A struct that C programs fill.
///
/// # Safety
///
/// Any bytes that a C program may put there, and zeros, are a value of the type: all fields are
/// integers, raw pointers and functions that may be null.
pub(super) unsafe trait Input: Versioned {
    /// Returns the struct with the default in every field.
    fn zeroed() -> Self {
        // SAFETY: zeros are a value of the type.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! versioned {
    ($($name:ty $(, $first:literal)?);*) => {$(
        const _: () = assert!(std::mem::offset_of!($name, size) == 0);

        // SAFETY: `repr(C)`, as all structs of `types.rs`; `size` is first, as just tested, and a
        // `u32`, as the next line would not compile otherwise.
        unsafe impl Versioned for $name {
            $(const FIRST: usize = $first;)?
        }
        const _: fn(&$name) -> &u32 = |it| &it.size;
    )*};
}

versioned!(
    // Without progress.
    Options, 40;
    Space;
    Buffer;
    SpacePacking;
    PlanInfo;
    PlanOptions;
    PlanSpace;
    PlanValue;
    PlanStep;
    PoolNumbers;
    PoolOptions;
    StepMemory;
    ModelInfo;
    ModelShape
);

// SAFETY: all fields are integers, raw pointers and a function that may be null.
unsafe impl Input for Options {}
// SAFETY: all fields are integers, raw pointers and a function that may be null.
unsafe impl Input for PlanOptions {}
// SAFETY: all fields are integers, a raw pointer and functions that may be null.
unsafe impl Input for PoolOptions {}
// SAFETY: all fields are integers.
unsafe impl Input for Space {}
// SAFETY: all fields are integers and a raw pointer.
unsafe impl Input for Buffer {}

/// Bytes that no struct of any version exceeds: a larger `size` was never set.
const MAX_STRUCT: usize = 4096;

/// Returns the caller's struct size.
///
/// # Safety
///
/// `pointer` follows rules 1 and 2.
pub(super) unsafe fn size_at<T: Versioned>(pointer: *const T, name: &str) -> Result<usize> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: the pointer is not null, so it points to a `T` (rule 1), whose first field is a
    // `u32` (`Versioned`). No alignment is needed.
    let size = unsafe { pointer.cast::<u32>().read_unaligned() };
    let size = position(size);
    if (T::FIRST..=MAX_STRUCT).contains(&size) {
        return Ok(size);
    }
    Err(Failure::argument(format!("the field size of {name} is {size}: set it to sizeof")))
}

/// Returns a struct of the caller; fields that the caller did not compile are zero.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 5.
pub(super) unsafe fn input<T: Input>(pointer: *const T, name: &str) -> Result<T> {
    // SAFETY: the same contract.
    let size = unsafe { size_at(pointer, name) }?;
    let known = size.min(size_of::<T>());
    let mut value = T::zeroed();
    // SAFETY: `known` bytes are there to read, as `size` says (rule 5), and to write, since `value`
    // has at least as many. The two do not overlap, and any bytes are a `T` (`Input`).
    unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), known) };
    let rest = pointer.cast::<u8>().wrapping_add(known);
    // SAFETY: the rest of the `size` bytes (rule 5), which nobody writes (rule 2). Structs have no
    // padding behind their first version, so all bytes are initialized.
    let rest = unsafe { slice::from_raw_parts(rest, size - known) };
    if rest.iter().all(|&byte| byte == 0) {
        return Ok(value);
    }
    let text = format!("{name} has fields that this library does not know: it is too old");
    Err(Failure::new(Code::UnsupportedVersion, text))
}

/// Returns a struct of the caller; the default in every field if the pointer is null.
///
/// # Safety
///
/// As for [`input`], if the pointer is not null.
pub(super) unsafe fn optional<T: Input>(pointer: *const T, name: &str) -> Result<T> {
    if pointer.is_null() {
        return Ok(T::zeroed());
    }
    // SAFETY: the same contract.
    unsafe { input(pointer, name) }
}

/// Writes the fields of a struct that the caller compiled, behind `size`; fields that this library
/// does not know become zero.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 5.
pub(super) unsafe fn output<T: Versioned>(
    pointer: *mut T,
    name: &str,
    value: impl FnOnce() -> Result<T>,
) -> Result<()> {
    // SAFETY: the same contract.
    let size = unsafe { size_at(pointer.cast_const(), name) }?;
    let value = value()?;
    let known = size.min(size_of::<T>());
    let (start, head) = (pointer.cast::<u8>(), size_of::<u32>());
    let from = (&raw const value).cast::<u8>().wrapping_add(head);
    // SAFETY: `known` bytes are there to write, as `size` says (rule 5), and to read, since `value`
    // has at least as many. The two do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, start.wrapping_add(head), known - head) };
    // SAFETY: the rest of the `size` bytes (rule 5).
    unsafe { ptr::write_bytes(start.wrapping_add(known), 0, size - known) };
    Ok(())
}

/// Returns the caller's array; empty if there are no elements.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 4, for `count` elements, and nobody writes the elements during
/// `'a`.
pub(super) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Failure::argument(format!("{count} {name} are more than memory holds")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::argument(format!("{name} begin at an address that is not aligned")));
    }
    // SAFETY: not null and aligned, as tested; `count` elements are there (rule 4), which take at
    // most `isize::MAX` bytes, as tested, and which nobody writes meanwhile (rule 2).
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Returns the caller's string.
///
/// # Safety
///
/// `pointer` follows rules 1, 2 and 4, and nobody writes the string during `'a`.
pub(super) unsafe fn string<'a>(pointer: *const c_char, name: &str) -> Result<&'a CStr> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: not null, as tested; the string ends with a zero (rule 4), and nobody writes the
    // string (rule 2).
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// Returns the caller's path.
///
/// # Safety
///
/// As [`string`].
pub(super) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a str> {
    // SAFETY: the same contract.
    let path = unsafe { string(pointer, "path") }?;
    path.to_str().map_err(|_| Failure::argument("path is not UTF-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A struct whose last field came in a later version.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Grown {
        size: u32,
        old: u32,
        new: u64,
    }

    // SAFETY: `repr(C)`, `size: u32` first.
    unsafe impl Versioned for Grown {
        const FIRST: usize = 8;
    }
    // SAFETY: all fields are integers.
    unsafe impl Input for Grown {}

    #[test]
    fn a_program_of_an_older_version_has_its_fields_alone_read_and_written() {
        let mut theirs = [8_u32, 7, 0xAAAA, 0xBBBB];
        // SAFETY: `theirs` has the stated 8 bytes, and no other pointer exists.
        let read = unsafe { input::<Grown>(theirs.as_ptr().cast(), "grown") }.unwrap();
        assert_eq!(read, Grown { size: 8, old: 7, new: 0 });
        let value = || Ok(Grown { size: 0, old: 9, new: 5 });
        // SAFETY: as above.
        unsafe { output::<Grown>(theirs.as_mut_ptr().cast(), "grown", value) }.unwrap();
        assert_eq!(theirs, [8, 9, 0xAAAA, 0xBBBB]);
    }

    #[test]
    fn a_program_of_a_newer_version_gets_zeros() {
        let mut theirs = [24_u32, 7, 1, 0, 0, 0];
        // SAFETY: `theirs` has the stated 24 bytes, and no other pointer exists.
        let read = unsafe { input::<Grown>(theirs.as_ptr().cast(), "grown") }.unwrap();
        assert_eq!(read, Grown { size: 24, old: 7, new: 1 });
        theirs[5] = 1;
        // SAFETY: as above.
        assert!(unsafe { input::<Grown>(theirs.as_ptr().cast(), "grown") }.is_err());
        let value = || Ok(Grown { size: 0, old: 9, new: 5 });
        // SAFETY: as above.
        unsafe { output::<Grown>(theirs.as_mut_ptr().cast(), "grown", value) }.unwrap();
        assert_eq!(theirs, [24, 9, 5, 0, 0, 0]);
    }
}
