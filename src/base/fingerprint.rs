//! A number that is computed once and stored beside its source.

use alloc::boxed::Box;

use once_cell::race::OnceBox;

/// A number that distinguishes plan layouts.
///
/// The number does not belong to a plan's identity: two fingerprints always compare equal. A copy
/// computes the number again, since the crate modifies copies.
#[derive(Debug, Default)]
pub(crate) struct Fingerprint(OnceBox<u64>);

impl Fingerprint {
    /// Returns the number, which `compute` makes the first time.
    pub(crate) fn get_or_compute(&self, compute: impl FnOnce() -> u64) -> u64 {
        *self.0.get_or_init(|| Box::new(compute()))
    }
}

impl Clone for Fingerprint {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Fingerprint {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_computed_once_and_again_by_a_copy() {
        let one = Fingerprint::default();
        assert_eq!(one.get_or_compute(|| 1), 1);
        assert_eq!(one.get_or_compute(|| 2), 1);
        assert_eq!(one.clone().get_or_compute(|| 2), 2);
        assert_eq!(one, Fingerprint::default());
    }
}
