//! The functions that C programs call; the only module in the crate with `unsafe`.
//!
//! Handles arrive as `Option<&T>`, `Option<&mut T>` and `Option<Box<T>>`, which have the layout of
//! a C pointer that may be null. The head of `arenaplan.h` (in `cbindgen.toml`) states the C
//! contract, to which the proofs below refer:
//!
//! 1. A pointer is null, or points to an object of its type for the whole call.
//! 2. No other thread writes to the object meanwhile, or reads an object that the call writes.
//! 3. A handle was made by a function in this interface, and was not freed.
//! 4. A string ends with a zero; an array has as many elements as the argument beside the array
//!    says.
//! 5. A struct that begins with `size` has as many bytes as that field says.
//! 6. A function from the program may be called with the context beside the function, and returns.

#![allow(unsafe_code, reason = "C programs call by name, and pass addresses")]
#![allow(clippy::missing_safety_doc, reason = "the contract of all exported functions is above")]

mod raw;

pub mod arenas;
pub mod hazards;
pub mod models;
pub mod packing;
pub mod plans;
pub mod pools;
pub mod searches;

use std::ffi::c_char;

use crate::error::last;

/// Header version. The header is compatible with libraries that have the same major version (the
/// same minor version while the major version is 0) and are not older.
pub const VERSION_MAJOR: u32 = 0;
/// Second number of the version.
pub const VERSION_MINOR: u32 = 1;
/// Third number of the version.
pub const VERSION_PATCH: u32 = 0;

/// Returns the library version: `major << 16 | minor << 8 | patch`.
///
/// `AP_VERSION_MAJOR` and its neighbors are the header version.
#[unsafe(no_mangle)]
pub extern "C" fn ap_version() -> u32 {
    VERSION_MAJOR << 16 | VERSION_MINOR << 8 | VERSION_PATCH
}

/// Returns the reason for the last failed call on this thread: text for people, in UTF-8, at most
/// 1023 bytes; an empty string if no call failed.
///
/// The string is valid until the next failed call on this thread. A successful call leaves the
/// string unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn ap_last_error() -> *const c_char {
    last()
}
