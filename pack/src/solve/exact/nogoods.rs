//! Nogoods: hashes of components that have no packing.
//!
//! # References
//!
//! Nogood recording (Stallman and Sussman, Artificial Intelligence 9, 1977), stored as in a
//! transposition table (Zobrist, "A new hashing method with application for game playing", 1970).

use alloc::vec::Vec;

use crate::base::Result;
use crate::solve::model::arith::low_bits;
use crate::solve::model::memory::filled;

/// A forgetful set of hashes.
///
/// A direct-mapped table: a hash replaces the previous hash at its place.
#[derive(Debug)]
pub(super) struct Nogoods {
    places: Vec<u64>,
    stored: usize,
    largest: usize,
}

impl Nogoods {
    /// Returns an empty set that grows to about `largest` places.
    pub(super) fn new(largest: usize) -> Result<Self> {
        let largest = largest.clamp(1, 1 << 32).next_power_of_two();
        Ok(Self { places: filled(0, largest.min(1 << 12), "failed states")?, stored: 0, largest })
    }

    /// Returns whether a state is known to have failed.
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.places[low_bits(hash) & (self.places.len() - 1)] == hash
    }

    /// Remembers that a state has failed.
    pub(super) fn insert(&mut self, hash: u64) {
        if self.stored > self.places.len() / 2 && self.places.len() < self.largest {
            self.grow();
        }
        let place = low_bits(hash) & (self.places.len() - 1);
        self.stored += usize::from(self.places[place] == 0);
        self.places[place] = hash;
    }

    /// Grows to four times as many places; unchanged if there is not enough memory.
    fn grow(&mut self) {
        let Ok(mut places) = filled(0, self.places.len() * 4, "failed states") else {
            self.largest = self.places.len();
            return;
        };
        for &hash in &self.places {
            places[low_bits(hash) & (self.places.len() * 4 - 1)] = hash;
        }
        self.places = places;
        self.stored = self.places.iter().filter(|&&hash| hash != 0).count();
    }
}
