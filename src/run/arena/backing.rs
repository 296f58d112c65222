//! Byte blocks from allocators, possibly the caller's.

use alloc::boxed::Box;
use core::fmt::Debug;

use crate::base::{Alignment, Error, Result};
use crate::run::arena::raw::AlignedBytes;

/// Bytes that an [`ArenaAllocator`] gave out.
///
/// The bytes must not move for as long as the block lives.
pub trait ArenaBlock: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync> ArenaBlock for B {}

/// An arena's source of bytes: for an incremental arena, a pool, or
/// [`Plan::commit_in`](crate::Plan::commit_in).
///
/// An arena refuses a faulty implementation: every block is measured before its first use.
pub trait ArenaAllocator: Debug + Send + Sync {
    /// Returns a block with at least `bytes` bytes at a multiple of `alignment`.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`] if no such block is available.
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>>;

    /// Returns a block that begins with the content of `block`, and frees `block`.
    ///
    /// # Errors
    ///
    /// The same `block` as before, and the reason why the block could not grow.
    fn reallocate(
        &mut self,
        block: Box<dyn ArenaBlock>,
        bytes: u64,
        alignment: Alignment,
    ) -> Result<Box<dyn ArenaBlock>, (Box<dyn ArenaBlock>, Error)> {
        match self.allocate(bytes, alignment) {
            Ok(mut larger) => {
                let old = (*block).as_ref();
                if let Some(start) = (*larger).as_mut().get_mut(..old.len()) {
                    start.copy_from_slice(old);
                    self.deallocate(block);
                    Ok(larger)
                } else {
                    self.deallocate(larger);
                    Err((block, Error::ArenaCommit { bytes }))
                }
            }
            Err(error) => Err((block, error)),
        }
    }

    /// Frees a block.
    fn deallocate(&mut self, block: Box<dyn ArenaBlock>) {
        drop(block);
    }
}

/// Zeroed bytes from the global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemAllocator;

impl ArenaAllocator for SystemAllocator {
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>> {
        Ok(Box::new(AlignedBytes::zeroed(bytes, alignment)?))
    }
}

/// A block that was measured on creation.
#[doc(hidden)]
#[derive(Debug)]
pub struct Measured {
    block: Box<dyn ArenaBlock>,
    bytes: u64,
    address: u64,
}

impl Measured {
    /// Returns the block, or the block and an error if the block has too few bytes or a less
    /// aligned address.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`], [`Error::MisalignedBuffer`].
    pub fn new(
        block: Box<dyn ArenaBlock>,
        needed: u64,
        alignment: Alignment,
    ) -> Result<Self, (Box<dyn ArenaBlock>, Error)> {
        let slice = (*block).as_ref();
        let bytes = u64::try_from(slice.len()).unwrap_or(u64::MAX);
        let address = u64::try_from(slice.as_ptr().addr()).unwrap_or(u64::MAX);
        if bytes < needed {
            Err((block, Error::BufferTooSmall { bytes, needed }))
        } else if needed > 0 && !alignment.divides(address) {
            Err((block, Error::MisalignedBuffer { alignment: alignment.bytes() }))
        } else {
            Ok(Self { block, bytes, address })
        }
    }

    /// Returns the byte count.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the address of the first byte, as a number.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the content.
    pub fn as_slice(&self) -> &[u8] {
        (*self.block).as_ref()
    }

    /// Returns the content to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        (*self.block).as_mut()
    }

    /// Returns a larger block that begins with the content.
    ///
    /// # Errors
    ///
    /// This block, and the reason why the block could not grow.
    pub fn reallocate(
        self,
        allocator: &mut dyn ArenaAllocator,
        larger: u64,
        alignment: Alignment,
    ) -> Result<Box<dyn ArenaBlock>, (Self, Error)> {
        let Self { block, bytes, address } = self;
        let grown = allocator.reallocate(block, larger, alignment);
        grown.map_err(|(block, error)| (Self { block, bytes, address }, error))
    }

    /// Returns the block to its allocator.
    pub fn into_inner(self) -> Box<dyn ArenaBlock> {
        self.block
    }
}
