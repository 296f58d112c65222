//! Typed indices: a [`BufferId`] can not be mistaken for a [`SpaceId`].

/// Declares typed indices; the crates above have separate tables.
#[doc(hidden)]
#[macro_export]
macro_rules! typed_index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        pub struct $name(u32);

        impl $name {
            /// Returns the id at position `index`.
            ///
            /// # Panics
            ///
            /// If `index` does not fit 32 bits; the builders refuse larger tables.
            #[must_use]
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("tables hold at most 2^32 - 1 entries"))
            }

            /// Returns the position in the table.
            #[must_use]
            pub const fn index(self) -> usize {
                // Every supported target has pointers with at least 32 bits.
                #[allow(clippy::as_conversions)]
                {
                    self.0 as usize
                }
            }
        }

        impl From<u32> for $name {
            fn from(index: u32) -> Self {
                Self(index)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

typed_index!(
    /// A buffer in a [`Problem`](crate::Problem).
    BufferId
);
typed_index!(
    /// A memory space in a [`Problem`](crate::Problem).
    SpaceId
);
