//! The bytes behind an incremental arena: they grow, and may come from the caller.

use std::fmt::Debug;

use crate::arena::raw::AlignedBytes;
use crate::base::{Alignment, Error, Result};

/// Bytes that an [`ArenaAllocator`] gave out.
///
/// The bytes must not move for as long as the block lives.
pub trait ArenaBlock: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync {}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Debug + Send + Sync> ArenaBlock for B {}

/// The source of the bytes of an incremental arena.
///
/// An arena refuses a faulty implementation: every block is measured before its first use.
pub trait ArenaAllocator: Debug + Send + Sync {
    /// Returns a block of at least `bytes` bytes at a multiple of `alignment`.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaCommit`] if there is no such block.
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>>;

    /// Returns a block that begins with the content of `block`, and frees `block`.
    ///
    /// # Errors
    ///
    /// The same `block` as before, and the reason why it could not grow.
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

/// A block that grows, or none.
#[derive(Debug)]
pub(crate) struct Backing {
    allocator: Box<dyn ArenaAllocator>,
    alignment: Alignment,
    block: Option<Box<dyn ArenaBlock>>,
}

impl Backing {
    pub(crate) fn new(allocator: Box<dyn ArenaAllocator>, alignment: Alignment) -> Self {
        Self { allocator, alignment, block: None }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.as_deref().map_or(&[], AsRef::as_ref)
    }

    /// Returns the bytes to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.block.as_deref_mut().map_or(&mut [], AsMut::as_mut)
    }

    /// Returns the address of the first byte, or `None` if there are none.
    pub(crate) fn address(&self) -> Option<usize> {
        let bytes = self.bytes();
        (!bytes.is_empty()).then(|| bytes.as_ptr().addr())
    }

    /// Makes sure that there are `bytes` bytes, content kept; returns whether they moved.
    ///
    /// On failure the bytes are unchanged.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<bool> {
        let size = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if bytes <= size(self.bytes()) {
            return Ok(false);
        }
        let before = self.address();
        let grown = match self.block.take() {
            None => self.allocator.allocate(bytes, self.alignment)?,
            Some(block) => match self.allocator.reallocate(block, bytes, self.alignment) {
                Ok(grown) => grown,
                Err((block, error)) => {
                    self.block = Some(block);
                    return Err(error);
                }
            },
        };
        let given = size((*grown).as_ref());
        let address = u64::try_from((*grown).as_ref().as_ptr().addr()).unwrap_or(u64::MAX);
        if given < bytes {
            self.allocator.deallocate(grown);
            return Err(Error::BufferTooSmall { bytes: given, needed: bytes });
        }
        if !self.alignment.divides(address) {
            self.allocator.deallocate(grown);
            return Err(Error::MisalignedBuffer { alignment: self.alignment.bytes() });
        }
        self.block = Some(grown);
        Ok(self.address() != before)
    }

    /// Frees the bytes.
    pub(crate) fn release(&mut self) {
        if let Some(block) = self.block.take() {
            self.allocator.deallocate(block);
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.release();
    }
}
