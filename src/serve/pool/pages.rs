//! Separately mapped pages as blocks.

use alloc::boxed::Box;

use memmap2::MmapMut;

use crate::base::{Alignment, Error, Result};
use crate::run::arena::{ArenaAllocator, ArenaBlock};

/// Bytes in a huge page on most processors.
const HUGE: u64 = 2 << 20;

/// Zeroed pages from the operating system, returned as soon as a block is freed.
///
/// An allocator may keep freed memory, so that a process stays larger than its pool; mapped pages
/// are released at once.
///
/// ```
/// use arenaplan::ArenaPool;
/// use arenaplan::pool::Pages;
///
/// let pool = ArenaPool::builder().cap(64 << 20).backing(Pages::huge()).build()?;
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages {
    is_huge: bool,
}

impl Pages {
    /// Returns the source of ordinary pages.
    #[must_use]
    pub const fn new() -> Self {
        Self { is_huge: false }
    }

    /// Returns the source of pages that Linux is asked to make huge (`MADV_HUGEPAGE`): a
    /// processor's tables cover more bytes with huge pages.
    ///
    /// Blocks then begin at multiples of 2 MiB. The request is advice: a system without such pages
    /// gives ordinary pages.
    #[must_use]
    pub const fn huge() -> Self {
        Self { is_huge: true }
    }
}

/// Bytes inside a map.
#[derive(Debug)]
struct Mapped {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.start..][..self.bytes]
    }
}

impl AsMut<[u8]> for Mapped {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..][..self.bytes]
    }
}

impl ArenaAllocator for Pages {
    fn allocate(&mut self, bytes: u64, alignment: Alignment) -> Result<Box<dyn ArenaBlock>> {
        let refused = || Error::ArenaCommit { bytes };
        let alignment = if self.is_huge { alignment.bytes().max(HUGE) } else { alignment.bytes() };
        let size = |number: u64| usize::try_from(number).map_err(|_| refused());
        // A map begins at a page; the bytes before an aligned address are never touched.
        let whole = size(bytes.checked_add(alignment).ok_or_else(refused)?)?;
        let map = MmapMut::map_anon(whole).map_err(|_| refused())?;
        #[cfg(target_os = "linux")]
        if self.is_huge {
            // Advice: a system without huge pages refuses, and the map is as good as any.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let alignment = size(alignment)?;
        let start = map.as_ptr().addr().next_multiple_of(alignment) - map.as_ptr().addr();
        Ok(Box::new(Mapped { map, start, bytes: size(bytes)? }))
    }
}
