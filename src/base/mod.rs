//! Words that every room uses: errors, typed indices, steps, live ranges, alignments.

mod error;
mod fingerprint;
mod index;
mod number;
mod units;

pub(crate) use error::hexadecimal;
pub use error::{Error, Result, quoted};
pub(crate) use fingerprint::Fingerprint;
pub use index::{BufferId, NodeId, SpaceId, ValueId};
pub(crate) use number::Number;
pub(crate) use units::gcd;
pub use units::{Alignment, LiveRange, MAX_BYTES, Step};
