//! Symbolic memory: the owner of every byte.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::base::{NodeId, ValueId};

/// A memory stretch's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Bytes of a value whose first byte is, or would be, at address `base`.
    Value { value: ValueId, base: i128 },
    /// A node's scratch memory.
    Workspace(NodeId),
}

/// Memory that stores the owner of every byte.
#[derive(Debug, Default)]
pub(super) struct SymbolicMemory(BTreeMap<u64, (u64, Owner)>);

impl SymbolicMemory {
    /// Makes `span` hold the bytes of `owner`.
    pub(super) fn write(&mut self, span: Range<u64>, owner: Owner) {
        if span.is_empty() {
            return;
        }
        self.split(span.start);
        self.split(span.end);
        let covered: Vec<u64> = self.0.range(span.clone()).map(|(&start, _)| start).collect();
        for start in covered {
            self.0.remove(&start);
        }
        self.0.insert(span.start, (span.end, owner));
    }

    /// Cuts the stretch that contains `address` in two there.
    fn split(&mut self, address: u64) {
        if let Some((_, stretch)) = self.0.range_mut(..address).next_back()
            && stretch.0 > address
        {
            let rest = *stretch;
            stretch.0 = address;
            self.0.insert(address, rest);
        }
    }

    /// Returns the first byte of `span` that `owner` does not own, and the byte's owner. `known`
    /// maps an owner to its representative.
    pub(super) fn find_other(
        &self,
        span: Range<u64>,
        owner: Owner,
        known: impl Fn(Owner) -> Owner,
    ) -> Option<(u64, Option<Owner>)> {
        if span.is_empty() {
            return None;
        }
        let mut at = span.start;
        let first = self.0.range(..=at).next_back().map_or(at, |(&start, _)| start);
        for (&start, &(end, found)) in self.0.range(first..span.end) {
            if end <= at {
                continue;
            }
            if start > at {
                return Some((at, None));
            }
            if known(found) != owner {
                return Some((at, Some(found)));
            }
            at = end;
        }
        (at < span.end).then_some((at, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::random::numbers;

    /// Against the definition: an owner for each of 32 bytes.
    #[test]
    fn every_byte_has_the_owner_that_wrote_it_last() {
        let mut below = numbers();
        for _ in 0..200 {
            let mut memory = SymbolicMemory::default();
            let mut table = [None; 32];
            for _ in 0..12 {
                let start = below(32);
                let end = start + below(33 - start);
                let owner = Owner::Value { value: ValueId::from(1), base: i128::from(below(3)) };
                let bytes = start..end;
                let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
                let other = bytes.clone().find_map(|byte| {
                    let found = table[at(byte)];
                    (found != Some(owner)).then_some((byte, found))
                });
                assert_eq!(memory.find_other(bytes.clone(), owner, |owner| owner), other);
                for byte in bytes.clone() {
                    table[at(byte)] = Some(owner);
                }
                memory.write(bytes, owner);
            }
        }
    }
}
