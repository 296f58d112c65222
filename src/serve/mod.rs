//! Serving: the plans of a model for many shapes, and arenas leased under one cap.

#[cfg(feature = "serde")]
pub mod model;
#[cfg(feature = "std")]
pub mod pool;
