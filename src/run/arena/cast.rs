//! Bytes as elements of a type.

use alloc::{format, string::String};
use core::any::type_name;

use bytemuck::{Pod, PodCastError, try_cast_slice, try_cast_slice_mut};

/// Casts bytes to `&[T]`; fails if length or address does not fit `T`.
pub(crate) fn cast<T: Pod>(bytes: &[u8]) -> Result<&[T], String> {
    // Zero bytes are zero elements, at any address.
    if bytes.is_empty() {
        return Ok(&[]);
    }
    try_cast_slice(bytes).map_err(|error| reason::<T>(bytes.len(), error))
}

/// Casts bytes to `&mut [T]`; fails if length or address does not fit `T`.
pub(crate) fn cast_mut<T: Pod>(bytes: &mut [u8]) -> Result<&mut [T], String> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    let count = bytes.len();
    try_cast_slice_mut(bytes).map_err(|error| reason::<T>(count, error))
}

/// Returns the element count of `T` in `bytes` bytes; fails if the length does not fit `T`.
pub(crate) fn count<T>(bytes: usize) -> Result<usize, String> {
    match bytes.checked_rem(size_of::<T>()) {
        Some(0) => Ok(bytes / size_of::<T>()),
        _ => Err(reason::<T>(bytes, PodCastError::OutputSliceWouldHaveSlop)),
    }
}

fn reason<T>(bytes: usize, error: PodCastError) -> String {
    let (name, size, alignment) = (type_name::<T>(), size_of::<T>(), align_of::<T>());
    match error {
        PodCastError::TargetAlignmentGreaterAndInputNotAligned => {
            format!("the address must be a multiple of {alignment}, the alignment of {name}")
        }
        _ => format!("{bytes} bytes must be a whole number of {name}, each with {size} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_elements_where_size_and_address_fit() {
        let mut words = [1_u32, 2, 3, 4];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        assert_eq!(cast::<u32>(bytes), Ok(&[1, 2, 3, 4][..]));
        assert!(cast::<u32>(&bytes[..6]).is_err_and(|reason| reason.contains("6 bytes")));
        assert!(cast::<u32>(&bytes[1..5]).is_err_and(|reason| reason.contains("multiple of 4")));
        assert_eq!(cast::<u32>(&bytes[1..1]), Ok(&[][..]));
        cast_mut::<u32>(&mut bytes[4..8]).expect("one element")[0] = 7;
        assert!(cast_mut::<u32>(&mut bytes[2..6]).is_err());
        assert!(cast_mut::<u32>(&mut bytes[3..3]).is_ok_and(|none| none.is_empty()));
        assert!(cast::<()>(bytes).is_err(), "elements without bytes are as many as one likes");
        assert_eq!(words, [1, 7, 3, 4]);
    }

    #[test]
    fn a_count_is_of_whole_elements() {
        assert_eq!(count::<u16>(6), Ok(3));
        assert!(count::<u16>(7).is_err());
        assert!(count::<()>(7).is_err());
    }
}
