//! Kinds of items: identical items form a kind with several copies.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use crate::base::Result;
use crate::solve::model::Model;
use crate::solve::model::arith::{index, number};
use crate::solve::model::memory::with_capacity;

/// Identical items: equal size, alignment, pad and sections. Symmetry breaking: only the number of
/// placed copies is a decision, and permutations of copies are not searched.
#[derive(Clone, Debug)]
pub(super) struct ItemKind {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) size: u64,
    pub(super) mask: u64,
    /// The highest offset; for pinned items also the lowest offset.
    pub(super) ceiling: u64,
    pinned: bool,
    pad: u64,
    /// The items.
    pub(super) copies: Vec<u32>,
    /// The kind's first position in the search state's positions.
    pub(super) first_position: usize,
}

impl ItemKind {
    /// Returns the sections, as positions.
    pub(super) fn sections(&self) -> Range<usize> {
        index(self.left)..index(self.right)
    }

    /// Returns the number of sections.
    pub(super) const fn length(&self) -> u32 {
        self.right - self.left
    }

    /// Returns grains × sections.
    pub(super) fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.length())
    }

    /// Returns the total grains × sections of the items.
    pub(super) fn whole_area(&self) -> u128 {
        self.area() * u128::from(number(self.copies.len()))
    }

    /// Returns whether the items are live in a section.
    pub(super) const fn is_live(&self, section: u32) -> bool {
        self.left <= section && section < self.right
    }
}

/// Returns the kinds of a model's items.
pub(super) fn kinds(model: &Model, merge: bool) -> Result<Vec<ItemKind>> {
    let mut kinds: Vec<ItemKind> = with_capacity(model.items.len(), "open items")?;
    for (item, it) in model.items.iter().enumerate() {
        kinds.push(ItemKind {
            left: it.span.start,
            right: it.span.end,
            size: it.size,
            mask: it.mask(),
            ceiling: model.pin(it).unwrap_or(u64::MAX),
            pinned: model.pin(it).is_some(),
            pad: model.pad(it),
            copies: vec![number(item)],
            first_position: 0,
        });
    }
    kinds.sort_by_key(|kind| {
        (kind.left, kind.right, kind.size, kind.mask, kind.pad, kind.pinned, kind.copies[0])
    });
    kinds.dedup_by(|kind, other| {
        let same = (kind.left, kind.right, kind.size, kind.mask, kind.pad)
            == (other.left, other.right, other.size, other.mask, other.pad);
        let twins = merge && same && !kind.pinned && !other.pinned;
        if twins {
            other.copies.append(&mut kind.copies);
        }
        twins
    });
    Ok(kinds)
}
