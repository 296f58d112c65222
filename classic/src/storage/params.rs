//! Parameter blobs: names and arrays, in NNVM's binary form.
//!
//! All numbers are little-endian: a magic number, a reserved word, the names, the arrays.

use alloc::{format, vec::Vec};

use super::{Tensor, storage, to_u64};
use crate::error::{Error, Result};
use arenaplan::base::quoted;
use arenaplan::graph::DType;

const BLOB_MAGIC: u64 = 0xF7E5_8D4F_0504_9CB7;
const ARRAY_MAGIC: u64 = 0xDD5E_40F0_96B4_A13F;
/// Code for each type kind, and the types of that kind.
const KINDS: [(u8, &[DType]); 3] = [
    (0, &[DType::INT8, DType::INT16, DType::INT32, DType::INT64]),
    (1, &[DType::UINT8, DType::UINT16, DType::UINT32, DType::UINT64]),
    (2, &[DType::FLOAT16, DType::FLOAT32, DType::FLOAT64]),
];

/// Returns a blob that holds `params`.
///
/// # Errors
///
/// [`Error::Storage`] if a type has no code in this form, or a size does not match the shape.
///
/// ```
/// use arenaplan_classic::storage::{Tensor, load_params, save_params};
/// use arenaplan::DType;
///
/// let w = Tensor { name: "w", dtype: DType::UINT8, shape: vec![3], bytes: &[1, 2, 3] };
/// let blob = save_params(&[w.clone()])?;
/// assert_eq!(load_params(&blob)?, [w]);
/// # Ok::<(), arenaplan_classic::Error>(())
/// ```
pub fn save_params(params: &[Tensor<'_>]) -> Result<Vec<u8>> {
    let mut blob = Vec::new();
    let word = |blob: &mut Vec<u8>, word: u64| blob.extend(word.to_le_bytes());
    word(&mut blob, BLOB_MAGIC);
    word(&mut blob, 0);
    word(&mut blob, to_u64(params.len()));
    for param in params {
        word(&mut blob, to_u64(param.name.len()));
        blob.extend(param.name.as_bytes());
    }
    word(&mut blob, to_u64(params.len()));
    for param in params {
        let refuse = |reason: &str| storage(format!("parameter {} {reason}", quoted(param.name)));
        let kind = KINDS.iter().find(|(_, types)| types.contains(&param.dtype));
        let (code, _) = kind.ok_or_else(|| refuse("has a type that has no code"))?;
        let bytes = to_u64(param.bytes.len());
        if param.dtype.array_bytes(&param.shape) != Some(bytes) {
            return Err(refuse("does not have the bytes of its shape"));
        }
        let dimensions =
            i32::try_from(param.shape.len()).map_err(|_| refuse("has too many dimensions"))?;
        let bits = u8::try_from(param.dtype.bits()).map_err(|_| refuse("has too many bits"))?;
        word(&mut blob, ARRAY_MAGIC);
        word(&mut blob, 0);
        // Device type and id: the first processor.
        blob.extend(1_i32.to_le_bytes());
        blob.extend(0_i32.to_le_bytes());
        blob.extend(dimensions.to_le_bytes());
        blob.extend([*code, bits]);
        blob.extend(1_u16.to_le_bytes());
        param.shape.iter().for_each(|&dim| word(&mut blob, dim));
        word(&mut blob, bytes);
        blob.extend(param.bytes);
    }
    Ok(blob)
}

/// Returns the arrays in a blob, without copying.
///
/// # Errors
///
/// [`Error::Storage`] if the blob is cut short, or is not a parameter blob.
pub fn load_params(blob: &[u8]) -> Result<Vec<Tensor<'_>>> {
    let mut rest = blob;
    if u64::from_le_bytes(take(&mut rest)?) != BLOB_MAGIC {
        return Err(storage("not a parameter blob".into()));
    }
    let _reserved: [u8; 8] = take(&mut rest)?;
    let count = u64::from_le_bytes(take(&mut rest)?);
    let mut names = Vec::new();
    // A count that is not true ends with the bytes.
    for _ in 0..count {
        let length = u64::from_le_bytes(take(&mut rest)?);
        let name = core::str::from_utf8(take_slice(&mut rest, length)?)
            .map_err(|_| storage("a parameter's name is not UTF-8".into()))?;
        names.push(name);
    }
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if u64::from_le_bytes(take(&mut rest)?) != count || distinct.len() != names.len() {
        return Err(storage("names are equal, or not as many as parameters".into()));
    }
    names.into_iter().map(|name| read_array(&mut rest, name)).collect()
}

/// Reads the next array.
fn read_array<'a>(rest: &mut &'a [u8], name: &'a str) -> Result<Tensor<'a>> {
    let refuse = |reason: &str| storage(format!("parameter {} {reason}", quoted(name)));
    let magic = u64::from_le_bytes(take(rest)?);
    let _reserved_and_device: [u8; 16] = take(rest)?;
    let dimensions = i32::from_le_bytes(take(rest)?);
    let [code, bits] = take(rest)?;
    let lanes = u16::from_le_bytes(take(rest)?);
    if magic != ARRAY_MAGIC || dimensions < 0 || lanes != 1 {
        return Err(refuse("is not an array"));
    }
    let kind = KINDS.iter().find(|(known, _)| *known == code).map_or(&[][..], |(_, types)| types);
    let dtype = kind.iter().find(|dtype| dtype.bits() == u64::from(bits));
    let dtype = *dtype.ok_or_else(|| refuse("has an unknown type"))?;
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(u64::from_le_bytes(take(rest)?));
    }
    let bytes = u64::from_le_bytes(take(rest)?);
    if dtype.array_bytes(&shape) != Some(bytes) {
        return Err(refuse("does not have the bytes of its shape"));
    }
    Ok(Tensor { name, dtype, shape, bytes: take_slice(rest, bytes)? })
}

/// Takes the next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (first, others) = rest.split_first_chunk().ok_or_else(cut_short)?;
    *rest = others;
    Ok(*first)
}

/// Takes the next `count` bytes.
fn take_slice<'a>(rest: &mut &'a [u8], count: u64) -> Result<&'a [u8]> {
    let split = usize::try_from(count).ok().and_then(|count| rest.split_at_checked(count));
    let (first, others) = split.ok_or_else(cut_short)?;
    *rest = others;
    Ok(first)
}

fn cut_short() -> Error {
    storage("the parameter blob is cut short".into())
}
