//! SHA-256 over fields that follow each other.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Feeds a hash so that no two lists of fields give the same bytes.
#[derive(Debug)]
pub(crate) struct Hasher {
    hash: Sha256,
    /// Bytes that are not hashed yet: hashing many bytes at once takes less time.
    pending: Vec<u8>,
}

impl Hasher {
    /// Bytes that are collected.
    const BLOCK: usize = 1 << 12;

    pub(crate) fn new() -> Self {
        Self { hash: Sha256::new(), pending: Vec::with_capacity(2 * Self::BLOCK) }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= Self::BLOCK {
            self.hash.update(&self.pending);
            self.pending.clear();
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.number(u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes(text.as_bytes());
    }

    /// Returns the hash in hexadecimal.
    pub(crate) fn finish(self) -> String {
        hexadecimal(&self.finish_bytes())
    }

    /// Returns the first 64 bits of the hash.
    pub(crate) fn finish_number(self) -> u64 {
        let bytes = self.finish_bytes();
        bytes.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn finish_bytes(mut self) -> [u8; 32] {
        self.hash.update(&self.pending);
        self.hash.finalize().into()
    }
}

/// Returns `bytes` as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
