//! The standard library's clock, where there is a clock.

#[cfg(feature = "std")]
pub use std::time::Instant;

/// A moment on a machine without a clock: a deadline that nobody can make.
#[cfg(not(feature = "std"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(());

#[cfg(not(feature = "std"))]
impl Instant {
    /// Returns this moment.
    pub const fn now() -> Self {
        Self(())
    }

    /// Returns zero: the machine cannot measure time.
    #[allow(clippy::unused_self, reason = "as the standard library has it")]
    pub const fn elapsed(self) -> core::time::Duration {
        core::time::Duration::ZERO
    }

    /// Returns the time since an earlier moment.
    #[allow(clippy::unused_self, reason = "as the standard library has it")]
    pub const fn saturating_duration_since(self, _: Self) -> core::time::Duration {
        core::time::Duration::ZERO
    }

    /// Returns an earlier moment.
    #[allow(clippy::unnecessary_wraps, reason = "as the standard library has it")]
    pub const fn checked_sub(self, _: core::time::Duration) -> Option<Self> {
        Some(self)
    }
}

#[cfg(not(feature = "std"))]
impl core::ops::Add<core::time::Duration> for Instant {
    type Output = Self;

    fn add(self, _: core::time::Duration) -> Self {
        self
    }
}
