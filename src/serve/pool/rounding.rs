//! Block sizes that a pool asks for.

use alloc::{format, string::String};

use crate::base::{Error, Result};

/// The rule by which a pool rounds sizes up, so that a block serves requests of several sizes.
///
/// [`pages`](Self::pages) and [`powers`](Self::powers) are the strategies `Naive` and `Round` of
/// `MXNet`'s pooled storage managers (apache/mxnet, `src/storage/pooled_storage_manager.h`), with
/// the same results, except that sizes which do not fit into 64 bits are errors.
///
/// ```
/// use arenaplan::pool::Rounding;
///
/// assert_eq!(Rounding::EXACT.round(100)?, 100);
/// assert_eq!(Rounding::pages(4096, 2 << 20)?.round(2_097_153)?, 4_194_304);
/// assert_eq!(Rounding::powers(4096, 20)?.round(10_000_000)?, 10_485_760);
/// # Ok::<(), arenaplan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rounding(Rule);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rule {
    Exact,
    Pages { page: u64, large: u64 },
    Powers { page: u64, cutoff: u32 },
}

impl Rounding {
    /// Sizes stay unchanged.
    pub const EXACT: Self = Self(Rule::Exact);

    /// Multiples of 4,096 bytes.
    pub const DEFAULT: Self = Self(Rule::Pages { page: 4096, large: 4096 });

    /// Returns the rule that rounds up to a multiple of `page` bytes, and results above `large`
    /// bytes to a multiple of `large`.
    ///
    /// `MXNet`'s defaults are 4,096 and 2 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if a number is zero.
    pub fn pages(page: u64, large: u64) -> Result<Self> {
        if page == 0 || large == 0 {
            return Err(invalid("a page has at least 1 byte".into()));
        }
        Ok(Self(Rule::Pages { page, large }))
    }

    /// Returns the rule that rounds up to a power of two of at least `page` bytes, and sizes above
    /// 2 to the power `cutoff` bytes to a multiple of that power.
    ///
    /// `MXNet`'s defaults are 4,096 and 24.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if `page` is not a power of two, or `cutoff` is less than its
    /// logarithm or more than 62.
    pub fn powers(page: u64, cutoff: u32) -> Result<Self> {
        if !page.is_power_of_two() {
            return Err(invalid(format!("a page must have a power of two bytes, not {page}")));
        }
        if cutoff < page.ilog2() || cutoff > 62 {
            let least = page.ilog2();
            return Err(invalid(format!("the cutoff {cutoff} is not between {least} and 62")));
        }
        Ok(Self(Rule::Powers { page, cutoff }))
    }

    /// Returns the block size for a request of `bytes` bytes; 0 for 0.
    ///
    /// # Errors
    ///
    /// [`Error::SizeOverflow`] if the result does not fit into 64 bits.
    pub fn round(self, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let rounded = match self.0 {
            Rule::Exact => Some(bytes),
            Rule::Pages { page, large } => match bytes.checked_next_multiple_of(page) {
                Some(paged) if paged > large => paged.checked_next_multiple_of(large),
                paged => paged,
            },
            Rule::Powers { page, cutoff } => match bytes.checked_next_power_of_two() {
                Some(power) if power.ilog2() <= cutoff => Some(power.max(page)),
                _ => bytes.checked_next_multiple_of(1 << cutoff),
            },
        };
        rounded.ok_or_else(|| Error::SizeOverflow { what: format!("a block for {bytes} bytes") })
    }
}

impl Default for Rounding {
    /// Returns [`Rounding::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidOption { option: "rounding", reason }
}
