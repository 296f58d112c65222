//! A block that grows.

use alloc::boxed::Box;

use arenaplan::arena::{ArenaAllocator, Measured};
use arenaplan::base::{Alignment, Result};

/// A block that grows, or none.
#[derive(Debug)]
pub(crate) struct Backing {
    allocator: Box<dyn ArenaAllocator>,
    alignment: Alignment,
    block: Option<Measured>,
}

impl Backing {
    pub(crate) fn new(allocator: Box<dyn ArenaAllocator>, alignment: Alignment) -> Self {
        Self { allocator, alignment, block: None }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], Measured::as_slice)
    }

    /// Returns the bytes to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.block.as_mut().map_or(&mut [], Measured::as_mut_slice)
    }

    /// Returns the address of the first byte, or `None` without bytes.
    pub(crate) fn address(&self) -> Option<usize> {
        let bytes = self.bytes();
        (!bytes.is_empty()).then(|| bytes.as_ptr().addr())
    }

    /// Ensures that there are `bytes` bytes, content kept; returns whether the bytes moved.
    ///
    /// On failure the bytes are unchanged.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<bool> {
        if bytes <= self.block.as_ref().map_or(0, Measured::bytes) {
            return Ok(false);
        }
        let before = self.address();
        let grown = match self.block.take() {
            None => self.allocator.allocate(bytes, self.alignment)?,
            Some(old) => match old.reallocate(&mut *self.allocator, bytes, self.alignment) {
                Ok(grown) => grown,
                Err((old, error)) => {
                    self.block = Some(old);
                    return Err(error);
                }
            },
        };
        match Measured::new(grown, bytes, self.alignment) {
            Ok(grown) => self.block = Some(grown),
            Err((refused, error)) => {
                self.allocator.deallocate(refused);
                return Err(error);
            }
        }
        Ok(self.address() != before)
    }

    /// Frees the bytes.
    pub(crate) fn release(&mut self) {
        if let Some(block) = self.block.take() {
            self.allocator.deallocate(block.into_inner());
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.release();
    }
}
