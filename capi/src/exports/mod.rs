//! The functions that C programs call; the only module of the crate with `unsafe`.
//!
//! Handles arrive as `Option<&T>`, `Option<&mut T>` and `Option<Box<T>>`, which have the layout of a
//! C pointer that may be null. The head of `arenaplan.h` (in `cbindgen.toml`) states the contract of C
//! programs, to which the proofs below refer:
//!
//! 1. A pointer is null, or points to an object of its type for the whole call.
//! 2. No other thread writes to the object meanwhile, or reads an object that the call writes.
//! 3. A handle is one that a function of this interface made, and that was not freed.
//! 4. A string ends with a zero; an array has as many elements as the argument beside it says.
//! 5. A struct that begins with `size` has as many bytes as that field says.
//! 6. A function that the program passes may be called with the context beside it, and returns.

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

/// Version of the header. It is compatible with libraries of the same major version (of the same
/// minor version while the major one is 0) that are not older.
pub const VERSION_MAJOR: u32 = 0;
/// Second number of the version.
pub const VERSION_MINOR: u32 = 1;
/// Third number of the version.
pub const VERSION_PATCH: u32 = 0;

/// Returns the version of the library: `major << 16 | minor << 8 | patch`.
///
/// `AP_VERSION_MAJOR` and its neighbors are the version of the header.
#[unsafe(no_mangle)]
pub extern "C" fn ap_version() -> u32 {
    VERSION_MAJOR << 16 | VERSION_MINOR << 8 | VERSION_PATCH
}

/// Returns the reason of the last call that failed on this thread: text for people, in UTF-8, at
/// most 1023 bytes; an empty string if no call failed.
///
/// The string is valid until the next call that fails on this thread. A successful call leaves it
/// as it is.
#[unsafe(no_mangle)]
pub extern "C" fn ap_last_error() -> *const c_char {
    last()
}
