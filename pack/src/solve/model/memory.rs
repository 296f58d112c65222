//! Tables as long as the input, allocated so that running out of memory is an error.

use alloc::vec::Vec;

use crate::base::{Error, Result};

/// Returns an empty vector with room for `length` elements.
pub(crate) fn with_capacity<T>(length: usize, what: &'static str) -> Result<Vec<T>> {
    let mut table = Vec::new();
    table.try_reserve_exact(length).map_err(|_| Error::OutOfMemory { what })?;
    Ok(table)
}

/// Returns a vector with `length` copies of `value`.
pub(crate) fn filled<T: Clone>(value: T, length: usize, what: &'static str) -> Result<Vec<T>> {
    let mut table = with_capacity(length, what)?;
    table.resize(length, value);
    Ok(table)
}

/// Makes room for `more` elements behind the present elements, and reserves extra room.
pub(crate) fn reserve<T>(table: &mut Vec<T>, more: usize, what: &'static str) -> Result<()> {
    table.try_reserve(more).map_err(|_| Error::OutOfMemory { what })
}
