//! Free blocks, by size.

use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

use crate::sharing::Block;
use arenaplan::base::{NodeId, SpaceId};

/// Blocks that may be exchanged for each other: of one space, freed by one color.
pub(super) type Shelf = (SpaceId, u32);

/// Rule for a block to change hands, by the nodes that touched the block since the last change.
pub(super) type Acceptable<'a> = &'a dyn Fn(&[NodeId]) -> bool;

/// Most free blocks that a request looks at where not every block will do.
const MOST_CANDIDATES: usize = 256;

/// All blocks, and the free blocks by size.
#[derive(Debug)]
pub(super) struct Pool {
    match_range: u64,
    pub(super) blocks: Vec<Block>,
    /// For each shelf: free blocks by size, then by when they were freed.
    free: BTreeMap<Shelf, BTreeMap<(u64, u64), u32>>,
    freed: u64,
    /// For each block: nodes that touched the block since the last change of hands.
    users: Vec<Vec<NodeId>>,
}

impl Pool {
    /// Returns a pool without free blocks, whose first blocks are `given`.
    pub(super) fn new(match_range: u64, given: Vec<Block>) -> Self {
        let users = vec![Vec::new(); given.len()];
        Self { match_range, blocks: given, free: BTreeMap::new(), freed: 0, users }
    }

    /// Returns a block for `bytes` bytes: the closest larger free block in range that is
    /// `acceptable`, else the closest smaller block, which then grows, else a new block.
    pub(super) fn request(
        &mut self,
        bytes: u64,
        place: Shelf,
        acceptable: Option<Acceptable<'_>>,
    ) -> u32 {
        if let Some(key) = self.find(bytes, place, acceptable)
            && let Some(block) = self.free.get_mut(&place).and_then(|free| free.remove(&key))
        {
            let index = at(block);
            self.blocks[index].bytes = self.blocks[index].bytes.max(bytes);
            return block;
        }
        let (space, _) = place;
        self.blocks.push(Block { bytes, space });
        self.users.push(Vec::new());
        u32::try_from(self.blocks.len() - 1).expect("there are at most as many blocks as values")
    }

    /// Finds a free block for `bytes` bytes.
    fn find(
        &self,
        bytes: u64,
        place: Shelf,
        acceptable: Option<Acceptable<'_>>,
    ) -> Option<(u64, u64)> {
        let least = bytes.checked_div(self.match_range)?;
        let most = bytes.saturating_mul(self.match_range);
        let free = self.free.get(&place)?;
        let larger = free.range((bytes, 0)..=(most, u64::MAX));
        let smaller = free.range((least, 0)..(bytes, 0)).rev();
        let mut candidates = larger.take(MOST_CANDIDATES).chain(smaller.take(MOST_CANDIDATES));
        match acceptable {
            None => candidates.next(),
            Some(acceptable) => candidates.find(|&(_, &block)| acceptable(&self.users[at(block)])),
        }
        .map(|(&key, _)| key)
    }

    /// Makes `block` free, on the shelf of the node that freed the block.
    pub(super) fn release(&mut self, block: u32, color: u32) {
        let Block { bytes, space } = self.blocks[at(block)];
        self.free.entry((space, color)).or_default().insert((bytes, self.freed), block);
        self.freed += 1;
    }

    /// Records that `node` overwrites `block`: the previous content is lost.
    pub(super) fn overwrite(&mut self, block: u32, node: NodeId) {
        let users = &mut self.users[at(block)];
        users.clear();
        users.push(node);
    }

    /// Records that `node` reads `block`, or shows the block as another value.
    pub(super) fn touch(&mut self, block: u32, node: NodeId) {
        self.users[at(block)].push(node);
    }

    /// Returns the nodes that touched `block` since the last change of hands.
    pub(super) fn users(&self, block: u32) -> &[NodeId] {
        &self.users[at(block)]
    }
}

/// Returns the index of a block in its table.
pub(super) fn at(block: u32) -> usize {
    usize::try_from(block).expect("pointers have at least 32 bits")
}
