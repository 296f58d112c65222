//! Words that every room uses: errors, typed indices, steps, live ranges, alignments.

mod digest;
mod error;
mod execution;
mod fingerprint;
mod index;
mod instant;
#[cfg(feature = "serde")]
mod number;
mod units;

pub(crate) use digest::Hasher;
#[cfg(feature = "serde")]
pub(crate) use error::hexadecimal;
pub use error::{Error, Result, quoted};
pub use execution::Execution;
pub(crate) use fingerprint::Fingerprint;
pub use index::{BufferId, NodeId, SpaceId, ValueId};
pub use instant::Instant;
#[cfg(feature = "serde")]
pub(crate) use number::Number;
pub use units::{Alignment, LiveRange, MAX_BYTES, Step};
pub(crate) use units::{Grouped, gcd};
