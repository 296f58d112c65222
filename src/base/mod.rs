//! Words that every room uses: [packing](crate::pack::base) words, errors, typed indices,
//! executions.

mod digest;
mod error;
mod execution;
mod fingerprint;
mod index;
#[cfg(feature = "serde")]
mod number;

pub use arenaplan_pack::base::{
    Alignment, BufferId, Instant, LiveRange, MAX_BYTES, SpaceId, Step, quoted,
};
#[doc(hidden)]
pub use arenaplan_pack::base::{Grouped, gcd};
pub(crate) use digest::Hasher;
#[cfg(feature = "serde")]
pub(crate) use digest::hexadecimal;
pub use error::{Error, Result};
pub use execution::Execution;
pub(crate) use fingerprint::Fingerprint;
pub use index::{NodeId, ValueId};
#[cfg(feature = "serde")]
pub(crate) use number::Number;
