//! Words that every room uses: errors, typed indices, steps, live ranges, alignments.

mod error;
mod index;
mod instant;
mod units;

pub use error::{Error, Result, quoted};
pub use index::{BufferId, SpaceId};
pub use instant::Instant;
pub use units::{Alignment, Grouped, LiveRange, MAX_BYTES, Step, gcd};
