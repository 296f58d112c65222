//! Memory from storage ids: one block per id, as large as its largest value.

use std::collections::BTreeMap;

use crate::arena::raw::AlignedBytes;
use crate::error::{Error, Result};
use crate::index::SpaceId;
use crate::units::Alignment;

/// A value that lives in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StorageEntry {
    /// Number of the block.
    pub block: u32,
    /// Size of the value in bytes.
    pub bytes: u64,
    /// Memory that the value lives in.
    pub space: SpaceId,
}

/// The blocks of values that were planned with storage ids. Sizes of blocks need not be
/// known: they follow from the values.
///
/// ```
/// use arenaplan::{Alignment, SpaceId, StorageBlocks, StorageEntry};
///
/// let space = SpaceId::new(0);
/// let entry = |block, bytes| StorageEntry { block, bytes, space };
/// let mut blocks = StorageBlocks::new(vec![entry(0, 10), entry(1, 4), entry(0, 24)], Alignment::new(64)?)?;
/// assert_eq!(blocks.allocated_bytes(), 28);
/// blocks.value_mut(2).expect("there are three values").fill(7);
/// assert_eq!(blocks.value(0), Some(&[7; 10][..])); // the same block
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Debug)]
pub struct StorageBlocks {
    entries: Vec<StorageEntry>,
    blocks: BTreeMap<u32, AlignedBytes>,
}

impl StorageBlocks {
    /// Allocates the blocks of `entries`, zeroed, at multiples of `alignment`.
    ///
    /// # Errors
    ///
    /// - [`Error::InvalidBuffer`] if values of two spaces are in one block.
    /// - [`Error::ArenaCommit`] if there is not enough memory.
    pub fn new(entries: Vec<StorageEntry>, alignment: Alignment) -> Result<Self> {
        let mut sizes: BTreeMap<u32, (u64, SpaceId)> = BTreeMap::new();
        for entry in &entries {
            let (bytes, space) = sizes.entry(entry.block).or_insert((0, entry.space));
            if *space != entry.space {
                let reason = "values of two spaces are in it".into();
                let buffer = usize::try_from(entry.block).unwrap_or(usize::MAX);
                return Err(Error::InvalidBuffer { buffer, reason });
            }
            *bytes = entry.bytes.max(*bytes);
        }
        let blocks = sizes
            .into_iter()
            .map(|(block, (bytes, _))| Ok((block, AlignedBytes::zeroed(bytes, alignment)?)))
            .collect::<Result<_>>()?;
        Ok(Self { entries, blocks })
    }

    /// Returns the bytes of the value at `position`, or `None` if there is none.
    pub fn value(&self, position: usize) -> Option<&[u8]> {
        let entry = self.entries.get(position)?;
        let bytes = usize::try_from(entry.bytes).ok()?;
        self.blocks.get(&entry.block)?.as_slice().get(..bytes)
    }

    /// Returns the bytes of the value at `position` to write, or `None` if there is none.
    pub fn value_mut(&mut self, position: usize) -> Option<&mut [u8]> {
        let entry = self.entries.get(position)?;
        let bytes = usize::try_from(entry.bytes).ok()?;
        self.blocks.get_mut(&entry.block)?.as_mut_slice().get_mut(..bytes)
    }

    /// Returns the bytes of all blocks.
    pub fn allocated_bytes(&self) -> u64 {
        self.blocks.values().map(|block| u64::try_from(block.len()).unwrap_or(u64::MAX)).sum()
    }
}
