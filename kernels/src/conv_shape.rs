//! The shape of a convolution, and the operands.

use crate::error::{Error, Result};
use crate::pack::Sliding;
use crate::raw::Planes;
use crate::tile::panel_rows;

/// Convolution sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    pub(crate) window: Sliding,
    pub(crate) groups: usize,
    pub(crate) fan_in: usize,
    pub(crate) fan_out: usize,
}

impl Conv {
    /// Returns a convolution with `groups` groups, each from `fan_in` channels to `fan_out`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if a size is zero, or a product of sizes overflows.
    pub fn new(window: Sliding, groups: usize, fan_in: usize, fan_out: usize) -> Result<Self> {
        let weights = [groups, fan_in, fan_out.next_multiple_of(panel_rows()), window.taps()]
            .iter()
            .try_fold(1_usize, |product, &size| product.checked_mul(size));
        if weights.is_none_or(|weights| weights == 0) {
            return Err(Error::OutOfRange { what: "the number of weights" });
        }
        Ok(Self { window, groups, fan_in, fan_out })
    }

    /// Returns the unrolled rows per group.
    pub fn depth(&self) -> usize {
        self.fan_in * self.window.taps()
    }
}

/// The numbers that a product is added to.
#[derive(Clone, Copy, Debug)]
pub enum Start<'m> {
    /// Nothing.
    Nothing,
    /// The numbers in the result's memory.
    Result,
    /// As many numbers as the result has.
    Numbers(Planes<'m>),
}
